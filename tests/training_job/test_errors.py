"""How a message quotes an error of somebody else's code."""

from __future__ import annotations

import pytest

from plimsoll_trainer.errors import described


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
