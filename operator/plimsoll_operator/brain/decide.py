"""Decides what is done next for one TrainingPlan, and what is said of it.

In: the spec, the status as it was said last, what is seen, the time. Out: actions and
a status. Pure and level-triggered: the same look gives the same decision, however often
it is asked for and whatever crashed in between. Called by the loop of either home.

    Accepted -> Profiled -> Planned -> Certified -> Launched -> Succeeded

Each condition is a step. A step that is not there yet says so and asks for what brings
it on; those behind it wait. While an attempt is open only the last two are looked at:
what it trains by is its plan of record, whatever was edited or lost since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from plimsoll_operator.api.spec import LaunchPolicy, ProfilePolicy, TrainingPlanSpec
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    RecordEnding,
    RecordPlan,
    Solve,
    StartProfile,
    StartReplay,
    StartTraining,
    StopTraining,
    StoreProfile,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.brain.failures import failures_of, given_up, next_start_s
from plimsoll_operator.brain.seen import (
    Attempt,
    Child,
    ChildKind,
    ChildState,
    Ending,
    Seen,
)
from plimsoll_operator.brain.summary import (
    alternatives_of,
    certificate_status,
    plan_status,
)
from plimsoll_planner.records.solution import Infeasible, Solution, Termination


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is done next, and what is said."""

    actions: tuple[Action, ...]
    status: Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a step looks at."""

    spec: TrainingPlanSpec
    seen: Seen
    now_s: float

    @property
    def latest(self) -> Attempt | None:
        """The newest attempt."""
        return self.seen.attempts[-1] if self.seen.attempts else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a step says of its condition."""

    truth: Truth
    reason: str
    message: str = ""
    actions: tuple[Action, ...] = ()
    is_final: bool = False
    """Nothing more is tried: the plan ends here."""
    goes_on: bool = False
    """The next step is looked at, also where this one is not True."""


def decide(
    spec: TrainingPlanSpec,
    status: Status,
    seen: Seen,
    *,
    generation: int,
    now_s: float,
) -> Decision:
    """Return what is done next for a plan, and what is said of it.

    Args:
        spec: what a person asks for.
        status: as it was said last.
        seen: a live look.
        generation: of the spec.
        now_s: seconds since 1970.
    """
    if status.is_over:
        return Decision(actions=clearing(seen), status=status)
    look = Look(spec=spec, seen=seen, now_s=now_s)
    now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = replace(
        status,
        observed_generation=generation,
        attempt=len(seen.attempts),
        failures=failures_of(seen.attempts),
        start_time=status.start_time or now,
    )
    actions: list[Action] = []
    for kind, step in steps_for(look):
        said = step(look)
        actions += said.actions
        told = told.saying(condition(kind, said, generation), now)
        if said.is_final and kind is not ConditionType.SUCCEEDED:
            told = told.saying(failed_by(said, generation), now)
        if said.is_final or not (said.truth is Truth.TRUE or said.goes_on):
            break
    told = with_answer(with_all_conditions(told, generation, now), seen)
    if told.is_over:
        told = replace(told, completion_time=now)
        actions = [a for a in actions if not isinstance(a, WakeAt)]
    return Decision(actions=tuple(actions), status=told)


Step = Callable[[Look], Said]


def steps_for(look: Look) -> list[tuple[ConditionType, Step]]:
    """Return the steps that are looked at, in order."""
    if look.latest is not None and look.latest.ending is None:
        return [
            (ConditionType.LAUNCHED, launched),
            (ConditionType.SUCCEEDED, succeeded),
        ]
    return [
        (ConditionType.SUCCEEDED, ended_before),
        (ConditionType.ACCEPTED, accepted),
        (ConditionType.PROFILED, profiled),
        (ConditionType.PLANNED, planned),
        (ConditionType.CERTIFIED, certified),
        (ConditionType.LAUNCHED, next_attempt),
    ]


def ended_before(look: Look) -> Said:
    """Say whether the latest attempt was the last one."""
    latest = look.latest
    if latest is None:
        return Said(truth=Truth.UNKNOWN, reason="Waiting", goes_on=True)
    clear = tuple(Clear(child=c) for c in look.seen.children if is_train(c))
    if latest.ending is Ending.DONE:
        return Said(truth=Truth.TRUE, reason="Trained", actions=clear, is_final=True)
    failure = given_up(look.spec, look.seen.attempts)
    if failure is not None:
        return Said(
            truth=Truth.FALSE,
            reason=failure.reason,
            message=failure.message,
            actions=clear,
            is_final=True,
        )
    return Said(
        truth=Truth.UNKNOWN,
        reason="TryingAgain",
        message=latest.message,
        actions=clear,
        goes_on=True,
    )


def accepted(look: Look) -> Said:
    """Say whether all that the spec names is there."""
    if look.seen.complaint:
        return Said(
            truth=Truth.FALSE, reason="InvalidSpec", message=look.seen.complaint
        )
    return Said(truth=Truth.TRUE, reason="Valid")


def profiled(look: Look) -> Said:
    """Say whether there is a profile, and bring it about."""
    seen = look.seen
    if not seen.is_store_up:
        return Said(truth=Truth.UNKNOWN, reason="StoreUnavailable")
    child = seen.child(ChildKind.PROFILE, seen.profile_key)
    if seen.profile is not None and is_current(look):
        clear = (Clear(child=child),) if child is not None else ()
        reason = "Cached" if seen.profile.was_cached else "Measured"
        if seen.profile.source == "traced" and not seen.profile.was_cached:
            reason = "Traced"
        return Said(truth=Truth.TRUE, reason=reason, actions=clear)
    if child is None and look.spec.profile.policy is ProfilePolicy.NEVER:
        return Said(
            truth=Truth.FALSE,
            reason="ProfileMissing",
            message="there is no profile, and profile.policy is Never",
            is_final=True,
        )
    if child is None:
        start = StartProfile(request_key=seen.profile_key)
        return Said(truth=Truth.UNKNOWN, reason="Profiling", actions=(start,))
    return of_child(child, "Profile", StoreProfile(child=child))


def is_current(look: Look) -> bool:
    """Tell whether the profile counts: no attempt found other code since it was made.

    With the policy Always, one that was there before the plan does not.
    """
    profile, latest = look.seen.profile, look.latest
    if profile is None:
        return False
    if profile.was_cached and look.spec.profile.policy is ProfilePolicy.ALWAYS:
        return False
    found_other_code = latest and latest.ending is Ending.FOREIGN_FINGERPRINT
    return not (latest and found_other_code and profile.made_s <= latest.ended_s)


def of_child(child: Child, what: str, store: Action) -> Said:
    """Say where profiling or replaying stands.

    Args:
        child: it exists.
        what: opens the reason.
        store: puts its result into the store.
    """
    if child.state is ChildState.PENDING:
        return Said(truth=Truth.UNKNOWN, reason=f"{what}Pending", message=child.message)
    if child.state is ChildState.RUNNING or child.ending is None:
        reason = "Profiling" if what == "Profile" else "Replaying"
        return Said(truth=Truth.UNKNOWN, reason=reason, message=child.message)
    if child.ending is Ending.DONE:
        return Said(truth=Truth.UNKNOWN, reason=f"{what}Stored", actions=(store,))
    if child.ending in (Ending.DISRUPTED, Ending.DELETED):
        again = Clear(child=child)
        return Said(
            truth=Truth.UNKNOWN,
            reason=f"{what}Disrupted",
            message=child.message,
            actions=(again,),
        )
    reason = {
        Ending.OUT_OF_MEMORY: f"{what}OOM",
        Ending.HOST_OUT_OF_MEMORY: f"{what}HostOOM",
        Ending.TIMED_OUT: f"{what}Timeout",
        Ending.BAD_WORKLOAD: "BadWorkload",
    }.get(child.ending, f"{what}Failed")
    return Said(
        truth=Truth.FALSE,
        reason=reason,
        message=child.message,
        actions=(Clear(child=child),),
        is_final=True,
    )


def planned(look: Look) -> Said:
    """Say whether a plan fits."""
    found = look.seen.answer
    if found is None:
        return Said(truth=Truth.UNKNOWN, reason="Solving", actions=(Solve(),))
    answer = found.answer
    if isinstance(answer, Infeasible):
        return Said(
            truth=Truth.FALSE,
            reason="Infeasible",
            message=answer.nearest_change,
            is_final=True,
        )
    if answer.termination is Termination.FIXED:
        message = "; ".join(answer.warnings)
        return Said(truth=Truth.TRUE, reason="Overridden", message=message)
    is_proof = answer.termination is Termination.OPTIMAL
    return Said(truth=Truth.TRUE, reason="Proven" if is_proof else "Feasible")


def certified(look: Look) -> Said:
    """Say whether the plan's replay agrees, and bring it about."""
    found = look.seen.answer
    if found is not None and found.is_certified:
        return Said(truth=Truth.TRUE, reason="Replayed")
    must = look.spec.launch.require_certified
    if found is not None and found.unreplayed:
        child = look.seen.child(ChildKind.REPLAY, found.unreplayed)
        if child is None:
            start = StartReplay(digest=found.unreplayed)
            return Said(truth=Truth.UNKNOWN, reason="Replaying", actions=(start,))
        said = of_child(child, "Replay", StoreReplay(child=child))
        if not said.is_final or must:
            return said
        return replace(
            said, truth=Truth.UNKNOWN, reason="Skipped", is_final=False, goes_on=True
        )
    rounds = found.num_rounds if found is not None else 0
    return Said(
        truth=Truth.FALSE,
        reason="ReplayDisagrees",
        message=f"search and replay do not agree after {rounds} rounds",
        is_final=must,
        goes_on=not must,
    )


def next_attempt(look: Look) -> Said:
    """Say why no gang runs yet, and write down the plan of the next one."""
    found = look.seen.answer
    if look.spec.launch.policy is LaunchPolicy.PLAN_ONLY:
        return Said(truth=Truth.FALSE, reason="PlanOnly", is_final=True)
    if look.spec.suspend:
        return Said(truth=Truth.FALSE, reason="Suspended")
    at_s = next_start_s(look.seen.attempts) if look.seen.attempts else 0.0
    if at_s > look.now_s:
        wake = (WakeAt(at_s=at_s),)
        return Said(truth=Truth.FALSE, reason="BackingOff", actions=wake)
    if found is None or isinstance(found.answer, Infeasible):
        return Said(truth=Truth.FALSE, reason="Waiting")
    record = RecordPlan(attempt=len(look.seen.attempts) + 1, plan=found.answer.plan)
    return Said(truth=Truth.FALSE, reason="Starting", actions=(record,))


def launched(look: Look) -> Said:
    """Say whether the gang of the open attempt was started, and start it."""
    attempt = look.seen.attempts[-1]
    child = look.seen.child(ChildKind.TRAIN, str(attempt.number))
    if child is None:
        if look.spec.suspend:
            return Said(truth=Truth.FALSE, reason="Suspended", goes_on=True)
        start = StartTraining(attempt=attempt.number)
        return Said(
            truth=Truth.FALSE, reason="Starting", actions=(start,), goes_on=True
        )
    if child.state is ChildState.PENDING:
        waited_s = look.now_s - child.since_s
        limit_s = look.spec.run_policy.pending_seconds
        stop = (StopTraining(attempt=attempt.number),) if waited_s > limit_s else ()
        return Said(
            truth=Truth.FALSE,
            reason="Pending",
            message=child.message,
            actions=(*stop, WakeAt(at_s=child.since_s + limit_s + 1)),
            goes_on=True,
        )
    return Said(truth=Truth.TRUE, reason="Started")


def succeeded(look: Look) -> Said:
    """Say how the open attempt goes; write down its end, stop it where asked."""
    attempt = look.seen.attempts[-1]
    child = look.seen.child(ChildKind.TRAIN, str(attempt.number))
    if child is None or child.state is ChildState.PENDING:
        return Said(truth=Truth.UNKNOWN, reason="Starting")
    limit_s = look.spec.run_policy.running_seconds
    until_s = look.now_s if child.state is ChildState.RUNNING else child.since_s
    is_late = limit_s is not None and until_s - child.started_s > limit_s
    if child.state is ChildState.RUNNING or child.ending is None:
        stop = StopTraining(attempt=attempt.number)
        if look.spec.suspend or is_late:
            reason = "Suspending" if look.spec.suspend else "DeadlineExceeded"
            return Said(truth=Truth.UNKNOWN, reason=reason, actions=(stop,))
        wake = () if limit_s is None else (WakeAt(at_s=child.started_s + limit_s + 1),)
        return Said(truth=Truth.UNKNOWN, reason="Running", actions=wake)
    was_late = is_late and child.ending is Ending.CHECKPOINTED
    ending = Ending.TIMED_OUT if was_late else child.ending
    record = RecordEnding(attempt=attempt.number, child=child, ending=ending)
    return Said(truth=Truth.UNKNOWN, reason="Ended", actions=(record,))


def is_train(child: Child) -> bool:
    """Tell whether a child is a gang of ranks."""
    return child.kind is ChildKind.TRAIN


def clearing(seen: Seen) -> tuple[Action, ...]:
    """Return what removes the children of a plan that is over."""
    return tuple(Clear(child=child) for child in seen.children)


def with_answer(status: Status, seen: Seen) -> Status:
    """Return the status with the plan that is trained by, or would be."""
    found = seen.answer.answer if seen.answer is not None else None
    if isinstance(found, Solution):
        plan = seen.attempts[-1].plan if seen.attempts else found.plan
        status = replace(
            status,
            plan=plan_status(plan, found.certificate.space.limits),
            certificate=certificate_status(found),
            alternatives=alternatives_of(found),
        )
    return status


def condition(kind: ConditionType, said: Said, generation: int) -> Condition:
    """Return what a step says as a condition."""
    return Condition(
        type=kind,
        status=said.truth,
        reason=said.reason,
        message=said.message[:1024],
        observed_generation=generation,
    )


def failed_by(said: Said, generation: int) -> Condition:
    """Return the summary where a step before it is the end; a dry run succeeds."""
    is_dry = said.reason == "PlanOnly"
    truth = Truth.TRUE if is_dry else Truth.FALSE
    return condition(ConditionType.SUCCEEDED, replace(said, truth=truth), generation)


def with_all_conditions(status: Status, generation: int, now: str) -> Status:
    """Return the status with every condition known: Unknown where nothing was said."""
    waiting = Said(truth=Truth.UNKNOWN, reason="Waiting")
    for kind in ConditionType:
        if status.condition(kind) is None:
            status = status.saying(condition(kind, waiting, generation), now)
    return status
