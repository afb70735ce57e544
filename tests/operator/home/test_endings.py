"""What exit codes mean together: one rank's failure takes the others with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.brain.seen import Ending
from plimsoll_operator.home.endings import ending_of
from plimsoll_operator.home.tasks import End, Exit

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


@pytest.mark.parametrize(
    ("found", "said", "ending"),
    [
        (end(0, 0), ("", ""), Ending.DONE),
        (end(83, 1), ("plimsoll: rank 0: full", LOST), Ending.OUT_OF_MEMORY),
        (end(1, 83), (LOST, "plimsoll: rank 1: full"), Ending.OUT_OF_MEMORY),
        (end(81, 81), ("other code", "other code"), Ending.FOREIGN_FINGERPRINT),
        (end(82), ("no workload",), Ending.BAD_WORKLOAD),
        (end(85), ("it is broken",), Ending.UNUSABLE_CHECKPOINT),
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
    found: End, said: tuple[str, ...], ending: Ending, tmp_path: Path
) -> None:
    """The reserved code of any rank decides, then what a rank failed of by itself."""
    for place, text in enumerate(said):
        (tmp_path / f"{place}.err").write_text(f"a line before\n{text}\n\n")
    assert ending_of(found, tmp_path)[0] is ending


def test_the_line_is_that_of_the_rank_that_failed_by_itself(tmp_path: Path) -> None:
    """Not of one that lost it, though that one ended first."""
    for place, text in enumerate((LOST, OWN)):
        (tmp_path / f"{place}.err").write_text(text + "\n")
    _, message = ending_of(end(1, 1, first=0), tmp_path)
    assert message == OWN.removeprefix("plimsoll: ")


def test_advice_is_in_words_of_the_manifest(tmp_path: Path) -> None:
    """Not in options of the trainer, which nobody types; others' lines stay."""
    folder = tmp_path / "train-1"
    folder.mkdir()
    for line in (
        "step 9 is past --steps 5: give more steps, or another with --resume-from",
        "of another model: give a new --checkpoint-dir to begin anew",
        "other data: restore it, or go on with --accept-other-data",
        "ValueError at own.py:7; --debug shows the traceback",
    ):
        (folder / "0.err").write_text(f"plimsoll: {line}\n")
        assert "--" not in ending_of(end(85), folder)[1].replace(" --anew", "")
        (folder / "0.err").write_text(f"{line}\n")
        assert ending_of(end(85), folder)[1] == line


def test_a_signal_has_its_name(tmp_path: Path) -> None:
    """A process that broke down says nothing itself."""
    (tmp_path / "0.err").write_text("")
    _, message = ending_of(end(SEGV, first=0), tmp_path)
    assert message == "process 0 was ended by SIGSEGV"
