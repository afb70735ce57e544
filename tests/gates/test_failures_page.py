"""docs/failures.md knows every way in which a plan can wait, fail and end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from plimsoll_operator.api.reasons import REASONS, WAITING
from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.rules.failures import RESPONSES, Kind
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_planner.exit_codes import ExitCode

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
COUNTS: Final[Mapping[Kind, str]] = {
    Kind.APPLICATION: "`backoffLimit`",
    Kind.OUT_OF_MEMORY: "`oomReplanLimit`",
    Kind.DISRUPTION: "nothing",
    Kind.STOPPED: "nothing",
    Kind.FOREIGN: "once",
    Kind.FINAL: "ends the plan",
}
NEVER_AN_END = (Kind.DISRUPTION, Kind.STOPPED)
SUMMARY = ConditionType.SUCCEEDED
CODES = {
    Ending.FOREIGN_FINGERPRINT: ExitCode.FOREIGN_FINGERPRINT,
    Ending.BAD_WORKLOAD: ExitCode.BAD_WORKLOAD,
    Ending.INCOMPATIBLE: ExitCode.INCOMPATIBLE,
    Ending.OUT_OF_MEMORY: ExitCode.DEVICE_OUT_OF_MEMORY,
    Ending.UNUSABLE_CHECKPOINT: ExitCode.UNUSABLE_CHECKPOINT,
    Ending.UNEQUAL_REPLICAS: ExitCode.UNEQUAL_REPLICAS,
    Ending.ENTRY_POINT_OUT_OF_MEMORY: ExitCode.ENTRY_POINT_OUT_OF_MEMORY,
    Ending.NO_LOSS: ExitCode.NO_LOSS,
    Ending.DEVICE_BUSY: ExitCode.DEVICE_BUSY,
    Ending.CHECKPOINTED: ExitCode.CHECKPOINTED,
}


def rows_under(heading: str) -> dict[str, list[str]]:
    """Other cells of the rows below a heading, by their first one."""
    _, _, below = PAGE.partition(f" {heading}\n")
    section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows if row[0].startswith("`")}


def reasons(kind: ConditionType, *truths: Truth) -> set[str]:
    """Reasons of a condition."""
    return {reason for truth, reason in REASONS[kind] if truth in truths}


ENDINGS = rows_under("How an attempt ends")


def test_every_ending_has_a_row() -> None:
    """And no row is of an ending that is none."""
    assert sorted(ENDINGS) == sorted(ending.value for ending in Ending)


@pytest.mark.parametrize("ending", RESPONSES)
def test_a_row_says_what_the_ending_counts_as(ending: Ending) -> None:
    """As the table of failures has it, with the reason where it may be the end."""
    response, (_, reason, counts, _) = RESPONSES[ending], ENDINGS[ending.value]
    is_end = response.kind not in NEVER_AN_END
    assert reason == (f"`{response.reason}`" if is_end else "-")
    assert counts == COUNTS[response.kind]


@pytest.mark.parametrize("ending", CODES)
def test_a_row_names_the_exit_code(ending: Ending) -> None:
    """People see the number in the status of a container."""
    assert ENDINGS[ending.value][0].startswith(f"Exit code {CODES[ending].value}")


def test_all_that_status_says_on_the_way_is_told() -> None:
    """Reasons of the summary while another step is waited for, and no more."""
    unknown = chain.from_iterable(reasons(kind, Truth.UNKNOWN) for kind in REASONS)
    waited = {WAITING, *unknown, *reasons(ConditionType.ACCEPTED, Truth.FALSE)}
    waited |= reasons(ConditionType.LAUNCHED, Truth.FALSE)
    final_or_passed = {"PlanOnly", "Skipped", "TrainerIncompatible"}
    assert set(rows_under("While it goes on")) == waited - final_or_passed


def test_all_that_status_says_at_the_end_is_told() -> None:
    """Every final reason, and no other."""
    steps = (ConditionType.PROFILED, ConditionType.PLANNED, ConditionType.CERTIFIED)
    failed = chain.from_iterable(reasons(kind, Truth.FALSE) for kind in steps)
    expected = {*failed, *reasons(SUMMARY, Truth.TRUE, Truth.FALSE)}
    assert set(rows_under("At the end")) == expected
