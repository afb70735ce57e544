"""Cost of replaying: a Llama of 70B on 7 stages, on two cores.

Bar: 60 s from the command to the answer, loading torch and the workload included. The
plan is that of examples/llama-70b.yaml with 7 stages fixed by hand: 32 micro-batches,
11 or 12 layers a stage, nearly all of them recomputed.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

from benchmarks.frame import NUM_CORES, Goal, Measurement, few_cores, run, seconds_of
from benchmarks.support.truth_run import ignore, planned
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, Precision
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import ComputeRate, Link, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.answer import solve
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.ranks.replay_process import replay_plan

ENTRYPOINT = "examples.llama:llama_70b"
NUM_STAGES, GLOBAL_BATCH = 7, 32
NUM_RUNS = 3
MOST_S = 60.0


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    request = ProfileRequest(
        entrypoint=ENTRYPOINT,
        arguments='{"sequence_length": 4096, "gradient_precision": "bf16"}',
        device_kind=DeviceKind.CUDA,
        source=Source.TRACED,
    )
    made = profile(request, ignore)
    plan = plan_of(made)
    before_s = children_s()
    with few_cores():
        [seconds] = seconds_of(
            lambda: replay_plan(plan, made, ENTRYPOINT), runs=NUM_RUNS, warm_up=0
        )
    name = f"replay of 70B on {NUM_STAGES} stages, {NUM_CORES} cores"
    yield Measurement(name=name, runs=seconds, unit="s", goal=Goal(at_most=MOST_S))
    used_s = (children_s() - before_s) / NUM_RUNS
    yield Measurement(name=f"{name}, CPU time", runs=(used_s,), unit="s")


def plan_of(made: ModelProfile) -> HybridPlan:
    """The plan with the least memory of so many stages."""
    offer = Offer(
        name="b200-8",
        device_product="B200-180GB",
        device_memory_bytes=183359 * 2**20,
        devices_per_node=8,
        link_in_node=Link(bandwidth_bytes_per_s=900e9, latency_s=5e-6),
        compute_rates=(ComputeRate(precision=Precision.BF16, flop_per_s=2250e12),),
        memory_bandwidth_bytes_per_s=8000e9,
    )
    problem = Problem(
        profile=made,
        overheads=with_built_in((), (offer,)),
        offers=(offer,),
        engine=PLIMSOLL,
        global_batch_size=GLOBAL_BATCH,
        limits=Limits(max_gpus=NUM_STAGES),
        objective=Objective(),
        override=Override(num_stages=NUM_STAGES, data_degree=1),
    )
    return planned(solve(problem))


def children_s() -> float:
    """CPU time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(run("replay", measure))
