"""Everything that a report shows, as plain data, wherever the plan ran.

In: what a state directory or a cluster has of one TrainingPlan. Out: a `RunRecord`,
which pages read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plimsoll_cli.state.liveness import Liveness
from plimsoll_cli.state.shown_plan import ShownPlan
from plimsoll_operator.api.reasons import DRY_RUN
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.observed_state import Ending, RecordedRevision
from plimsoll_operator.rules.revising import followed_plan
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.observation import Observation, of_plan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.vocabulary import IN_OPTIONS, IN_SPEC, Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRevision:
    """A revision of the plan of an attempt."""

    attempt: int
    recorded: RecordedRevision


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One TrainingPlan and what became of it."""

    name: str
    uid: str
    """Empty: a question of a command line, which nothing else keeps."""
    status: Status
    liveness: Liveness
    """Whether anything runs it now, and who watches."""
    problem: Problem | None
    """The question of the search; None before there is one."""
    answer: Solution | Infeasible | None
    """Its latest answer."""
    is_planned_anew: bool
    """The answer is newer than every attempt: the next one trains by it."""
    attempts: tuple[StoredAttempt, ...]
    """All of them, the oldest first."""
    revisions: tuple[AttemptRevision, ...] = ()
    """Of the plans of all attempts, the oldest first."""
    observations: tuple[Observation, ...]
    """Of the latest attempt by this plan that has any, by rank."""
    losses: tuple[tuple[int, float], ...]
    """Step and loss, in order of the steps."""
    saved_step: int | None
    """Of the newest checkpoint."""
    suspends: bool
    """The spec asks for it to stop."""
    unknown: tuple[str, ...] = ()
    """Parts that the place has nothing of, each with the reason."""

    @property
    def words(self) -> Vocabulary:
        """Names of fields for its reader: a question of a command line has options."""
        return IN_SPEC if self.uid else IN_OPTIONS

    @property
    def is_left(self) -> bool:
        """Whether it waits for somebody who goes on with it."""
        return not self.status.is_over and self.liveness is not Liveness.WATCHED

    @property
    def next_step(self) -> str:
        """Next action of `plimsoll run` on a plan that is left."""
        if self.liveness is Liveness.UNWATCHED:
            return "unwatched: its processes run, and `plimsoll run` finds them"
        if self.liveness is Liveness.ENDED:
            return "unwatched: its ranks have ended, and `plimsoll run` says how"
        accepted = self.status.condition(ConditionType.ACCEPTED)
        if accepted is not None and accepted.status is Truth.FALSE:
            return f"refused: {accepted.message}"
        run = "`plimsoll run`"
        if self.suspends:
            run = f"once spec.suspend is false, {run}"
        if not self.attempts:
            return f"nothing of it runs: {run} goes on"
        ending = self.attempts[-1].ending
        how = "interrupted" if ending is None else "stopped"
        if self.saved_step is None:
            return f"{how}: {run} begins again, for nothing is saved"
        place = "here" if ending is Ending.CHECKPOINTED else f"step {self.saved_step}"
        return f"{how}: {run} goes on from {place}"

    def problem_of(self, plan: HybridPlan) -> Problem | None:
        """The problem that a plan answers; None where it is of other code."""
        problem = self.problem
        if problem is None or problem.profile.fingerprint != plan.fingerprint:
            return None
        return problem

    @property
    def plan(self) -> HybridPlan | None:
        """The latest plan: the newest of record, or the answer's where that is newer.

        The one of record as it was revised while it ran. None if none fits by the
        latest answer, or if there is no answer.
        """
        if self.attempts and not self.is_planned_anew:
            latest = self.attempts[-1]
            mine = (r.recorded for r in self.revisions if r.attempt == latest.number)
            return followed_plan(latest.plan, tuple(mine))
        return self.answer.plan if isinstance(self.answer, Solution) else None


def planned_record(
    name: str, problem: Problem, answer: Solution | Infeasible
) -> RunRecord:
    """Record of a question that was answered without a TrainingPlan.

    It stands where a dry run does at its end, and has no uid.
    """
    fits = isinstance(answer, Solution)
    ended = Condition(
        type=ConditionType.SUCCEEDED,
        status=Truth.TRUE if fits else Truth.FALSE,
        reason=DRY_RUN if fits else "Infeasible",
    )
    return RunRecord(
        name=name,
        uid="",
        status=Status(conditions=(ended,)),
        liveness=Liveness.GONE,
        problem=problem,
        answer=answer,
        is_planned_anew=False,
        attempts=(),
        observations=(),
        losses=(),
        saved_step=None,
        suspends=False,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """Everything that a place has of a plan, before it is put together."""

    attempts: Sequence[StoredAttempt] = ()
    """The oldest first."""
    observed: Mapping[int, Sequence[Observation]] = field(
        default_factory=dict[int, Sequence[Observation]]
    )
    """Reports of ranks by attempt."""
    revisions: Sequence[AttemptRevision] = ()
    problem: Problem | None = None
    problem_digest: str = ""
    """Of that problem; empty where there is none."""
    answer: Solution | Infeasible | None = None
    losses: Mapping[int, float] = field(default_factory=dict[int, float])
    """By step."""
    saved_step: int | None = None
    unknown: Sequence[str] = ()


def record_from(plan: ShownPlan, found: Gathered) -> RunRecord:
    """The record of a plan."""
    attempts = tuple(found.attempts)
    planned_by = attempts[-1].problem_digest if attempts else ""
    has_answer = found.answer is not None and found.problem is not None
    record = RunRecord(
        name=plan.name,
        uid=plan.uid,
        status=plan.status,
        liveness=plan.liveness,
        problem=found.problem,
        answer=found.answer,
        is_planned_anew=has_answer and found.problem_digest != planned_by,
        attempts=attempts,
        revisions=tuple(found.revisions),
        observations=(),
        losses=tuple(sorted(found.losses.items())),
        saved_step=found.saved_step,
        suspends=plan.spec is not None and plan.spec.suspend,
        unknown=tuple(found.unknown),
    )
    if (shown := record.plan) is None:
        return record
    # Reports by another plan than the shown one have measured nothing about it.
    peaks = {
        number: [one for one in reports if one.peaks]
        for number, reports in found.observed.items()
    }
    mine = [tuple(of_plan(shown, peaks.get(one.number, []))) for one in attempts]
    return replace(record, observations=next(filter(None, reversed(mine)), ()))
