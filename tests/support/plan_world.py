"""A home made of memory: what a decision asks for is done at once, or crashes.

Tasks run for a while and end as a script says. Effects are those of the real homes:
asked for twice, they find what is there and do nothing. An attempt that ran out of
memory, or found other code, asks a new question, and so does a rehearsal that ran out
of memory: the search answers with another plan, which nobody has replayed yet. As in
the homes, the status is written down first, and what it decided is done then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial

from plimsoll_operator.api.spec import LaunchPolicy, Rehearse, TrainingPlanSpec
from plimsoll_operator.api.status import (
    CheckpointsStatus,
    ConditionType,
    ObservedStatus,
    Status,
    Truth,
)
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    RecordEnding,
    RecordPlan,
    Solve,
    StartProfile,
    StartRehearsal,
    StartReplay,
    StartTraining,
    StopTraining,
    StoreProfile,
    StoreRehearsal,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedAnswer,
    ObservedProfile,
    ObservedRehearsal,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.step_result import is_fixed_by_hand
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.solution import Infeasible, Solution

REQUEST_KEY = "request"
ANOTHER_PLAN = (Ending.OUT_OF_MEMORY, Ending.FOREIGN_FINGERPRINT)
"""Endings after which the question is another one."""
PASS_S = 1.0
"""Between two decisions."""


class CrashError(Exception):
    """The deciding process dies."""


@dataclass(kw_only=True)
class World:
    """One plan, its home and its store."""

    spec: TrainingPlanSpec
    answer: Solution | Infeasible
    """To the question as it is now, whether it was asked or not."""
    endings: dict[TaskKind, list[Ending]] = field(default_factory=dict)
    """Of the tasks of a kind, one after the other; then all are done."""
    crash_at: tuple[int, bool] | None = None
    """Before (False) or after (True) which effect, counted from 0."""
    status: Status = field(default_factory=Status)
    generation: int = 1
    now_s: float = 1.7e9
    profile: ObservedProfile | None = None
    is_outdated: bool = False
    """An attempt has found other code than the profile's, by the clock after it."""
    is_solved: bool = False
    replayed: set[str] = field(default_factory=set[str])
    """Digests of plans."""
    is_compared: bool = False
    """The search has taken the replay in."""
    has_device: bool = True
    """To rehearse on."""
    verdicts: list[bool] = field(default_factory=list[bool])
    """Whether rehearsed ranks fit, one after the other; then all do."""
    rehearsed: dict[str, bool] = field(default_factory=dict[str, bool])
    """By digest of the plan: whether its rank fitted."""
    attempts: list[StoredAttempt] = field(default_factory=list)
    tasks: dict[tuple[TaskKind, str], ObservedTask] = field(default_factory=dict)
    observed: dict[int, ObservedStatus] = field(
        default_factory=dict[int, ObservedStatus]
    )
    """Use of the ranks of each attempt, by its number."""
    checkpoints: CheckpointsStatus | None = None
    """Folder in which the ranks save."""
    num_effects: int = 0
    gangs: list[int] = field(default_factory=list)
    """Attempts whose worker group was started, in order."""
    started: list[tuple[TaskKind, float]] = field(
        default_factory=list[tuple[TaskKind, float]]
    )
    """Tasks, in order, each with the time."""
    reasons: list[str] = field(default_factory=list)
    """Of Succeeded and Launched, each as it was first written."""

    def seen(self) -> ObservedState:
        """Look."""
        found = None
        if self.is_solved and not self.is_open:
            waits = isinstance(self.answer, Solution) and not self.is_compared
            found = ObservedAnswer(
                answer=self.answer,
                headline=(
                    self.answer.nearest_change
                    if isinstance(self.answer, Infeasible)
                    else "1 device"
                ),
                unreplayed=self.digest if waits else "",
                has_replay=waits and self.is_replayed,
                is_certified=self.is_compared,
                num_rounds=int(self.is_compared),
                plan_digest=self.digest if self.may_rehearse else "",
                rehearsal=self.rehearsal,
            )
        return ObservedState(
            profile=self.profile,
            profile_key=REQUEST_KEY,
            has_device=self.has_device,
            answer=found,
            attempts=tuple(self.attempts),
            tasks=tuple(self.tasks.values()),
            checkpoints=self.checkpoints,
            observed=self.observed.get(len(self.attempts)),
        )

    @property
    def is_open(self) -> bool:
        """Whether the end of the latest attempt is not written down."""
        return bool(self.attempts) and self.attempts[-1].ending is None

    @property
    def digest(self) -> str:
        """Digest of the plan that is the answer now."""
        return (
            "" if isinstance(self.answer, Infeasible) else digest_of(self.answer.plan)
        )

    @property
    def is_replayed(self) -> bool:
        """Whether that plan was replayed."""
        return self.digest in self.replayed

    @property
    def may_rehearse(self) -> bool:
        """Whether rehearsals are looked at."""
        return self.spec.launch.rehearse is not Rehearse.NEVER

    @property
    def must_rehearse(self) -> bool:
        """Whether the plan that is the answer now is certified by its rehearsal."""
        return self.spec.launch.rehearse is Rehearse.ALWAYS

    @property
    def rehearsal(self) -> ObservedRehearsal | None:
        """Result of the rehearsal of that plan; None: it has no result."""
        fits = self.rehearsed.get(self.digest)
        if fits is None or not self.may_rehearse:
            return None
        return ObservedRehearsal(fits=fits, message="fits" if fits else "ran out")

    def live_gangs(self) -> list[str]:
        """Attempts whose ranks run now."""
        return [
            subject
            for (kind, subject), task in self.tasks.items()
            if kind is TaskKind.TRAIN and task.state is not TaskState.ENDED
        ]

    def run(
        self,
        most_passes: int = 1000,
        toggles: Sequence[int] = (),
        clock_steps: Mapping[int, float] | None = None,
    ) -> int:
        """Decide and act until nothing is left to do; return the passes.

        Args:
            most_passes: more than that is no convergence.
            toggles: passes at which somebody suspends the plan, or resumes it; in the
                end it is not suspended.
            clock_steps: passes after which the clock is set, and by how many seconds.
        """
        for passes in range(most_passes):
            is_settled = passes > max(toggles, default=-1)
            if passes in toggles or (is_settled and self.spec.suspend and toggles):
                self.spec = replace(self.spec, suspend=not self.spec.suspend)
            try:
                if not self.one_pass() and is_settled:
                    return passes
            except CrashError:
                self.crash_at = None
            assert len(self.live_gangs()) <= 1
            self.now_s += PASS_S + (clock_steps or {}).get(passes, 0.0)
            self.advance()
        raise AssertionError(f"not settled after {most_passes} passes: {self.status}")

    def one_pass(self) -> bool:
        """Whether anything was left to do; decides once and acts."""
        made = self.decided(self.status)
        again = self.decided(made.status)
        if not made.status.is_over:
            assert again == made  # the same look gives the same decision
        self.require_no_claims(made.status)
        changed = made.status != self.status
        if changed:
            self.effect(partial(self.save, made.status))
        for action in made.actions:
            self.effect(partial(self.act, action))
        for condition in made.status.conditions[-2:]:
            if condition.reason not in self.reasons:
                self.reasons.append(condition.reason)
        states = {task.state for task in self.tasks.values()}
        return changed or bool(made.actions) or TaskState.RUNNING in states

    def decided(self, status: Status) -> Decision:
        """Decide on what there is now."""
        return decide(
            self.spec,
            status,
            self.seen(),
            generation=self.generation,
            now_s=self.now_s,
        )

    def require_no_claims(self, status: Status) -> None:
        """A reported state is real: it can be seen in state directory and store now.

        What an attempt has begun with stands while it is open, and where it was the
        last one.
        """
        was_started = len(self.attempts) in self.gangs
        stands = self.is_open or self.is_ended(status)
        is_planned = self.is_solved and isinstance(self.answer, Solution)
        has_profile = self.profile is not None and not self.is_outdated
        fits = self.rehearsed.get(self.digest, not self.must_rehearse)
        is_so = {
            ConditionType.PROFILED: stands or has_profile,
            ConditionType.PLANNED: stands or is_planned,
            ConditionType.CERTIFIED: stands or (self.is_compared and fits),
            ConditionType.LAUNCHED: stands and was_started,
            ConditionType.SUCCEEDED: self.is_dry
            or (stands and self.attempts[-1].ending is Ending.DONE),
        }
        for kind, truth in is_so.items():
            assert truth or not status.holds(kind), kind
        assert status.attempt == len(self.attempts)
        if stands:
            assert status.plan is not None
            assert status.plan.digest == digest_of(self.attempts[-1].plan)
        self.require_observed(status)

    def is_ended(self, status: Status) -> bool:
        """Whether its latest attempt ended the plan, and not a step after that."""
        steps = (c for c in status.conditions if c.type is not ConditionType.SUCCEEDED)
        is_over = bool(self.attempts) and status.is_over
        return is_over and all(step.status is not Truth.FALSE for step in steps)

    def require_observed(self, status: Status) -> None:
        """The observed use stands beside the plan that used it, and nowhere else."""
        latest = self.attempts[-1] if self.attempts else None
        planned = status.plan.digest if status.plan is not None else ""
        is_of_plan = latest is not None and digest_of(latest.plan) == planned
        found = self.observed.get(len(self.attempts))
        assert status.observed == (found if is_of_plan else None)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is to be launched."""
        return self.spec.launch.policy is LaunchPolicy.PLAN_ONLY

    def save(self, status: Status) -> None:
        """Write down a status."""
        self.status = status

    def effect(self, act: Callable[[], None]) -> None:
        """Act, and crash where asked."""
        crash = self.crash_at
        if crash == (self.num_effects, False):
            raise CrashError
        act()
        self.num_effects += 1
        if crash == (self.num_effects - 1, True):
            raise CrashError

    def act(self, action: Action) -> None:
        """Do what is asked for; what is there already stays."""
        match action:
            case StartProfile(request_key=key):
                self.start(TaskKind.PROFILE, key)
            case StartReplay(digest=digest):
                self.start(TaskKind.REPLAY, digest)
            case StartRehearsal(digest=digest):
                self.start(TaskKind.REHEARSAL, digest)
            case StartTraining(attempt=number):
                self.gangs += [number] * self.start(TaskKind.TRAIN, str(number))
            case StopTraining(attempt=number):
                self.end((TaskKind.TRAIN, str(number)), Ending.CHECKPOINTED)
            case Clear(task=task):
                self.tasks.pop((task.kind, task.subject), None)
            case _:
                self.write(action)

    def write(self, action: Action) -> None:
        """Write to the store; what stands there stays."""
        match action:
            case StoreProfile():
                ends_s = (one.ended_s for one in self.attempts)
                self.is_outdated = False
                self.profile = ObservedProfile(
                    source="measured",
                    made_s=max(self.now_s, *(end_s + 1e-3 for end_s in ends_s), 0),
                    was_cached=False,
                )
            case StoreReplay(task=task):
                self.replayed.add(task.subject)
            case StoreRehearsal(task=task):
                self.store_rehearsal(task.subject)
            case Solve():
                self.is_solved, self.is_compared = True, self.is_replayed
            case RecordPlan(attempt=number, plan=plan):
                if number == len(self.attempts) + 1:
                    begun = StoredAttempt(
                        number=number,
                        plan=plan,
                        plan_digest=digest_of(plan),
                        recorded_s=self.now_s,
                    )
                    self.attempts.append(begun)
            case RecordEnding(attempt=number):
                self.record_ending(number, action)
            case _:
                assert isinstance(action, WakeAt)

    def store_rehearsal(self, digest: str) -> None:
        """Write down whether a rank fitted, once; where not, another plan is asked for.

        As often as a person allows, and unless they fixed the plan.
        """
        if digest in self.rehearsed:
            return
        fits = self.rehearsed[digest] = self.verdicts.pop(0) if self.verdicts else True
        num_failed = sum(not one for one in self.rehearsed.values())
        is_fixed = is_fixed_by_hand(self.spec, has_batch_statistics=False)
        if fits or is_fixed or num_failed > self.spec.run_policy.oom_replan_limit:
            return
        self.ask_anew()

    def record_ending(self, number: int, action: RecordEnding) -> None:
        """Write down how an attempt ended, once."""
        before = self.attempts[number - 1]
        if before.ending is None:
            self.attempts[number - 1] = replace(
                before,
                ending=action.ending,
                ended_s=self.now_s,
                generation=self.generation,
                message=action.task.message,
            )
            if action.ending in ANOTHER_PLAN:
                self.ask_anew()
                is_later = self.profile and self.profile.made_s <= self.now_s
                is_foreign = action.ending is Ending.FOREIGN_FINGERPRINT
                self.is_outdated = bool(is_later and is_foreign)

    def ask_anew(self) -> None:
        """Forget the answer; the next one is another plan."""
        self.is_solved = self.is_compared = False
        if isinstance(self.answer, Solution):
            plan = self.answer.plan
            another = replace(plan, revision=plan.revision + 1)
            self.answer = replace(self.answer, plan=another)

    def start(self, kind: TaskKind, subject: str) -> bool:
        """Start a task unless it is there."""
        if (kind, subject) in self.tasks:
            return False
        self.started.append((kind, self.now_s))
        self.tasks[kind, subject] = ObservedTask(
            kind=kind,
            subject=subject,
            state=TaskState.RUNNING,
            since_s=self.now_s,
            started_s=self.now_s,
        )
        return True

    def advance(self) -> None:
        """Let what runs come to its end."""
        for key, task in list(self.tasks.items()):
            if task.state is not TaskState.RUNNING:
                continue
            if task.kind is TaskKind.TRAIN:
                self.observe(int(task.subject))
            if task.since_s < self.now_s - 2:
                script = self.endings.get(task.kind, [])
                self.end(key, script.pop(0) if script else Ending.DONE)

    def observe(self, number: int) -> None:
        """Let the ranks of an attempt report what they use; no two use the same."""
        self.observed[number] = ObservedStatus(
            peak_bytes=2**20 + number, error_percent=Decimal(number)
        )

    def end(self, key: tuple[TaskKind, str], ending: Ending) -> None:
        """End a task that runs."""
        task = self.tasks.get(key)
        if task is not None and task.state is TaskState.RUNNING:
            self.tasks[key] = replace(
                task,
                state=TaskState.ENDED,
                since_s=self.now_s,
                ending=ending,
                message=f"ended by {ending}",
            )
