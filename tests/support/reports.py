"""Runs to report on: answers of the real search, and reports as of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plimsoll_cli.state.liveness import Liveness
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.answer import solve
from tests.support.builders import an_observation
from tests.support.questions import a_question

TIME = "2026-11-21T09:30:00Z"
REASONS = ("Valid", "Measured", "Proven", "Replayed", "Started", "Trained")


def a_status(*reasons: str, truth: Truth = Truth.TRUE, message: str = "") -> Status:
    """Build a status: conditions with these reasons are True, the last as given."""
    reasons = reasons or REASONS
    kinds = list(ConditionType)[: len(reasons) - 1]
    kinds.append(ConditionType.SUCCEEDED)
    return Status(
        conditions=tuple(
            Condition(
                type=kind,
                status=truth if kind is kinds[-1] else Truth.TRUE,
                reason=reason,
                message=message if kind is kinds[-1] else "",
                last_transition_time=TIME,
            )
            for kind, reason in zip(kinds, reasons, strict=True)
        ),
        attempt=1,
        start_time=TIME,
    )


def told_by(plan: HybridPlan, rank: int, peak_bytes: int, **fields: Any) -> Observation:
    """Build the report of a rank of the plan that had a peak of some bytes."""
    peak = ObservedPeak(
        phase=Phase.BACKWARD,
        allocated_bytes=peak_bytes,
        reserved_bytes=peak_bytes,
        device_bytes=peak_bytes,
    )
    defaults: dict[str, Any] = {
        "plan_digest": digest_of(plan),
        "rank": rank,
        "fingerprint": plan.fingerprint,
        "peaks": (peak,),
        "num_steps": 3,
        "step_s": (40.0, 41.0, 42.0),
    }
    return an_observation(**(defaults | fields))


def told_by_all(plan: HybridPlan, **fields: Any) -> tuple[Observation, ...]:
    """Build the reports of all ranks whose peaks were as expected."""
    return tuple(
        told_by(plan, rank, peak.device.expected_bytes, **fields)
        for stage in plan.stages
        for rank in stage.ranks
        if (peak := stage.peak()) is not None
    )


def a_record(problem: Problem | None = None, **fields: Any) -> RunRecord:
    """Build the record of a question that was answered, and not run yet."""
    problem = problem or a_question(700)
    defaults: dict[str, Any] = {
        "name": "tiny-gpt",
        "uid": "4b1c9e1e-6e1c-4d57-9a55-5a6c6a3f2b10",
        "status": a_status("Valid", "Measured", "Proven", "PlanOnly"),
        "liveness": Liveness.WATCHED,
        "problem": problem,
        "answer": solve(problem),
        "is_planned_anew": False,
        "attempts": (),
        "observations": (),
        "losses": (),
        "saved_step": None,
        "suspends": False,
    }
    return RunRecord(**(defaults | fields))


def a_run(problem: Problem | None = None, **fields: Any) -> RunRecord:
    """Build the record of a training that went as predicted."""
    record = a_record(problem)
    plan = record.plan
    assert plan is not None
    attempt = StoredAttempt(number=1, plan=plan, ending=Ending.DONE, ended_s=1.7952e9)
    defaults: dict[str, Any] = {
        "status": a_status(),
        "attempts": (attempt,),
        "observations": told_by_all(plan),
        "losses": tuple((step, 5.0 / step) for step in range(1, 4)),
    }
    return replace(record, **(defaults | fields))
