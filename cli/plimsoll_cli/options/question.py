"""The options that make a question, one for each row of the table of search fields.

In: rows, and a command of click. Out: the command with their options. Called by `plan`,
`compare` and `solve`; what was typed becomes records in `problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from plimsoll_cli.options.named_devices import EXAMPLES, ON
from plimsoll_cli.options.types import COUNT, PATH, FiniteNumber, WholeNumber, WordOf
from plimsoll_planner.records.record import shape_of
from plimsoll_planner.records.shape import (
    ChoiceShape,
    FlagShape,
    NumberShape,
    OptionalShape,
    Shape,
)
from plimsoll_planner.search_fields import FIELDS, INPUTS, SearchField
from plimsoll_planner.vocabulary import IN_OPTIONS

Command = TypeVar("Command", bound=Callable[..., Any])
TYPED_OTHERWISE: Final[dict[str, dict[str, Any]]] = {
    "offers": {"type": PATH},
    "overheads": {"type": PATH, "multiple": True},
    "engine": {"default": "plimsoll", "show_default": True},
    "limits.max_tuples": {"type": COUNT},
    "limits.headroom": {"type": FiniteNumber(0, 1, max_open=True)},
    "override.cuts": {"metavar": "0,9,17"},
    "override.in_flight_caps": {"metavar": "3,2,1"},
    "override.recomputed_layers": {"metavar": "0-5,8|all|none"},
    "override.offloaded_layers": {"metavar": "0-5,8|all|none"},
}
"""Properties of an option that no type of a record states, by the path of its row."""
ON_WORDS: Final[dict[str, Any]] = {
    "multiple": True,
    "metavar": "8xH100-80GB",
    "help": "Machines by the name of their device (`plimsoll devices`), in the place "
    f"of --offers: {EXAMPLES}; may be given several times, each another choice.",
}
"""The other way to name machines."""


def question_options(*, but: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Add the options of a question, `but` what a command lacks or has otherwise."""
    left_out = set(but)

    def add(command: Command) -> Command:
        for row in reversed((*INPUTS, *FIELDS)):
            if row.option not in left_out:
                command = option_of(row)(command)
        return click.option(ON, **ON_WORDS)(command)

    return add


def option_of(row: SearchField) -> Callable[[Command], Command]:
    """The option of a row; its type and default are those of the record."""
    words: dict[str, Any] = {"help": IN_OPTIONS.text(row.help)}
    if row in FIELDS:
        words |= option_type(shape_of(row.annotation))
    if row.given is not None:  # that nobody typed it makes a difference
        words["help"] += f"  [default: {row.given}]"
    elif row in FIELDS and row.default not in (None, ()) and row.default is not False:
        is_word = isinstance(row.default, StrEnum)
        words["default"] = row.default.value if is_word else row.default
        words["show_default"] = True
    return click.option(row.option, **words | TYPED_OTHERWISE.get(row.record, {}))


def option_type(shape: Shape) -> dict[str, Any]:
    """Arguments of `click.option` for one kind of value."""
    match shape:
        case OptionalShape(inner=inner):
            return option_type(inner)
        case FlagShape():
            return {"is_flag": True}
        case ChoiceShape(choices=choices):
            return {"type": WordOf(choices), "metavar": f"[{'|'.join(choices)}]"}
        case NumberShape(kind=kind, bound=bound) if kind is int:
            return {"type": WholeNumber(min=int(bound.minimum))}
        case NumberShape(bound=bound):
            # A number that is too large to be meant the record refuses.
            most = bound.maximum if bound.maximum <= 1 else None
            return {"type": FiniteNumber(bound.minimum, most, min_open=bound.above)}
        case _:
            return {}


def typed(options: dict[str, Any]) -> dict[str, Any]:
    """Values by the path of their row, taken out of what click has parsed."""
    return {
        row.record: options.pop(row.option.lstrip("-").replace("-", "_"), None)
        for row in (*INPUTS, *FIELDS)
    }
