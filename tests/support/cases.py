"""Named cases as parameters of a test, most of them marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def at_night(
    names: Collection[str],
    cases: Mapping[str, object],
    quick: Collection[str] | None = None,
) -> list[Any]:
    """Every case under its name; those in `names` are nightly.

    Each of these repeats what another case or test covers. All but the quick ones are
    slow as well; None: nothing is.
    """
    unknown = {*names, *(quick or ())} - cases.keys()
    assert not unknown, f"no case is named {sorted(unknown)}"

    def marks(name: str) -> list[pytest.MarkDecorator]:
        found = [pytest.mark.nightly] if name in names else []
        is_slow = quick is not None and name not in quick
        return [*found, pytest.mark.slow] if is_slow else found

    return [pytest.param(case, id=n, marks=marks(n)) for n, case in cases.items()]


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
