"""How a message quotes an error of somebody else's code."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.errors import described, located


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "ValueError"),
        ("\n first \nsecond", "ValueError: first"),
        (
            "field 'x':\n    TypeError: an int\nmore",
            "ValueError: field 'x': TypeError: an int",
        ),
        ("a:\n\nb:\nc", "ValueError: a: b: c"),
        ("a:", "ValueError: a:"),
    ],
)
def test_an_error_is_one_line_with_its_reason(text: str, expected: str) -> None:
    """The first line, and the next one if a colon leads to it."""
    assert described(ValueError(text)) == expected


def test_an_error_is_placed_in_code_of_the_user_or_nowhere() -> None:
    """A line of torch leads nobody anywhere."""
    with pytest.raises(RuntimeError) as raised:
        nn.Linear(2, 2)(torch.zeros(3))
    error = raised.value
    assert f" at {__file__}:" in located(error)
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without the call here
    assert " at " not in located(error)
