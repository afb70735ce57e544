"""Says in options what records say in fields, as `--steps` for `Problem.num_steps`.

In: errors and texts of the planner, about a problem that options made. Out: the same in
the words of the command line. Called by `questions` and `plan`. Documents that people
write themselves keep the paths of their fields.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from plimsoll_planner.errors import InvalidFieldError, InvalidInputError, shorten
from plimsoll_planner.records.problem import renamed

OPTION_OF = {
    "offers": "--offers",
    "overheads": "--overhead",
    "global_batch_size": "--batch",
    "num_steps": "--steps",
    "batch_statistics": "--batch-statistics",
    "max_gpus": "--max-gpus",
    "headroom": "--headroom",
    "max_micro_batch": "--max-micro-batch",
    "max_tuples": "--max-tuples",
    "whole_nodes": "--whole-nodes",
    "rate_floor": "--rate-floor",
    "min_samples_per_s": "--min-throughput",
    "throughput_tolerance": "--tolerance",
    "deadline_s": "--deadline",
    "num_gpus": "--gpus",
    "num_stages": "--pipeline",
    "data_degree": "--data",
    "micro_batch": "--micro-batch",
    "cuts": "--cuts",
    "recomputed_layers": "--recompute",
}
"""The last part of a field's path, which is unique, and its option."""


def in_options(text: str) -> str:
    """Return a text with options in the place of the fields of a problem."""
    return renamed(text, OPTION_OF)


@contextmanager
def told_in_options() -> Generator[None]:
    """Raise errors about a problem's fields as errors about options."""
    try:
        yield
    except InvalidFieldError as error:
        if in_options(error.path) == error.path:
            raise
        raise InvalidInputError(option_text(error)) from None


def option_text(error: InvalidFieldError) -> str:
    """Return one line on an option: what was typed, and what is allowed."""
    option, allowed = in_options(error.path), in_options(error.allowed)
    if error.value is None:
        return f"{option}: missing; allowed is {allowed}"
    return f"{option}: got {as_typed(error.value)}, allowed is {allowed}"


def as_typed(value: object) -> str:
    """Return a value as it stands on a command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "none"
    return shorten(value)
