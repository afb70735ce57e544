"""The rehearsal of a plan: its fullest rank on one device, before the others.

In: a look, and what the replay says of `Certified`. Out: the same with the rehearsal,
and the actions that bring it about. Called by `preparing`.

    launch.rehearse  Never                     what the replay says
                     IfDevice, and no device,  what the replay says
                     a busy one, or the plan
                     was tried
    no result yet                              Rehearsing, in a child of its own
    it fits                                    Rehearsed
    out of memory    what is asked changes with it (`asking`), so another plan comes;
                     fixed by hand, or too often: RehearsalOOM
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.reasons import WAITING
from plimsoll_operator.api.spec import Rehearse
from plimsoll_operator.api.status import Truth
from plimsoll_operator.rules.actions import Action, StartRehearsal, StoreRehearsal
from plimsoll_operator.rules.child_steps import (
    clearing,
    of_child,
    outdated_children,
)
from plimsoll_operator.rules.failures import FIXED, UNFIXED
from plimsoll_operator.rules.observed_state import (
    ChildKind,
    Ending,
    ObservedAnswer,
    ObservedRehearsal,
)
from plimsoll_operator.rules.step_result import Look, Said, joined
from plimsoll_planner.explain import counted

NO_DEVICE = "no device got free to rehearse on"
LEFT_OUT = ("RehearsalPendingTimeout", "RehearsalDeviceBusy")
"""Reasons for which a plan goes on without a rehearsal under `IfDevice`."""


def rehearsed(look: Look, said: Said) -> Said:
    """What is said of `Certified`, the rehearsal included.

    Args:
        look: what is looked at.
        said: of the replay.
    """
    found = look.seen.answer
    goes_on = said.truth is Truth.TRUE or said.goes_on
    if found is None or not (goes_on and found.plan_digest):
        return with_actions(said, clearing(look, ChildKind.REHEARSAL, ""))
    result = found.rehearsal
    if result is None and is_wanted(look, found.plan_digest):
        return under_way(look, said, found)
    said = with_actions(said, clearing(look, ChildKind.REHEARSAL, ""))
    return said if result is None else with_result(look, said, result)


def is_wanted(look: Look, digest: str) -> bool:
    """Whether a plan without a result is to be rehearsed.

    Where a device is used only if it is free, a plan that was launched before says more
    than its rehearsal would.

    Args:
        look: what is looked at.
        digest: of the plan.
    """
    rehearse, seen = look.spec.launch.rehearse, look.seen
    was_tried = any(one.plan_digest == digest for one in seen.attempts)
    if_device = rehearse is Rehearse.IF_DEVICE and seen.has_device and not was_tried
    return if_device or rehearse is Rehearse.ALWAYS


def with_result(look: Look, said: Said, result: ObservedRehearsal) -> Said:
    """What is said of `Certified` with the result of the rehearsal.

    Args:
        look: what is looked at.
        said: of the replay.
        result: of the rehearsal.
    """
    if not result.fits:
        return Said(
            truth=Truth.FALSE,
            reason="RehearsalOOM",
            message=f"{result.message}; {no_other_plan(look)}",
            actions=said.actions,
            is_final=True,
        )
    message = joined(said.message, result.message, look.seen.refuted)
    if said.truth is not Truth.TRUE:  # the other ranks are as uncertain as before
        return replace(said, message=message)
    return replace(said, reason="Rehearsed", message=message)


def under_way(look: Look, said: Said, found: ObservedAnswer) -> Said:
    """The step while there is no result: it is brought about.

    A training that rests takes no device.
    """
    digest = found.plan_digest
    child = look.seen.child(ChildKind.REHEARSAL, digest)
    before = (*said.actions, *clearing(look, ChildKind.REHEARSAL, digest))
    if child is None and look.spec.suspend:
        return Said(
            truth=Truth.UNKNOWN,
            reason=WAITING,
            message="the rehearsal waits while the plan is suspended",
            actions=before,
            goes_on=True,
        )
    if child is None or child in outdated_children(look):
        start = (StartRehearsal(digest=digest),) if child is None else ()
        return Said(truth=Truth.UNKNOWN, reason="Rehearsing", actions=(*before, *start))
    now = of_child(look, child, "Rehearsal", StoreRehearsal(child=child))
    if is_without_device(look, now):
        # The child stays as a mark: without it the wait would begin again.
        is_busy = child.ending is Ending.DEVICE_BUSY
        why = f"not rehearsed: {child.message}" if is_busy else NO_DEVICE
        message = joined(said.message, why)
        return replace(said, message=message, actions=before)
    return replace(now, actions=(*before, *now.actions))


def is_without_device(look: Look, now: Said) -> bool:
    """Whether a rehearsal that may be left out found no device to itself in time."""
    if_device = look.spec.launch.rehearse is Rehearse.IF_DEVICE
    return if_device and now.is_final and now.reason in LEFT_OUT


def with_actions(said: Said, actions: tuple[Action, ...]) -> Said:
    """A step with more to do."""
    return replace(said, actions=(*said.actions, *actions))


def no_other_plan(look: Look) -> str:
    """Why no other plan is looked for, and what to do."""
    if look.is_fixed_by_hand:
        fewest = look.fewest_unfixed
        return FIXED + (UNFIXED.format(fewest) if fewest else "")
    limit = look.spec.run_policy.oom_replan_limit
    return (
        f"runPolicy.oomReplanLimit lets {counted(limit, 'other plan')} be looked for: "
        "raise it, or use devices with more memory"
    )
