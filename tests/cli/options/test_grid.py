"""When a grid is searched, and for how long."""

from __future__ import annotations

import click
import pytest

from plimsoll_cli.options.grid import grid_limit_s
from plimsoll_planner.records.grid import GRID_LIMIT_S


@pytest.mark.parametrize("is_usual", [False, True])
def test_what_is_typed_is_above_what_is_usual(is_usual: bool) -> None:
    """On and off; without a word it is what is usual."""
    usual = GRID_LIMIT_S if is_usual else None
    assert grid_limit_s(is_asked=None, seconds=None, is_usual=is_usual) == usual
    on = grid_limit_s(is_asked=True, seconds=None, is_usual=is_usual)
    assert on == GRID_LIMIT_S
    assert grid_limit_s(is_asked=True, seconds=0.5, is_usual=is_usual) == 0.5
    assert grid_limit_s(is_asked=False, seconds=None, is_usual=is_usual) is None


def test_seconds_of_no_grid_are_refused() -> None:
    """In a line that names what they need."""
    for is_asked in (None, False):
        with pytest.raises(click.UsageError, match="needs --grid beside it"):
            grid_limit_s(is_asked=is_asked, seconds=3.0, is_usual=False)
