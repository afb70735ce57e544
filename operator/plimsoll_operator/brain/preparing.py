"""The steps before an attempt: accepted, profiled, planned, certified.

In: a look. Out: what is said of the condition, with the actions that bring it about.
Called by `decide` while no attempt is open.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.spec import ProfilePolicy
from plimsoll_operator.api.status import Truth
from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    Solve,
    StartProfile,
    StartReplay,
    StoreProfile,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.brain.failures import RESPONSES
from plimsoll_operator.brain.said import Look, Said
from plimsoll_operator.brain.seen import Child, ChildKind, ChildState, Ending, Seen
from plimsoll_planner.records.solution import Infeasible, Termination

LEAST_S = 10.0
"""From one beginning to the next of something that is disrupted each time."""
STORE_AGAIN_S = 10.0
"""Until a store that could not be asked is asked again."""


def accepted(look: Look) -> Said:
    """Whether all that the spec names is there, and its image can train.

    What an image has is known from the process that was to profile in it.
    """
    if look.seen.complaint:
        return Said(
            truth=Truth.FALSE, reason="InvalidSpec", message=look.seen.complaint
        )
    child = look.seen.child(ChildKind.PROFILE, look.seen.profile_key)
    if child is not None and child.ending is Ending.INCOMPATIBLE:
        return failed(child, RESPONSES[child.ending].reason)
    return Said(truth=Truth.TRUE, reason="Valid", message=look.seen.remark)


def profiled(look: Look) -> Said:
    """Say whether there is a profile, and bring it about."""
    seen = look.seen
    if seen.store_fault:
        return Said(
            truth=Truth.UNKNOWN,
            reason="StoreUnavailable",
            message=seen.store_fault,
            actions=(WakeAt(at_s=look.now_s + STORE_AGAIN_S),),
        )
    said = profile_said(look)
    return replace(said, actions=(*clearing_others(seen), *said.actions))


def clearing_others(seen: Seen) -> tuple[Action, ...]:
    """Return what ends the profiling of what is not asked for any more."""
    return tuple(
        Clear(child=child)
        for child in seen.children
        if child.kind is ChildKind.PROFILE and child.subject != seen.profile_key
    )


def profile_said(look: Look) -> Said:
    """Say whether the profile that is asked for is there, and bring it about."""
    seen = look.seen
    child = seen.child(ChildKind.PROFILE, seen.profile_key)
    if seen.profile is not None and is_current(look):
        done = (child, *outdated_replays(look))
        clear = tuple(Clear(child=one) for one in done if one is not None)
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
    return of_child(look, child, "Profile", StoreProfile(child=child))


def is_current(look: Look) -> bool:
    """Tell whether the profile counts: nobody found other code since it was made.

    With the policy Always, one that was there before the plan does not. A replay that
    finds other code than a profile of this very plan is a fault, not news.
    """
    profile, latest = look.seen.profile, look.latest
    if profile is None:
        return False
    if profile.was_cached and look.spec.profile.policy is ProfilePolicy.ALWAYS:
        return False
    if not profile.is_of_this_code:
        return False
    if profile.was_cached and any(
        child.since_s > profile.made_s for child in foreign_replays(look)
    ):
        return False
    found_other_code = latest and latest.ending is Ending.FOREIGN_FINGERPRINT
    return not (latest and found_other_code and profile.made_s <= latest.ended_s)


def foreign_replays(look: Look) -> list[Child]:
    """Return replays that found other code than was profiled."""
    return [
        child
        for child in look.seen.children
        if child.kind is ChildKind.REPLAY and child.ending is Ending.FOREIGN_FINGERPRINT
    ]


def outdated_replays(look: Look) -> list[Child]:
    """Return those of them that a newer profile has answered."""
    made_s = look.seen.profile.made_s if look.seen.profile is not None else 0.0
    return [child for child in foreign_replays(look) if child.since_s <= made_s]


def clearing_replays(look: Look, wanted: str) -> tuple[Action, ...]:
    """Return what ends the replays of plans that nobody asks for any more.

    Those that found other code stay, until a newer profile has answered them.

    Args:
        look: what is looked at.
        wanted: digest of the plan that is replayed; empty where none is.
    """
    foreign = foreign_replays(look)
    return tuple(
        Clear(child=child)
        for child in look.seen.children
        if child.kind is ChildKind.REPLAY
        and child.subject != wanted
        and child not in foreign
    )


def again(child: Child, now_s: float) -> Action:
    """Clear away what was disrupted, so that it begins anew: not too soon each time."""
    at_s = child.started_s + LEAST_S
    return WakeAt(at_s=at_s) if child.started_s <= now_s < at_s else Clear(child=child)


def of_child(look: Look, child: Child, what: str, store: Action) -> Said:
    """Say where profiling or replaying stands.

    Args:
        look: what is looked at.
        child: it exists.
        what: opens the reason.
        store: puts its result into the store.
    """
    if child.state is ChildState.PENDING and look.is_late(child):
        return failed(child, f"{what}PendingTimeout")
    if child.state is ChildState.PENDING:
        return Said(
            truth=Truth.UNKNOWN,
            reason=f"{what}Pending",
            message=child.message,
            actions=(WakeAt(at_s=look.late_s(child)),),
        )
    if child.state is ChildState.RUNNING or child.ending is None:
        reason = "Profiling" if what == "Profile" else "Replaying"
        return Said(truth=Truth.UNKNOWN, reason=reason, message=child.message)
    if child.ending is Ending.DONE:
        return Said(truth=Truth.UNKNOWN, reason=f"{what}Stored", actions=(store,))
    if child.ending in (Ending.DISRUPTED, Ending.DELETED):
        return Said(
            truth=Truth.UNKNOWN,
            reason=f"{what}Disrupted",
            message=child.message,
            actions=(again(child, look.now_s),),
        )
    reason = {
        Ending.OUT_OF_MEMORY: f"{what}OOM",
        Ending.HOST_OUT_OF_MEMORY: f"{what}HostOOM",
        Ending.TIMED_OUT: f"{what}Timeout",
        Ending.BAD_WORKLOAD: "BadWorkload",
        Ending.ENTRY_POINT_OUT_OF_MEMORY: "EntryPointOutOfMemory",
        Ending.FOREIGN_FINGERPRINT: "ForeignFingerprint",
        Ending.INCOMPATIBLE: RESPONSES[Ending.INCOMPATIBLE].reason,
        Ending.NEVER_STARTED: f"{what}PendingTimeout",
    }.get(child.ending, f"{what}Failed")
    return failed(child, reason)


def failed(child: Child, reason: str) -> Said:
    """Say that profiling or replaying has failed for good, and clear it away."""
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
            message=found.headline,
            is_final=True,
        )
    if answer.termination is Termination.FIXED:
        message = "; ".join([found.headline, *answer.warnings])
        return Said(truth=Truth.TRUE, reason="Overridden", message=message)
    is_proof = answer.termination is Termination.OPTIMAL
    reason = "Proven" if is_proof else "Feasible"
    return Said(truth=Truth.TRUE, reason=reason, message=found.headline)


def skipped(said: Said) -> Said:
    """Go on without a replay, where nobody asks for one; its child stays as a mark."""
    return replace(
        said,
        truth=Truth.UNKNOWN,
        reason="Skipped",
        actions=(),
        is_final=False,
        goes_on=True,
    )


def certified(look: Look) -> Said:
    """Say whether the plan's replay agrees, and bring it about."""
    found = look.seen.answer
    if found is not None and found.is_certified:
        clear = clearing_replays(look, "")
        return Said(truth=Truth.TRUE, reason="Replayed", actions=clear)
    wanted = found.unreplayed if found is not None else ""
    said = replay_said(look)
    return replace(said, actions=(*clearing_replays(look, wanted), *said.actions))


def replay_said(look: Look) -> Said:
    """Say where the replay of a plan stands that is not certified, and replay it."""
    found = look.seen.answer
    must = look.spec.launch.require_certified
    if found is not None and found.has_replay:
        return Said(truth=Truth.UNKNOWN, reason="Comparing", actions=(Solve(),))
    if found is not None and found.unreplayed:
        child = look.seen.child(ChildKind.REPLAY, found.unreplayed)
        if child is None or child in outdated_replays(look):
            start = (StartReplay(digest=found.unreplayed),) if child is None else ()
            return Said(truth=Truth.UNKNOWN, reason="Replaying", actions=start)
        said = of_child(look, child, "Replay", StoreReplay(child=child))
        return said if must or not said.is_final else skipped(said)
    rounds = found.num_rounds if found is not None else 0
    return Said(
        truth=Truth.FALSE,
        reason="ReplayDisagrees",
        message=f"search and replay do not agree after {rounds} rounds",
        is_final=must,
        goes_on=not must,
    )
