"""Small questions about graphs whose operators are placed, on emulated devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.support.towers import towers
from plimsoll_planner.engines import GRAPH
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.graph_profile import ProfiledGraph
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from tests.support.chains import chain_profile
from tests.support.questions import CHAIN, a_device, a_question, solved

GRAPHS = tuple(
    ProfiledGraph(micro_batch=b, graph=towers(160 * b, 4, seed=b)) for b in (1, 2)
)
MUCH = 2**40


def a_placed_question(memory_bytes: int = MUCH, **fields: Any) -> Problem:
    """Ask for those graphs on emulated devices."""
    profile = chain_profile(CHAIN, device_kind=DeviceKind.EMULATED)
    defaults: dict[str, Any] = {
        "profile": replace(profile, graphs=GRAPHS),
        "engine": GRAPH,
        "offers": (a_device(memory_bytes),),
    }
    return a_question(**(defaults | fields))


def least_of(num_gpus: int) -> int:
    """Least peak that is found on so many devices, bytes."""
    limits = Limits(max_gpus=num_gpus, data_degrees=(1,), pipeline_degrees=(num_gpus,))
    answer = solved(
        a_placed_question(limits=limits, objective=Objective(goal=Goal.MINIMIZE_MEMORY))
    )
    assert answer.plan.num_gpus == num_gpus
    return answer.plan.peak_bytes or 0


def a_tight_question(num_gpus: int = 2) -> Problem:
    """Ask about devices of which so many are just enough."""
    return a_placed_question(least_of(num_gpus))


def replay_of(plan: HybridPlan, *factors: float) -> Replay:
    """Replay of a plan: its predicted peaks times a factor backward, and as it steps.

    A factor of 0 leaves the phase out.
    """
    phases = zip((Phase.BACKWARD, Phase.OPTIMIZER_STEP), factors, strict=False)
    told = [(phase, factor) for phase, factor in phases if factor]
    return Replay(
        plan_digest=digest_of(plan),
        torch_version="2.15.0",
        stages=tuple(
            ReplayedStage(
                stage=place,
                peaks=tuple(
                    ReplayedPeak(
                        phase=phase,
                        allocated_bytes=int(
                            factor * stage.peaks[0].allocated.expected_bytes
                        ),
                    )
                    for phase, factor in told
                ),
            )
            for place, stage in enumerate(plan.stages)
        ),
    )
