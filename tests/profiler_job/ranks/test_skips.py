"""The replay of a rank that carries values holds what the real rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.ranks import toy
from plimsoll_profiler.ranks.rank_replay import ReplayJob
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from tests.support.ranks import run_on_device, run_ranks
from tests.support.skips import MODELS

pytestmark = pytest.mark.slow
Plan = tuple[str, tuple[int, ...], frozenset[int]]
"""A model, its cuts with both ends, and the layers that recompute."""
MICRO_BATCH, NUM_MICRO_BATCHES = 8, 8
SCRATCH_BYTES = 64
"""Of attention written by hand, whose kernels keep a few bytes: 32 were seen."""


def job_of(plan: Plan) -> ReplayJob:
    """Job that its ranks share."""
    model, cuts, recomputed = plan
    workload = MODELS[model]()
    return ReplayJob(
        workload=workload,
        slices=[
            StageSlice(
                first_layer=first,
                end_layer=end,
                recomputed=recomputed & frozenset(range(first, end)),
            )
            for first, end in pairwise(cuts)
        ],
        num_replicas=1,
        num_micro_batches=NUM_MICRO_BATCHES,
        boundaries=boundaries_of(workload, MICRO_BATCH),
        device_kind=DeviceKind.EMULATED,
    )


def real_peaks(plans: Sequence[Plan]) -> list[int]:
    """Steady peak of this rank under each plan."""
    return [toy.steady_peak(job_of(plan)) for plan in plans]


def replayed_peaks(plans: Sequence[Plan]) -> list[list[int]]:
    """Peaks of all ranks of each plan, by replay."""
    return [toy.replayed_peaks(job_of(plan)) for plan in plans]


def random_plans(num_stages: int) -> list[Plan]:
    """Of each model one plan that keeps all, and one that recomputes some layers."""
    random = Random(num_stages)  # noqa: S311 - the same plans each time
    plans = []
    for model, make in MODELS.items():
        count = len(make().layers)
        for recomputed in ([], random.sample(range(count), count // 2)):
            inner = sorted(random.sample(range(1, count), num_stages - 1))
            plans.append((model, (0, *inner, count), frozenset(recomputed)))
    return plans


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
def test_a_replay_holds_what_real_ranks_hold(num_stages: int) -> None:
    """Whatever is given, taken or passed through, recomputed or not: to the byte."""
    plans = random_plans(num_stages)
    real = run_ranks(real_peaks, num_stages, plans)
    replayed = run_on_device(replayed_peaks, plans)
    for place, plan in enumerate(plans):
        held = [peaks[place] for peaks in real]
        most = SCRATCH_BYTES if plan[0] == "memory" else 0
        for rank, (one, other) in enumerate(zip(held, replayed[place], strict=True)):
            assert abs(one - other) <= most, (plan, rank, one, other)
