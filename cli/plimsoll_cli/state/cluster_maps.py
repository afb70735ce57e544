"""Everything about a plan that its ConfigMaps on a cluster hold.

In: a plan, and the ConfigMaps of its namespace that are labelled with its name. Out: a
`Gathered`, as `gather` makes one of a state directory. What is not there, or cannot be
read, is a line of `unknown`. Called by `cluster`.

    <plan>-plan-N, -result-N      attempts; what their ranks reported
    <plan>-reports-..             the same of ranks that run
    <plan>-question-.., -answer-..    the search
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from plimsoll_cli.state.run_record import AttemptRevision, Gathered
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import Object
from plimsoll_operator.names import ATTEMPT_LABEL, SUBJECT_ANNOTATION
from plimsoll_operator.objects.manifests import PLAN_OF_RECORD, RESULT
from plimsoll_operator.objects.page_maps import (
    ANSWER,
    QUESTION,
    RECORDED,
    REPORTS,
    document_in,
    note_of,
    purpose_of,
)
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.rank_reports import RankReports
from plimsoll_operator.objects.record_maps import attempts_in, note, plan_in
from plimsoll_operator.rules.observed_state import Attempt
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution


@dataclass
class MapReader:
    """Reads the ConfigMaps of one plan."""

    maps: Sequence[Object]
    """Those that the plan owns."""
    unknown: list[str] = field(default_factory=list[str])
    """Lines on parts that cannot be read, each with its reason."""

    def of_kind(self, kind: str) -> list[Object]:
        """Those for one purpose, the latest first."""
        found = [one for one in self.maps if purpose_of(one) == kind]
        return sorted(found, key=lambda one: note_of(one, RECORDED), reverse=True)

    def of_attempt(self, kind: str, number: int) -> Object | None:
        """That of an attempt."""
        return next(
            (
                one
                for one in self.of_kind(kind)
                if one["metadata"]["labels"].get(ATTEMPT_LABEL) == str(number)
            ),
            None,
        )

    def document(
        self,
        found: Mapping[str, Any],
        what: str,
        *kinds: type[Document],
        whose: str = "its",
    ) -> Document | None:
        """The document in a ConfigMap; None, and a line, where it has none."""
        try:
            return document_in(found, what, *kinds)
        except InvalidInputError as error:
            name = found["metadata"]["name"]
            self.unknown.append(f"{whose} {what} (ConfigMap {name}): {error}")
            return None


def gathered(plan: PlanObject, maps: Sequence[Object]) -> Gathered:
    """Everything that the ConfigMaps of a plan hold.

    Raises:
        ClusterError: somebody has changed those of an attempt.
    """
    reader = MapReader(plan.owner.own(maps))
    attempts = [
        stored
        for attempt in attempts_in(reader.maps)
        if (stored := stored_attempt(reader, attempt)) is not None
    ]
    observed: dict[int, Sequence[Observation]] = {}
    revisions: list[AttemptRevision] = []
    for attempt in attempts:
        reports = reports_of(reader, attempt)
        if reports is not None:
            observed[attempt.number] = reports.observations
            revisions += [
                AttemptRevision(attempt=attempt.number, recorded=one)
                for one in reports.recorded
            ]
    problem, answer, digest = answer_of(reader, is_planned=plan.status.plan is not None)
    if attempts:
        reader.unknown.append(of_logs(plan))
    return Gathered(
        attempts=attempts,
        observed=observed,
        revisions=revisions,
        problem=problem,
        problem_digest=digest,
        answer=answer,
        unknown=reader.unknown,
    )


def stored_attempt(reader: MapReader, attempt: Attempt) -> StoredAttempt | None:
    """An attempt with its plan of record; None, and a line, where that is lost."""
    found = reader.of_attempt(PLAN_OF_RECORD, attempt.number)
    assert found is not None  # noqa: S101 - the attempt was read from it
    try:
        plan = plan_in(found)
    except ClusterError as error:
        reader.unknown.append(f"attempt {attempt.number}: {error}")
        return None
    known = {one.name: getattr(attempt, one.name) for one in fields(attempt)}
    return StoredAttempt(**known, plan=plan)


def reports_of(reader: MapReader, attempt: Attempt) -> RankReports | None:
    """Reports of the ranks of an attempt; None before there are any."""
    found = reader.of_attempt(RESULT, attempt.number)
    if found is None:
        wanted, running = str(attempt.number), reader.of_kind(REPORTS)
        mine = (one for one in running if note_of(one, note("attempt")) == wanted)
        found = next(mine, None)
    if found is None:
        return None
    whose = f"attempt {attempt.number}: its"
    made = reader.document(found, REPORTS, RankReports, whose=whose)
    return made if isinstance(made, RankReports) else None


def answer_of(
    reader: MapReader, *, is_planned: bool
) -> tuple[Problem | None, Solution | Infeasible | None, str]:
    """The latest question that is answered, its answer, the digest of the question."""
    answers = reader.of_kind(ANSWER)
    if not answers:
        if is_planned:
            text = "its question and answer: no ConfigMap of the plan has them; it was "
            reader.unknown.append(
                f"{text}planned by an operator of an earlier release, or they were "
                "deleted"
            )
        return None, None, ""
    digest = note_of(answers[0], note("problem-digest"))
    made = reader.document(answers[0], ANSWER, Solution, Infeasible)
    answer = made if isinstance(made, Solution | Infeasible) else None
    for one in reader.of_kind(QUESTION):
        if note_of(one, SUBJECT_ANNOTATION) == digest:
            asked = reader.document(one, QUESTION, Problem)
            return (asked if isinstance(asked, Problem) else None), answer, digest
    reader.unknown.append(f"its {QUESTION}: no ConfigMap of the plan has it")
    return None, answer, digest


def of_logs(plan: PlanObject) -> str:
    """Line on what ranks write to their logs, and to a claim, alone."""
    owner = plan.owner
    what = "the loss of each step: ranks write it to their logs"
    if plan.checkpoints is not None:
        what = (
            "the loss of each step and the newest checkpoint: ranks write them to "
            "their logs and their claim"
        )
    return (
        f"{what}; `kubectl logs -n {owner.namespace} -c trainer -l "
        f"plimsoll.dev/plan={owner.name},plimsoll.dev/child=train`"
    )
