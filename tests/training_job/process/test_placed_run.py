"""Whole training processes that run a placement of operators."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import Evaluation
from plimsoll_trainer.process.placed_run import build_placed
from plimsoll_trainer.workload import AdamW, Layer, Workload
from tests.support.jobs import events, losses, num_ranks, texts, train
from tests.support.placed_plans import assigned, placement_of, write_placed
from tests.support.ranks import run_ranks, try_ranks
from tests.support.workloads import a_gpt

if TYPE_CHECKING:
    from plimsoll_planner.records.placement_plan import PlacementPlan
    from tests.support.jobs import Job

pytestmark = pytest.mark.slow

CUTS = (0, 2, 5)
SAME = 1e-6
"""Relative; a pipeline adds micro-batches up as sums, a placement as means."""


@pytest.fixture(scope="module")
def placement() -> PlacementPlan:
    """The tiny model of a job, on two devices."""
    return placement_of(a_gpt(depth=3, width=16), 2)


def run_placed(
    job: Job, placement: PlacementPlan, steps: int, report: str, **fields: Any
) -> None:
    """Run all ranks of a placement to their end."""
    plan = fields.pop("plan", {})
    path = write_placed(job.folder, placement, **plan)
    options = replace(job.options(CUTS, steps, report=report, **fields), plan=path)
    assert run_ranks(train, num_ranks(options), job.folder, options) == [0] * num_ranks(
        options
    )


def test_losses_are_those_of_a_pipeline(job: Job, placement: PlacementPlan) -> None:
    """So are those of evaluations, of whose samples the last pass has fewer."""
    plan = {"entrypoint": "tiny_model:evaluated"}
    job.run(CUTS, 4, report="pipeline", entrypoint=plan["entrypoint"], plan=plan)
    run_placed(
        *(job, placement, 4, "placed"),
        entrypoint=plan["entrypoint"],
        plan={**plan, "replicas": 2},
    )
    pipeline, placed = losses(job.report("pipeline")), losses(job.report("placed"))
    assert placed == pytest.approx(pipeline, rel=SAME)
    assert len(set(placed.values())) == 4
    found = [
        [(one["step"], one["loss"]) for one in events(job.report(name), "evaluation")]
        for name in ("pipeline", "placed")
    ]
    assert [step for step, _ in found[1]] == [2, 4]
    for (step, loss), (other_step, other) in zip(*found, strict=True):
        assert step == other_step
        assert other == pytest.approx(loss, rel=SAME)


def test_each_engine_goes_on_from_what_the_other_saved(
    job: Job, placement: PlacementPlan
) -> None:
    """Losses are those of a training without a break."""
    job.run(CUTS, 6, report="whole")
    job.run(CUTS, 2, report="first", saves=True)
    run_placed(job, placement, 4, "second", saves=True)
    job.run(CUTS, 6, report="third", saves=True)
    reports = [job.report(name) for name in ("first", "second", "third")]
    assert [sorted(losses(one)) for one in reports] == [[1, 2], [3, 4], [5, 6]]
    assert losses(*reports) == pytest.approx(losses(job.report("whole")), rel=SAME)


class Scales(nn.Module):
    """Multiplies by numbers in its code."""

    def forward(self, x: Tensor) -> Tensor:
        """Each by its own."""
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0])


class Branches(Scales):
    """Evaluates by another way for other numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """Ask for the numbers where it evaluates."""
        return super().forward(x if self.training or x.sum() > 0 else -x)


def rows(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Numbers that follow from step and sample."""
    x = torch.arange(4.0 * first, 4.0 * (first + count)).view(count, 4) + step
    return x.sin(), x.cos()


def scaled(kind: type[nn.Module], **fields: Any) -> Workload:
    """A linear layer and a module without parameters, evaluated on 3 samples."""
    defaults: dict[str, Any] = {
        "layers": (
            Layer(name="linear", factory=partial(nn.Linear, 4, 4), kind="linear"),
            Layer(name="kind", factory=kind, kind="kind"),
        ),
        "loss": functional.mse_loss,
        "batch": rows,
        "optimizer": AdamW(),
        "evaluation": Evaluation(
            data=lambda _, first, count: rows(7, first, count), num_samples=3
        ),
    }
    return Workload(**(defaults | fields))


def held_by_evaluation() -> tuple[int, int, int]:
    """Bytes that capture, and then two evaluations, leave; batches to train on."""
    batches = []

    def counted(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
        batches.append((step, first, count))
        return rows(step, first, count)

    device, workload = EmulatedDevice(), scaled(Scales, batch=counted)
    before = device.current_bytes
    work = assigned(workload, 1)
    captured = device.current_bytes - before
    batches.clear()
    world = join_world(1, 1, torch.device("cpu"))
    built = build_placed(work, world, lambda _: None)
    gc.collect()
    before = device.current_bytes
    assert workload.evaluation is not None
    losses = {float(built.evaluate(workload.evaluation, 0)[0]) for _ in range(2)}
    gc.collect()
    assert len(losses) == 1
    return captured, device.current_bytes - before, len(batches)


def test_captures_hold_nothing_of_the_device() -> None:
    """Constants of the model stay with the host; peaks would not be exact else.

    An evaluation asks for its own samples alone: a stream would begin anew.
    """
    assert run_ranks(held_by_evaluation, 1) == [(0, 0, 0)]


def build_branching() -> str:
    """Refusal of a model that cannot be captured as it evaluates."""
    world = join_world(1, 1, torch.device("cpu"))
    with pytest.raises(WorkloadError) as raised:
        build_placed(assigned(scaled(Branches), 1), world, lambda _: None)
    return str(raised.value)


def test_what_cannot_evaluate_is_refused_before_it_trains() -> None:
    """Both sizes of passes are captured when the rank is built."""
    [text] = run_ranks(build_branching, 1)
    assert "asks for numbers" in text


def test_another_graph_is_refused_before_anything_is_built(
    job: Job, placement: PlacementPlan
) -> None:
    """As one of a model that has changed since it was placed."""
    path = write_placed(job.folder, placement, arguments=json.dumps({"depth": 2}))
    options = replace(job.options(CUTS, 2), plan=path)
    ends = try_ranks(train, [0, 0], job.folder, options)
    for text in texts(ends):
        assert "is another one than when it was placed: profile and place" in text
    assert len(texts(ends)) == 2


def test_a_checkpoint_of_another_model_is_refused(
    job: Job, placement: PlacementPlan, tmp_path: Path
) -> None:
    """By the name of what it holds, or lacks."""
    job.run(CUTS, 2, saves=True, args=json.dumps({"width": 24}))
    options = replace(
        job.options(CUTS, 4, saves=True), plan=write_placed(tmp_path, placement)
    )
    ends = try_ranks(train, [0, 0], job.folder, options)
    assert len(texts(ends)) == 2
    for text in texts(ends):
        assert "is for another model: layers.block.0.mlp.0.bias is" in text
