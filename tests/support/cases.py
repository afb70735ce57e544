"""Named cases as parameters of a test, most of them marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def at_night(names: Collection[str], cases: Mapping[str, object]) -> list[Any]:
    """Every case under its name; those that are named run at night, for others do."""
    unknown = set(names) - cases.keys()
    assert not unknown, f"no case is named {sorted(unknown)}"
    return all_but(cases.keys() - set(names), cases, pytest.mark.nightly)


def named(names: Iterable[str]) -> dict[str, object]:
    """Cases that are their names."""
    return {name: name for name in names}


def all_but(
    chosen: Collection[str], cases: Mapping[str, object], mark: pytest.MarkDecorator
) -> list[Any]:
    """Every case under its name, with a mark unless it is chosen."""
    return [
        pytest.param(case, id=name, marks=() if name in chosen else mark)
        for name, case in cases.items()
    ]
