"""Tables of any width: what is left out, what is stacked, what folds."""

from __future__ import annotations

import pytest

from plimsoll_cli.output.console import say
from plimsoll_cli.output.tables import BARS, format_flop, new_table, print_table


def lines_at(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Print one table and return its lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    table = new_table(
        [("NAME", "left"), ("OF CAPACITY", "right"), ("SPARE", "left"), (BARS, "left")]
    )
    table.columns[0].no_wrap, table.columns[0].max_width = False, 20
    table.add_row("a name in words", "12.34", "spare", "##########")
    table.caption = "what the columns mean, told in many words"
    print_table(table, less_important=("SPARE",))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("columns", "head"),
    [
        (
            60,
            [
                "NAME            OF CAPACITY SPARE",
                "a name in words       12.34 spare ##########",
                "what the columns mean, told in many words",
            ],
        ),
        (
            40,
            [
                "NAME            OF CAPACITY SPARE",
                "a name in words       12.34 spare",
                "what the columns mean, told in many",
                "words",
            ],
        ),
        (
            30,
            [
                "                      OF",
                "NAME            CAPACITY SPARE",
                "a name in words    12.34 spare",
            ],
        ),
        (
            24,
            [
                "                      OF",
                "NAME            CAPACITY",
                "a name in words    12.34",
            ],
        ),
        (
            20,
            [
                "                  OF",
                "NAME        CAPACITY",
                "a name in      12.34",
                "words",
            ],
        ),
    ],
)
def test_what_does_not_fit_goes_in_order(
    columns: int,
    head: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bars, then words beside each other, then columns; captions have all the width."""
    assert lines_at(columns, capsys, monkeypatch)[: len(head)] == head


def test_numbers_are_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal that is too narrow for anything a line is longer than it."""
    assert any("12.34" in line for line in lines_at(9, capsys, monkeypatch))


def test_lines_wrap_without_blanks_and_tell_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty line stays; a field of the question is named as its option."""
    monkeypatch.setenv("COLUMNS", "12")
    say("one two three four", "", "`limits.max_gpus` is 2")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["one two", "three four", "", "--max-gpus", "is 2"]


@pytest.mark.parametrize(
    ("flop", "text"),
    [(0, "0 FLOP"), (12, "12 FLOP"), (6.32e12, "6.32 TFLOP"), (4e18, "4,000 PFLOP")],
)
def test_work_has_a_decimal_unit(flop: float, text: str) -> None:
    """As arithmetic is written everywhere: powers of 1000."""
    assert format_flop(flop) == text
