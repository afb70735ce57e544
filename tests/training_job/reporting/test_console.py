"""Lines for people: one of progress, one for an error."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator

import pytest

from plimsoll_trainer.reporting.console import Progress, StepFigures, say


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Whether it is one: yes."""
        return True


class Gone(io.StringIO):
    """A stream whose reader went away."""

    def write(self, text: str) -> int:
        """Fail."""
        raise BrokenPipeError(text)


def test_a_rank_that_does_not_know_its_number_says_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If the environment does not name it."""
    say(None, "what happened")
    say(2, "what")
    assert capsys.readouterr().err.splitlines() == [
        "plimsoll: what happened",
        "plimsoll: rank 2: what",
    ]


def figures(step: int) -> StepFigures:
    """Build the figures of one step."""
    return StepFigures(
        step=step,
        num_steps=5,
        loss=3.25,
        gradient_norm=0.5,
        step_s=0.25,
        peak_bytes=2**30,
    )


def every(seconds: float) -> Iterator[float]:
    """Yield moments."""
    now_s = 0.0
    while True:
        yield now_s
        now_s += seconds


def shown(stream: io.StringIO, seconds: float) -> str:
    """Show five steps, so many seconds apart."""
    moments = every(seconds)
    progress = Progress(stream, clock=lambda: next(moments))
    for step in range(1, 6):
        progress.show(figures(step))
    return stream.getvalue()


def test_a_log_has_a_line_every_few_seconds_and_the_last() -> None:
    """Steps of four seconds: the first, the one ten seconds on, the last."""
    lines = shown(io.StringIO(), 4.0).splitlines()
    assert [line.split()[1] for line in lines] == ["1/5", "4/5", "5/5"]
    assert lines[0] == "step 1/5  loss 3.2500  norm 0.5  0.25 s/step  peak 1.00 GiB"


def test_a_peak_is_told_as_the_tables_tell_it() -> None:
    """In a unit that suits it, rounded up."""
    small = dataclasses.replace(figures(1), peak_bytes=14_100_000)
    assert str(small).endswith("peak 13.45 MiB")


def test_a_terminal_is_rewritten_in_place() -> None:
    """One line stays at the end."""
    text = shown(Terminal(), 4.0)
    assert text.count("\n") == 1
    assert text.count("\r\x1b[K") == 5
    assert text.endswith("peak 1.00 GiB\n")


def test_a_reader_that_went_away_ends_the_showing() -> None:
    """Training does not notice."""
    shown(Gone(), 4.0)


def test_what_went_wrong_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where its text has several."""
    say(3, "first\nsecond")
    assert capsys.readouterr().err == "plimsoll: rank 3: first\\nsecond\n"


def test_a_line_that_cannot_be_written_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log of a rank may lie on the full disk that its warning is about."""
    monkeypatch.setattr("sys.stderr", Gone())
    with pytest.raises(BrokenPipeError):
        sys.stderr.write("any line")
    say(0, "a checkpoint was not saved: No space left on device")
