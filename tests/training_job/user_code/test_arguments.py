"""Arguments of an entry point are a JSON object, or one line says what they are."""

from __future__ import annotations

import pytest

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.user_code.arguments import parse_arguments


@pytest.mark.parametrize(
    ("text", "message"),
    [("{depth: 3}", "are no JSON"), ("[3]", "are list, but a JSON object is needed")],
)
def test_arguments_are_a_json_object(text: str, message: str) -> None:
    """Anything else is refused with an example."""
    assert parse_arguments('{"depth": 3}') == {"depth": 3}
    with pytest.raises(WorkloadError, match=message):
        parse_arguments(text)
