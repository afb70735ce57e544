"""Named cases as parameters of a test, most of them marked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest


def all_but(
    chosen: Collection[str], cases: Mapping[str, object], mark: pytest.MarkDecorator
) -> list[Any]:
    """Every case under its name, with a mark unless it is chosen."""
    return [
        pytest.param(case, id=name, marks=() if name in chosen else mark)
        for name, case in cases.items()
    ]
