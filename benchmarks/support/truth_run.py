"""Prediction against truth: formula, replay, and real ranks that count what they hold.

Every model is profiled on one emulated device; every plan is then predicted, replayed,
and run by real gloo processes under the allocator's counter. Peaks are those of a
steady step and of the whole life of a rank; the step's seconds are the slowest rank's.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from benchmarks.frame import CannotRunError
from benchmarks.support.truth_models import (
    GLOBAL_BATCH,
    MOST_RANKS,
    Arrangement,
    workload,
)
from plimsoll_operator.nodes.this_machine import CROWDED_SLOWDOWN, MEMORY_COPY
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, Sequences
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import EMULATED_PRODUCT, Link, Offer
from plimsoll_planner.records.override import NOTHING_FIXED, Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.assignment import slices_of
from tests.support import ranks

NUM_STEPS = 6
NUM_ROUNDS = 2
NUM_EXCHANGES = 60
CPU = torch.device("cpu")
DEGREES = (1, 2, 4)
"""Tensor degrees that are profiled."""
AMPLE_HOST_BYTES = 2**40
"""Room for any optimizer; small models need some MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTruth:
    """Memory and seconds of one rank."""

    whole_life_bytes: int
    steady_bytes: int
    step_s: tuple[float, ...]


def run_rank(name: str, how: Arrangement) -> RankTruth:
    """Train as one rank; runs in a process of its own."""
    device = EmulatedDevice()
    model = workload(name=name)
    ends = (*how.cuts[1:], len(model.layers))
    slices = [
        StageSlice(
            first_layer=first,
            end_layer=end,
            recomputed=frozenset(i for i in how.recomputed if first <= i < end),
            offloaded=frozenset(i for i in how.offloaded if first <= i < end),
            sharding=how.sharding_of(stage),
            optimizer_home=how.home_of(stage),
            sequence_parallel=how.sequences is Sequences.SPLIT,
            in_flight_cap=how.in_flight[stage],
        )
        for stage, (first, end) in enumerate(zip(how.cuts, ends, strict=True))
    ]
    shapes = boundaries_of(model, how.micro_batch)
    gc.collect()
    before = device.current_bytes
    device.reset_peak()
    trainer = Trainer(
        model,
        slices=slices,
        boundaries=shapes,
        num_micro_batches=how.num_micro_batches,
        world=join_world(len(how.cuts), how.replicas, CPU, num_parts=how.parts),
    )
    trainer.run_step(0)
    gc.collect()
    whole_life = device.peak_bytes
    device.reset_peak()
    seconds = []
    for step in range(1, NUM_STEPS):
        dist.barrier()
        started_s = time.perf_counter()
        trainer.run_step(step)
        seconds.append(time.perf_counter() - started_s)
    steady = device.peak_bytes
    return RankTruth(
        whole_life_bytes=max(whole_life, steady) - before,
        steady_bytes=steady - before,
        step_s=tuple(seconds),
    )


def profile_of(name: str, degrees: Sequence[int] = DEGREES) -> ModelProfile:
    """Measure a model on one emulated device, whole and split by some degrees."""
    request = ProfileRequest(
        entrypoint="benchmarks.support.truth_models:workload",
        arguments=json.dumps({"name": name}),
        device_kind=DeviceKind.EMULATED,
        source=Source.MEASURED,
        tensor_degrees=tuple(degrees),
    )
    return profile(request, ignore)


def ignore(done: int, total: int, what: str) -> None:
    """Show no progress."""


def capacity_offer(capacity_bytes: int, link: Link | None = None) -> Offer:
    """Offer this machine's emulated devices with some memory each."""
    return Offer(
        name="this machine",
        device_kind=DeviceKind.EMULATED,
        device_product=EMULATED_PRODUCT,
        device_memory_bytes=capacity_bytes,
        devices_per_node=MOST_RANKS,
        concurrent_devices_per_node=len(os.sched_getaffinity(0)),
        crowded_slowdown=CROWDED_SLOWDOWN,
        nodes_available=1,
        link_in_node=link,
        host_memory_bytes=AMPLE_HOST_BYTES,
        link_to_host=MEMORY_COPY,
    )


def answer_of(
    made: ModelProfile,
    offer: Offer,
    limits: Limits,
    objective: Objective,
    override: Override = NOTHING_FIXED,
) -> Solution | Infeasible:
    """Ask the planner."""
    return solve(
        Problem(
            profile=made,
            overheads=with_built_in((), (offer,)),
            offers=(offer,),
            engine=PLIMSOLL,
            global_batch_size=GLOBAL_BATCH,
            limits=limits,
            objective=objective,
            override=override,
        )
    )


def plan_of(made: ModelProfile, how: Arrangement, link: Link) -> HybridPlan:
    """Predict one arrangement."""
    found = answer_of(
        made,
        capacity_offer(2**34, link),
        Limits(max_gpus=how.num_ranks),
        Objective(rate_floor=0.0),
        how.override(),
    )
    return planned(found)


def planned(found: Solution | Infeasible) -> HybridPlan:
    """Plan of an answer that must have one."""
    if isinstance(found, Infeasible):
        raise CannotRunError(f"no plan where one is needed: {found.nearest_change}")
    return found.plan


def arrangement_of(plan: HybridPlan) -> Arrangement:
    """Arrangement of ranks, read back from a plan."""
    return Arrangement(
        cuts=tuple(stage.chunks[0].first_layer for stage in plan.stages),
        replicas=plan.stages[0].data_degree,
        parts=plan.stages[0].variant.tensor_degree,
        sequences=plan.stages[0].variant.sequences,
        micro_batch=plan.micro_batch,
        recomputed=tuple(
            layer for stage in plan.stages for layer in stage.recomputed_layers
        ),
        offloaded=tuple(
            layer for stage in plan.stages for layer in stage.offloaded_layers
        ),
        shardings=tuple(stage.sharding for stage in plan.stages),
        caps=tuple(stage.in_flight_cap for stage in plan.stages),
        homes=tuple(stage.optimizer_home for stage in plan.stages),
    )


def replay_of(name: str, plan: HybridPlan, how: Arrangement) -> list[int]:
    """Replay one rank of every stage, as an emulated device; return the peaks."""
    model = workload(name=name)
    job = ReplayJob(
        workload=model,
        slices=slices_of(plan),
        num_replicas=how.replicas,
        num_parts=how.parts,
        num_micro_batches=plan.num_micro_batches,
        boundaries=boundaries_of(model, how.micro_batch),
        device_kind=DeviceKind.EMULATED,
    )
    return [max(replay_stage(job, stage).values()) for stage in range(len(plan.stages))]


def measure_link() -> Link:
    """Time the exchange of gradients between two real ranks, small and large."""
    small, large = ranks.run_ranks(exchanges, 2)[0]
    return Link(
        bandwidth_bytes_per_s=(LARGE - SMALL) / 2 / max(large - small, 1e-9),
        latency_s=small,
    )


SMALL, LARGE = 2**16, 2**22
"""Bytes; a ring of two moves half of them in each of its two steps."""


def exchanges() -> tuple[float, float]:
    """Seconds of one step of a small and of a large all-reduce."""
    return exchange_s(SMALL), exchange_s(LARGE)


def exchange_s(num_bytes: int) -> float:
    """Exchange a few times."""
    tensor = torch.zeros(num_bytes // 4)
    taken = []
    for _ in range(NUM_EXCHANGES):
        dist.barrier()
        started_s = time.perf_counter()
        dist.all_reduce(tensor)
        taken.append((time.perf_counter() - started_s) / 2)
    return statistics.median(taken)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One plan of one model: predicted, replayed, true."""

    model: str
    how: Arrangement
    formula: tuple[float, ...]
    """Of each rank: predicted over true, minus 1."""
    replayed: tuple[float, ...]
    upper: tuple[float, ...]
    """Of each rank: upper bound over true."""
    whole_life: tuple[float, ...]
    """Of each rank: whole life over steady step, minus 1."""
    predicted_s: float
    true_s: float


def run_plans(name: str, hows: Sequence[Arrangement]) -> list[list[RankTruth]]:
    """Run all plans of a model in turn, several times: a slow minute hits all alike."""
    rounds = [
        [ranks.run_ranks(run_rank, how.num_ranks, name, how) for how in hows]
        for _ in range(NUM_ROUNDS)
    ]
    return [
        [together(same_rank) for same_rank in zip(*same_plan, strict=True)]
        for same_plan in zip(*rounds, strict=True)
    ]


def together(runs: Sequence[RankTruth]) -> RankTruth:
    """Put several runs of a rank together."""
    return RankTruth(
        whole_life_bytes=max(run.whole_life_bytes for run in runs),
        steady_bytes=max(run.steady_bytes for run in runs),
        step_s=tuple(second for run in runs for second in run.step_s),
    )


def compare(
    name: str,
    made: ModelProfile,
    how: Arrangement,
    link: Link,
    truth: Sequence[RankTruth],
) -> Comparison:
    """Predict and replay one plan that has been run."""
    plan = plan_of(made, how, link)
    replayed = ranks.run_on_device(replay_of, name, plan, how)
    stages = [rank // how.ranks_per_stage for rank in range(how.num_ranks)]
    expected = [
        max(peak.allocated.expected_bytes for peak in stage.peaks)
        for stage in plan.stages
    ]
    upper = [
        max(peak.device.upper_bytes for peak in stage.peaks) for stage in plan.stages
    ]
    steady = [rank.steady_bytes for rank in truth]
    step_s = plan.step_time.expected_s if plan.step_time else 0.0
    return Comparison(
        model=name,
        how=how,
        formula=tuple(expected[s] / t - 1 for s, t in zip(stages, steady, strict=True)),
        replayed=tuple(
            replayed[s] / t - 1 for s, t in zip(stages, steady, strict=True)
        ),
        upper=tuple(
            upper[s] / rank.whole_life_bytes
            for s, rank in zip(stages, truth, strict=True)
        ),
        whole_life=tuple(r.whole_life_bytes / r.steady_bytes - 1 for r in truth),
        predicted_s=step_s,
        true_s=statistics.median(
            max(step) for step in zip(*(rank.step_s for rank in truth), strict=True)
        ),
    )
