"""Errors and texts in the words of whoever asked."""

from __future__ import annotations

import pytest

from plimsoll_planner.errors import InvalidFieldError, MissingFieldError
from plimsoll_planner.records.override import Override
from plimsoll_planner.vocabulary import IN_OPTIONS, IN_SPEC


@pytest.mark.parametrize(
    ("path", "option", "place"),
    [
        ("Problem.limits.max_gpus", "--max-gpus", "spec.search.maxGPUs"),
        ("Limits.max_gpus", "--max-gpus", "spec.search.maxGPUs"),
        ("Override.cuts[1]", "--cuts[1]", "spec.override.cuts[1]"),
        ("Problem.num_steps", "--steps", "spec.training.steps"),
        ("Problem.limits.max_tuples", "--max-tuples", "limits.max_tuples"),
        ("Problem.limits.schedules", "Problem.limits.schedules", ""),
        ("here.json: Problem.num_steps", "here.json: Problem.num_steps", ""),
    ],
)
def test_a_path_is_looked_up(path: str, option: str, place: str) -> None:
    """Of a record or of the whole question, with the place in a list; others stay."""
    assert IN_OPTIONS.path(path) == option
    assert IN_SPEC.path(path) == (place or path)


def test_only_what_is_marked_is_a_name() -> None:
    """A person's words may read like a field, and a marked word need not be one."""
    text = "`limits.max_gpus` of limits.max_gpus; `plimsoll run`, `recompute`"
    assert IN_OPTIONS.text(text) == (
        "--max-gpus of limits.max_gpus; `plimsoll run`, `recompute`"
    )


def test_an_error_keeps_its_value_and_kind() -> None:
    """The path and the rule are in other words, and the rest is as it was."""
    with pytest.raises(InvalidFieldError) as found, IN_SPEC.errors():
        Override(micro_batch=0)
    assert found.value.path == "spec.override.microBatch"
    assert found.value.value == 0
    with pytest.raises(MissingFieldError), IN_OPTIONS.errors():
        raise MissingFieldError("a.json: Offer.name", None, "a text")
