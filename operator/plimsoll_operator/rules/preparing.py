"""The steps before an attempt: accepted, profiled, planned, certified.

In: a look. Out: what is said of the condition, with the actions that bring it about.
Called by `decide` while no attempt is open.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.spec import ProfilePolicy
from plimsoll_operator.api.status import Truth
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    Solve,
    StartProfile,
    StartReplay,
    StoreProfile,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.rules.child_steps import (
    clearing,
    failed,
    foreign_children,
    of_child,
    outdated_children,
)
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import ChildKind, Ending, ObservedState
from plimsoll_operator.rules.rehearsing import rehearsed
from plimsoll_operator.rules.step_result import Look, Said, joined
from plimsoll_planner.records.solution import Infeasible, Termination

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


def clearing_others(seen: ObservedState) -> tuple[Action, ...]:
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
        done = (child, *outdated_children(look))
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

    With the policy Always, one that was there before the plan does not. A replay or a
    rehearsal that finds other code than a profile of this very plan is a fault, not
    news.
    """
    profile, latest = look.seen.profile, look.latest
    if profile is None:
        return False
    if profile.was_cached and look.spec.profile.policy is ProfilePolicy.ALWAYS:
        return False
    if not profile.is_of_this_code:
        return False
    if profile.was_cached and any(
        child.since_s > profile.made_s for child in foreign_children(look)
    ):
        return False
    found_other_code = latest and latest.ending is Ending.FOREIGN_FINGERPRINT
    return not (latest and found_other_code and profile.made_s <= latest.ended_s)


def planned(look: Look) -> Said:
    """Say whether a plan fits."""
    found = look.seen.answer
    if found is None:
        return Said(
            truth=Truth.UNKNOWN,
            reason="Solving",
            message=look.seen.refuted,
            actions=(Solve(),),
        )
    answer = found.answer
    if isinstance(answer, Infeasible):
        return Said(
            truth=Truth.FALSE,
            reason="Infeasible",
            message=joined(found.headline, look.seen.refuted),
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
    """Say whether the plan's replay agrees and its rehearsal fits; bring them about."""
    found = look.seen.answer
    if found is not None and found.is_certified:
        clear = clearing(look, ChildKind.REPLAY, "")
        said = Said(truth=Truth.TRUE, reason="Replayed", actions=clear)
    else:
        wanted = found.unreplayed if found is not None else ""
        said = replay_said(look)
        said = replace(
            said, actions=(*clearing(look, ChildKind.REPLAY, wanted), *said.actions)
        )
    return rehearsed(look, said)


def replay_said(look: Look) -> Said:
    """Say where the replay of a plan stands that is not certified, and replay it."""
    found = look.seen.answer
    must = look.spec.launch.require_certified
    if found is not None and found.has_replay:
        return Said(truth=Truth.UNKNOWN, reason="Comparing", actions=(Solve(),))
    if found is not None and found.unreplayed:
        child = look.seen.child(ChildKind.REPLAY, found.unreplayed)
        if child is None or child in outdated_children(look):
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
