"""Attempts, versions and digests."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.facts import attempt_rows, provenance, question_facts
from plimsoll_operator.api.status import ProfileStatus
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.plan import Phase
from tests.support.builders import a_fingerprint, a_plan
from tests.support.questions import a_question
from tests.support.reports import a_record, a_run, told_by


def test_attempts_say_what_ended_them_and_what_came_after() -> None:
    """A device that was full is planned anew; a lost machine is not."""
    first, second = a_plan(), a_plan(revision=2)
    attempts = (
        StoredAttempt(
            number=1,
            plan=first,
            ending=Ending.OUT_OF_MEMORY,
            ended_s=1.7952e9,
            message="asked for 2 MiB",
            rank=1,
            phase=Phase.BACKWARD,
        ),
        StoredAttempt(number=2, plan=second, ending=Ending.DISRUPTED, ended_s=1.7953e9),
        StoredAttempt(number=3, plan=second),
    )
    rows = list(attempt_rows(a_record(attempts=attempts)))
    assert [row.plan for row in rows] == [
        "4 devices",
        "4 devices, planned anew",
        "4 devices, the same plan",
    ]
    assert [row.ending for row in rows] == ["out-of-memory", "disrupted", "under way"]
    assert rows[0].what == "rank 1, backward: asked for 2 MiB"
    assert rows[0].ended == "2026-11-20 18:40:00 UTC"
    assert rows[2].ended == ""
    assert digest_of(first).startswith(rows[0].digest)


def test_what_it_rests_on_can_be_looked_up() -> None:
    """Digests whole, and every version that the fingerprint has."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    profile = ProfileStatus(request_key="key", source="measured", is_cached=True)
    record = replace(record, status=replace(record.status, profile=profile))
    facts = dict(provenance(record, plan))
    assert digest_of(plan) in facts["Plan"]
    assert record.uid in facts["TrainingPlan"]
    assert facts["Source of the workload"] == plan.fingerprint.source_digest
    assert "torch 2.15.0, transformers 5.23.0" in facts["Versions"]
    assert facts["Profile"] == "measured, from the store; request key"
    assert facts["Same code on every rank"].startswith("yes, ")


def test_foreign_code_is_said() -> None:
    """One rank of those that reported ran something else than was profiled."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    other = told_by(plan, 0, 1, fingerprint=a_fingerprint(torch_version="2.16.0"))
    record = replace(record, observations=(other, *record.observations[1:]))
    number = len(record.observations)
    facts = dict(provenance(record, plan))
    assert facts["Same code on every rank"] == (
        f"no, 1 of {number} reported another fingerprint"
    )


def test_without_a_plan_there_is_a_name() -> None:
    """And nothing of a plan that is not there."""
    facts = dict(provenance(a_record(answer=None, problem=None), None))
    assert "TrainingPlan" in facts
    assert "Plan" not in facts


def test_a_refusal_has_its_question_machines_and_code() -> None:
    """It rests on them as much as a plan does."""
    problem = a_question(200, limits=Limits(max_gpus=3), num_steps=1000)
    facts = dict(provenance(a_record(problem), None))
    assert facts["Machines"] == "h200-8, 200 B a device"
    assert facts["Question"] == (
        "MinimizeGPUs; batch of 8; 1,000 steps; 50% of the best rate per device, "
        "or more"
    )
    assert facts["Arguments"] == problem.profile.fingerprint.arguments
    late = replace(problem, objective=Objective(deadline_s=4000.0))
    assert "; deadline 66.7 min" in dict(question_facts(late))["Question"]
