"""The table of failures: the response to each end of an attempt.

In: the attempts so far and the limits of a person. Out: go on, wait, or give up, and
with which reason. Called by `decide`. Counts are of attempts whose end is written down,
so that a crash counts nothing twice, and since the latest edit of the spec: whoever
edits it, or runs what has failed again, has seen what went wrong.

    ended by               counts as       at most                  goes on by
    ----------------------------------------------------------------------------------
    device out of memory   out of memory   runPolicy.oomReplanLimit  another plan
    host out of memory     application     runPolicy.backoffLimit    with more of it
    application error      application     runPolicy.backoffLimit    trying again
    deleted by a person    application     runPolicy.backoffLimit    trying again
    disruption             disruption      no limit                  again, with pauses
    asked to stop          nothing         no limit                  resuming
    foreign fingerprint    nothing         once                      profiling again
    unusable checkpoint                    never                     -
    unequal replicas                       never                     -
    loss not finite                        never                     -
    entry point too large                  never                     -
    never started                          never                     -
    incompatible torch                     never                     -
    bad workload, deadline                 never                     -
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from plimsoll_operator.api.status import FALSE, Failures
from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_operator.rules.step_result import StepInput, StepResult

FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 300.0
"""Before an application's error is tried again; doubled each time."""
SOON_S, SOON_AT_ONCE = 60.0, 2
"""Disruptions that come sooner than this after the start of an attempt, so many in a
row, are tried again at once; later ones after the pauses above."""
FOREIGN_LIMIT = 1
FIXED = "what spec.override fixes is not planned around: take it away, or fix less"
UNFIXED = "; without it {} GPUs are proven to be the fewest"


class Kind(StrEnum):
    """Kinds of endings, by which they are counted."""

    APPLICATION = "application"
    OUT_OF_MEMORY = "out of memory"
    DISRUPTION = "disruption"
    FOREIGN = "foreign"
    STOPPED = "stopped"
    FINAL = "final"


class Response(NamedTuple):
    """One row of the table."""

    reason: str
    """As conditions give it."""
    kind: Kind


RESPONSES: Mapping[Ending | None, Response] = {
    Ending.OUT_OF_MEMORY: Response("GPUOutOfMemory", Kind.OUT_OF_MEMORY),
    Ending.HOST_OUT_OF_MEMORY: Response("HostOOMKilled", Kind.APPLICATION),
    Ending.APPLICATION_ERROR: Response("AppError", Kind.APPLICATION),
    Ending.DELETED: Response("ChildDeleted", Kind.APPLICATION),
    Ending.DISRUPTED: Response("Disrupted", Kind.DISRUPTION),
    Ending.CHECKPOINTED: Response("Suspended", Kind.STOPPED),
    Ending.FOREIGN_FINGERPRINT: Response("ForeignFingerprint", Kind.FOREIGN),
    Ending.BAD_WORKLOAD: Response("BadWorkload", Kind.FINAL),
    Ending.INCOMPATIBLE: Response("TrainerIncompatible", Kind.FINAL),
    Ending.UNUSABLE_CHECKPOINT: Response("UnusableCheckpoint", Kind.FINAL),
    Ending.UNEQUAL_REPLICAS: Response("UnequalReplicas", Kind.FINAL),
    Ending.NO_LOSS: Response("NoLoss", Kind.FINAL),
    Ending.ENTRY_POINT_OUT_OF_MEMORY: Response("EntryPointOutOfMemory", Kind.FINAL),
    Ending.DEVICE_BUSY: Response("AppError", Kind.APPLICATION),
    Ending.TIMED_OUT: Response("DeadlineExceeded", Kind.FINAL),
    Ending.NEVER_STARTED: Response("PendingTimeout", Kind.FINAL),
}
"""By ending; there is none to an attempt that is open, or done."""


def count(attempts: tuple[Attempt, ...], kind: Kind) -> int:
    """Number of attempts that ended in one way."""
    responses = [RESPONSES.get(attempt.ending) for attempt in attempts]
    return sum(one is not None and one.kind is kind for one in responses)


def failures_of(attempts: tuple[Attempt, ...]) -> Failures:
    """The counts that the status shows."""
    return Failures(
        application=count(attempts, Kind.APPLICATION),
        out_of_memory=count(attempts, Kind.OUT_OF_MEMORY),
        disruption=count(attempts, Kind.DISRUPTION),
    )


def given_up(given: StepInput) -> StepResult | None:
    """The failure of a plan after its latest attempt, None to go on.

    What a person fixed is never planned around: it runs out of memory once.
    """
    attempts = given.counted
    response = RESPONSES.get(attempts[-1].ending) if attempts else None
    if response is None:
        return None
    latest = attempts[-1]
    if response.kind is Kind.OUT_OF_MEMORY and given.is_fixed_by_hand:
        message = f"{latest.message}; {fixed_text(given)}"
        return StepResult(FALSE, response.reason, message, is_final=True)
    limit = {
        Kind.APPLICATION: given.spec.run_policy.backoff_limit,
        Kind.OUT_OF_MEMORY: given.spec.run_policy.oom_replan_limit,
        Kind.FOREIGN: FOREIGN_LIMIT,
        Kind.FINAL: 0,
    }.get(response.kind)
    number = count(attempts, response.kind)
    if limit is None or number <= limit:
        return None
    tried = f" ({number} of this kind; at most {limit} are tried again)"
    message = latest.message + (tried if limit else "")
    return StepResult(FALSE, response.reason, message, is_final=True)


def fixed_text(given: StepInput) -> str:
    """Why nothing is planned around what a person fixed, and what to do."""
    fewest = given.fewest_unfixed
    return FIXED + (UNFIXED.format(fewest) if fewest else "")


def next_start_s(attempts: tuple[Attempt, ...], now_s: float) -> float:
    """Earliest start of the next attempt; 0 if it may start at once.

    A clock that was set back since the latest one ended delays nothing.
    """
    if not attempts or now_s < attempts[-1].ended_s:
        return 0.0
    latest = attempts[-1]
    response = RESPONSES.get(latest.ending)
    if response is not None and response.kind is Kind.APPLICATION:
        return latest.ended_s + pause_s(count(attempts, Kind.APPLICATION))
    if response is not None and response.kind is Kind.DISRUPTION:
        return latest.ended_s + pause_s(soon_disrupted(attempts) - SOON_AT_ONCE)
    return 0.0


def pause_s(number: int) -> float:
    """Seconds to wait after a failure, by its number from 1 on."""
    return min(FIRST_WAIT_S * 2.0 ** (number - 1), LONGEST_WAIT_S) if number > 0 else 0


def soon_disrupted(attempts: tuple[Attempt, ...]) -> int:
    """Number of the latest attempts, in a row, that were disrupted soon."""
    was_soon = (
        one.ending is Ending.DISRUPTED and one.ended_s - one.recorded_s < SOON_S
        for one in reversed(attempts)
    )
    return sum(1 for _ in takewhile(bool, was_soon))
