"""What exit codes mean together: one rank's failure takes the others with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_operator.rules.endings import ending_of
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_planner.records.task import End, Exit

LOST = "plimsoll: rank 1: another rank went away in forward: the first rank .."
OWN = "plimsoll: rank 0: forward: ValueError: no sample at own.py:7"
KILL, TERM, SEGV = -9, -15, -11


def end(*statuses: int, by_keeper: tuple[int, ...] = (), **fields: bool | int) -> End:
    """Make an end."""
    exits = tuple(
        Exit(status=status, by_keeper=place in by_keeper)
        for place, status in enumerate(statuses)
    )
    return End(at_s=1.0, exits=exits, **fields)  # type: ignore[arg-type]


def saying(found: End, said: tuple[str, ...]) -> End:
    """End of processes that have said something last."""
    pairs = zip(found.exits, said, strict=True)
    return replace(found, exits=tuple(replace(one, said=line) for one, line in pairs))


EARLY = "plimsoll: rank 0: stopped early, after step 6 of 50: no better since"


def test_an_early_stop_is_done_and_says_so() -> None:
    """No other line of ranks that are done counts."""
    early = saying(end(0, 0), (EARLY, "trained weights: weights"))
    assert ending_of(early) == (Ending.DONE, EARLY)
    assert ending_of(saying(end(0), ("evaluation: 3",))) == (Ending.DONE, "")


@pytest.mark.parametrize(
    ("found", "said", "ending"),
    [
        (end(0, 0), ("", ""), Ending.DONE),
        (end(0, 0), (EARLY, ""), Ending.DONE),
        (end(83, 1), ("plimsoll: rank 0: full", LOST), Ending.OUT_OF_MEMORY),
        (end(1, 83), (LOST, "plimsoll: rank 1: full"), Ending.OUT_OF_MEMORY),
        (end(81, 81), ("other code", "other code"), Ending.FOREIGN_FINGERPRINT),
        (end(82), ("no workload",), Ending.BAD_WORKLOAD),
        (end(1, 88), (LOST, "too old"), Ending.INCOMPATIBLE),
        (end(89), ("others have 5 GiB of the device",), Ending.DEVICE_BUSY),
        (end(90, 90), ("no room", "no room"), Ending.HOST_OUT_OF_MEMORY),
        (end(85), ("it is broken",), Ending.UNUSABLE_CHECKPOINT),
        (end(86, 86), ("they differ", "they differ"), Ending.UNEQUAL_REPLICAS),
        (end(1, 91), (LOST, "the loss is nan"), Ending.NO_LOSS),
        (end(87, 83), ("too large", "full"), Ending.ENTRY_POINT_OUT_OF_MEMORY),
        (end(84, 84), ("", ""), Ending.CHECKPOINTED),
        (end(0, 84), ("", ""), Ending.CHECKPOINTED),
        (
            end(TERM, KILL, by_keeper=(1,), was_stopped=True),
            ("", ""),
            Ending.DISRUPTED,
        ),
        (
            end(84, KILL, by_keeper=(1,), was_stopped=True),
            ("", ""),
            Ending.CHECKPOINTED,
        ),
        (end(TERM, 1, was_stopped=True), ("", LOST), Ending.DISRUPTED),
        (end(KILL, 1), ("", LOST), Ending.DISRUPTED),
        (end(TERM, 1), ("", LOST), Ending.DISRUPTED),
        (end(KILL, 1, host_was_full=True), ("", LOST), Ending.HOST_OUT_OF_MEMORY),
        (end(TERM, 1, host_was_full=True), ("", LOST), Ending.DISRUPTED),
        (end(1, 1, first=0), (OWN, LOST), Ending.APPLICATION_ERROR),
        (end(1, 1, first=0), (LOST, OWN), Ending.APPLICATION_ERROR),
        (end(1, 1, first=1), (LOST, LOST), Ending.APPLICATION_ERROR),
        (end(SEGV, 1, first=0), ("", LOST), Ending.APPLICATION_ERROR),
        (end(1, 84, was_stopped=True), (OWN, ""), Ending.APPLICATION_ERROR),
        (end(KILL, by_keeper=(0,), was_late=True), ("",), Ending.TIMED_OUT),
    ],
)
def test_what_exit_codes_mean(
    found: End, said: tuple[str, ...], ending: Ending
) -> None:
    """The reserved code of any rank decides, then what a rank failed of by itself."""
    assert ending_of(saying(found, said))[0] is ending


def test_the_line_is_that_of_the_rank_that_failed_by_itself() -> None:
    """Not of one that lost it, though that one ended first."""
    _, message = ending_of(saying(end(1, 1, first=0), (LOST, OWN)))
    assert message == OWN


def test_a_signal_has_its_name() -> None:
    """A process that broke down says nothing itself."""
    _, message = ending_of(end(SEGV, first=0))
    assert message == "process 0 was ended by SIGSEGV"
