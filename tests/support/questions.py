"""Small questions to the search, on emulated devices of some hundred bytes."""

from __future__ import annotations

from typing import Any

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from tests.support.builders import an_offer
from tests.support.chains import Activation, Layer, chain_profile

EMBEDDING = Layer(
    parameters=60,
    gradients=60,
    boundary=4,
    kept=Activation(forward=4, backward=4),
    again=Activation(keeps_input=True, forward=4, backward=4),
    forward_s=0.25,
    backward_s=0.25,
    recompute_s=0.25,
)
BLOCK = Layer(
    parameters=40,
    gradients=40,
    optimizer=80,
    boundary=4,
    kept=Activation(saved=60, keeps_input=True, forward=66, backward=80),
    again=Activation(keeps_input=True, forward=36, backward=84),
)
HEAD = Layer(
    parameters=60,
    gradients=60,
    boundary=1,
    kept=Activation(saved=90, keeps_input=True, forward=120, backward=150),
    again=Activation(keeps_input=True, forward=120, backward=170),
    forward_s=1.5,
    backward_s=3.0,
    recompute_s=1.5,
)
CHAIN = [EMBEDDING, *[BLOCK] * 8, HEAD]


def a_device(memory_bytes: int, **fields: Any) -> Any:
    """Build an offer of emulated devices, whose memory counts tensors alone."""
    return an_offer(
        **(
            {
                "device_kind": DeviceKind.EMULATED,
                "device_memory_bytes": memory_bytes,
                "link_in_node": None,
            }
            | fields
        )
    )


def a_question(memory_bytes: int = 900, **fields: Any) -> Problem:
    """Ask for the chain on emulated devices."""
    defaults: dict[str, Any] = {
        "profile": chain_profile(CHAIN, device_kind=DeviceKind.EMULATED),
        "offers": (a_device(memory_bytes),),
        "engine": PLIMSOLL,
        "global_batch_size": 8,
        "limits": Limits(max_gpus=8),
        "objective": Objective(),
    }
    return Problem(**(defaults | fields))


def solved(problem: Problem) -> Solution:
    """Answer, and insist on a plan."""
    answer = solve(problem)
    assert isinstance(answer, Solution)
    return answer


def refused(problem: Problem) -> Infeasible:
    """Answer, and insist on there being no plan."""
    answer = solve(problem)
    assert isinstance(answer, Infeasible)
    return answer


def least_memory(**fields: Any) -> int:
    """Smallest device that some plan fits on, by halving."""
    low, high = 0, 4000
    while high - low > 1:
        middle = (low + high) // 2
        answer = solve(
            a_question(middle, objective=Objective(rate_floor=0.0), **fields)
        )
        if isinstance(answer, Solution):
            high = middle
        else:
            low = middle
    return high
