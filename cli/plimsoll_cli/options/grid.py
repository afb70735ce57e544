"""The options of a grid of other counts and micro-batches.

In: a command of click. Out: the command with them, and what was asked for. Called by
`plan`, `run` and `report`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from plimsoll_cli.options.types import FiniteNumber
from plimsoll_planner.records.grid import GRID_LIMIT_S

Command = TypeVar("Command", bound=Callable[..., Any])


def grid_options(default: str) -> Callable[[Command], Command]:
    """Add the options of a grid; `default` says when there is one unasked."""

    def add(command: Command) -> Command:
        command = click.option(
            "--grid-seconds",
            type=FiniteNumber(0),
            help="How long --grid may search; what is farthest from the plan is left "
            f"out.  [default: {GRID_LIMIT_S:g}]",
        )(command)
        return click.option(
            "--grid/--no-grid",
            "grid",
            default=None,
            help="Search other numbers of GPUs, each with other micro-batches: which "
            f"of them fit, how fast, at which price.  [default: {default}]",
        )(command)

    return add


def grid_limit_s(
    *, is_asked: bool | None, seconds: float | None, is_usual: bool
) -> float | None:
    """Seconds that a grid may take; None: there is to be none.

    Raises:
        UsageError: seconds are given for a grid that nobody asked for.
    """
    if is_usual if is_asked is None else is_asked:
        return GRID_LIMIT_S if seconds is None else seconds
    if seconds is not None:
        raise click.UsageError("--grid-seconds: needs --grid beside it")
    return None
