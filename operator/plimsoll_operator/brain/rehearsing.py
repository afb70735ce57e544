"""The rehearsal of a plan: its fullest rank on one device, before the others.

In: a look, and what the replay says of `Certified`. Out: the same with the rehearsal,
and the actions that bring it about. Called by `preparing`.

    launch.rehearse  Never                     what the replay says
                     IfDevice, and no device   what the replay says
    no result yet                              Rehearsing, in a child of its own
    it fits                                    Rehearsed
    out of memory    what is asked changes with it (`asking`), so another plan comes;
                     fixed by hand, or too often: RehearsalOOM
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.spec import Rehearse
from plimsoll_operator.api.status import Truth
from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    StartRehearsal,
    StoreRehearsal,
)
from plimsoll_operator.brain.child_steps import of_child
from plimsoll_operator.brain.failures import FIXED, UNFIXED
from plimsoll_operator.brain.said import Look, Said
from plimsoll_operator.brain.seen import Child, ChildKind, SeenAnswer

NO_DEVICE = "no device got free to rehearse on"


def rehearses(rehearse: Rehearse, *, has_device: bool) -> bool:
    """Whether a plan is rehearsed.

    Args:
        rehearse: what a person asks for.
        has_device: a device of the plan's kind is here.
    """
    is_wanted = rehearse is Rehearse.IF_DEVICE and has_device
    return is_wanted or rehearse is Rehearse.ALWAYS


def rehearsed(look: Look, said: Said) -> Said:
    """What is said of `Certified`, the rehearsal included.

    Args:
        look: what is looked at.
        said: of the replay.
    """
    found = look.seen.answer
    goes_on = said.truth is Truth.TRUE or said.goes_on
    is_wanted = rehearses(look.spec.launch.rehearse, has_device=look.seen.has_device)
    if found is None or not (goes_on and is_wanted and found.plan_digest):
        return with_actions(said, clearing(look, ""))
    result = found.rehearsal
    if result is None:
        return under_way(look, said, found)
    clear = clearing(look, "")
    if not result.fits:
        message = result.message + fixed_text(look)
        return Said(
            truth=Truth.FALSE,
            reason="RehearsalOOM",
            message=message,
            actions=(*said.actions, *clear),
            is_final=True,
        )
    if said.truth is not Truth.TRUE:  # the other ranks are as uncertain as before
        message = "; ".join(filter(None, (said.message, result.message)))
        return with_actions(replace(said, message=message), clear)
    return with_actions(
        replace(said, reason="Rehearsed", message=result.message), clear
    )


def under_way(look: Look, said: Said, found: SeenAnswer) -> Said:
    """The step while there is no result: it is brought about.

    A training that rests takes no device.
    """
    digest = found.plan_digest
    child = look.seen.child(ChildKind.REHEARSAL, digest)
    before = (*said.actions, *clearing(look, digest))
    if child is None and look.spec.suspend:
        return replace(said, actions=before)
    if child is None:
        start = StartRehearsal(digest=digest)
        return Said(truth=Truth.UNKNOWN, reason="Rehearsing", actions=(*before, start))
    now = of_child(look, child, "Rehearsal", StoreRehearsal(child=child))
    if is_without_device(look, now):
        # The child stays as a mark: without it the wait would begin again.
        message = "; ".join(filter(None, (said.message, NO_DEVICE)))
        return replace(said, message=message, actions=before)
    return replace(now, actions=(*before, *now.actions))


def is_without_device(look: Look, now: Said) -> bool:
    """Whether a rehearsal that may be left out found no device in time."""
    if_device = look.spec.launch.rehearse is Rehearse.IF_DEVICE
    return if_device and now.is_final and now.reason == "RehearsalPendingTimeout"


def clearing(look: Look, wanted: str) -> tuple[Action, ...]:
    """What ends rehearsals of plans that nobody asks for any more.

    Args:
        look: what is looked at.
        wanted: digest of the plan that is rehearsed; empty: none is.
    """
    return tuple(
        Clear(child=child)
        for child in look.seen.children
        if is_rehearsal(child) and child.subject != wanted
    )


def is_rehearsal(child: Child) -> bool:
    """Whether a child rehearses."""
    return child.kind is ChildKind.REHEARSAL


def with_actions(said: Said, actions: tuple[Action, ...]) -> Said:
    """A step with more to do."""
    return replace(said, actions=(*said.actions, *actions))


def fixed_text(look: Look) -> str:
    """What to do where a person fixed the plan that ran out; else empty."""
    if not look.is_fixed_by_hand:
        return ""
    fewest = look.fewest_unfixed
    return f"; {FIXED}" + (UNFIXED.format(fewest) if fewest else "")
