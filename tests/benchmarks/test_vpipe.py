"""The arithmetic of bench-vpipe, and GPipe as it is walked."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.support.baseline_plans import Judged, best, largest
from benchmarks.support.gpipe import GPIPE
from benchmarks.support.halves import encoder
from benchmarks.support.plan_shapes import PUBLISHED, PlanShape, shape_of
from benchmarks.support.timed_run import Run
from benchmarks.vpipe import GAIN_HEAD, HEAD, RUN_HEAD, Row, Trained, gain_percent
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology
from tests.support.builders import MIB, a_plan

BATCH = 64


def judged(rate: float, *, b: int = 1, needed_bytes: int = MIB) -> Judged:
    """A plan of so many samples per second."""
    candidate = SimpleNamespace(micro_batch=b, mesh=Mesh(pipeline=8))
    problem = SimpleNamespace(global_batch_size=BATCH)
    return Judged(
        found=cast("Any", SimpleNamespace(candidate=candidate)),
        search=cast("Any", SimpleNamespace(problem=problem)),
        needed_bytes=needed_bytes,
        step_s=BATCH / rate,
    )


PLANS = (
    judged(16, b=1, needed_bytes=2 * MIB),
    judged(14, b=2, needed_bytes=3 * MIB),
    judged(10, b=4, needed_bytes=5 * MIB),
)
ROW = Row(
    family="GPT",
    part="1",
    cap_bytes=4 * MIB,
    gpipe=PLANS[1],
    best_gpipe=PLANS[0],
    one_f_one_b=None,
    best_one_f_one_b=None,
    on_device=judged(18),
    ours=judged(21),
    any_mesh=None,
)


def test_a_baseline_is_taken_with_its_largest_and_its_best_micro_batch() -> None:
    """A larger one fills the pipeline worse, so that the two differ."""
    assert largest(PLANS, 4 * MIB) is PLANS[1]
    assert best(PLANS, 4 * MIB) is PLANS[0]
    assert largest(PLANS, MIB) is best(PLANS, MIB) is None


def test_a_row_says_what_does_not_fit() -> None:
    """And has no gain over it."""
    assert len(ROW.cells()) == len(HEAD)
    assert ROW.cells()[2:6] == (
        *("14/s, b = 2", "16/s, b = 1"),
        *("does not fit", "does not fit"),
    )
    assert gain_percent(ROW.ours, ROW.one_f_one_b) is None


@pytest.mark.parametrize(("rate", "verdict"), [(17.4, "**no**"), (17.5, "yes")])
def test_the_bar_is_for_the_largest_micro_batch(rate: float, verdict: str) -> None:
    """24.8 % over 14 samples per second are 17.47."""
    cells = replace(ROW, ours=judged(rate)).gain_cells()
    assert len(cells) == len(GAIN_HEAD)
    assert cells[-1] == verdict


def test_a_gain_is_of_samples_per_second() -> None:
    """21 against 14 are half as much more."""
    assert ROW.gain_cells()[2:5] == ("+50.0 %", "+31.2 %", "-")


@pytest.mark.parametrize(
    ("peaks", "is_within"),
    [((MIB, 3 * MIB), True), ((MIB, 3 * MIB + 1), False), ((), False)],
)
def test_a_plan_is_within_if_no_rank_held_more_than_predicted(
    peaks: tuple[int, ...], *, is_within: bool
) -> None:
    """A run without peaks is one that ran out of memory."""
    ran = Run(peaks_bytes=(MIB, 2 * MIB), steps_s=(4.0, 2.0))
    runs = (ran, replace(ran, peaks_bytes=peaks))
    trained = Trained(row=ROW, name="1F1B", judged=PLANS[1], runs=runs)
    assert trained.is_within is is_within
    assert len(trained.cells()) == len(RUN_HEAD)


def test_gpipe_runs_all_micro_batches_forward_first() -> None:
    """The order of the text, on every stage."""
    for stage in range(3):
        order = " ".join(map(str, GPIPE.operations(stage, 3, 4)))
        assert order == "F0 F1 F2 F3 B0 B1 B2 B3"


def test_gpipe_has_the_bubble_of_equal_stages() -> None:
    """P stages of f and b seconds: (M + P - 1) (f + b), without links."""
    times = StageTimes(forward_s=1.0, backward_s=2.0, sent_bytes=0, end_s=0.0)
    placed = Topology(
        mesh=Mesh(pipeline=3),
        gpus_per_pod=3,
        pods_per_node=1,
        num_nodes=1,
        hops=(hop := cast("Any", SimpleNamespace(seconds=lambda _: 0.0)), hop),
        exchanges=(),
        host=hop,
        is_host_link_shared=False,
        concurrent_per_node=None,
    )
    assert step_walk.walk(GPIPE, [times] * 3, 4, placed) == (4 + 3 - 1) * 3.0


def test_recompute_never_rises_in_published_plans() -> None:
    """And blocks mostly do: in 20 of 21 pairs at least, without the last stage."""
    assert {shape.falling_percent for shape in PUBLISHED} == {100}
    assert all(len(shape.blocks) == len(shape.ratios) for shape in PUBLISHED)
    least = min(shape.rising_percent for shape in PUBLISHED)
    assert least == pytest.approx(100 * 20 / 21)


def test_a_shape_counts_pairs_of_stages() -> None:
    """Of 3 pairs one rises; without the last stage one pair of blocks is left."""
    shape = PlanShape(name="a plan", blocks=(3, 2, 4), ratios=(0.5, 0.75, 0.0))
    assert shape.falling_percent == pytest.approx(200 / 3)
    assert shape.rising_percent == 0
    assert shape.cells()[1:3] == ("3, 2, 4", "0.5, 0.75, 0")


def test_a_shape_is_that_of_a_plan() -> None:
    """Blocks of each stage, and the part of them that recomputes."""
    plan = a_plan()
    shape = shape_of("ours", plan)
    assert len(shape.blocks) == len(plan.stages)
    assert sum(shape.blocks) == max(s.chunks[0].end_layer for s in plan.stages)


def test_an_encoder_has_two_blocks_a_layer() -> None:
    """48 layers are 98 blocks, embedding and head included."""
    from benchmarks.support.families import BERT  # noqa: PLC0415

    model = encoder(BERT, 48)
    assert len(model.layers) == 98
    assert model.precision is Precision.FP32
