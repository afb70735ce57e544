"""Errors about a question as errors about options: `--steps` for `Problem.num_steps`.

In: errors of the planner, about a problem that options made. Out: one line with what
was typed. Called by `problem`. Documents that people write themselves keep the paths of
their fields.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from plimsoll_planner.errors import InvalidFieldError, InvalidInputError, shorten
from plimsoll_planner.vocabulary import IN_OPTIONS


@contextmanager
def errors_in_options() -> Generator[None]:
    """Raise errors about a problem's fields as errors about options."""
    try:
        with IN_OPTIONS.errors():
            yield
    except InvalidFieldError as error:
        if not error.path.startswith("--"):
            raise
        raise InvalidInputError(option_text(error)) from None


def option_text(error: InvalidFieldError) -> str:
    """One line on an option: what was typed, and what is allowed."""
    if error.value is None:
        return f"{error.path}: missing; allowed is {error.allowed}"
    return f"{error.path}: got {as_typed(error.value)}, allowed is {error.allowed}"


def as_typed(value: object) -> str:
    """A value as it stands on a command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "none"
    return shorten(value)
