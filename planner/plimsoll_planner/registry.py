"""Objects that the modules of a package register by a name, as `SCHEDULE`.

In: a package. Out: what its modules have by that name. Called by `schedules` and
`techniques`, where a new file is all that a new member needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules


def registered(package: str, paths: Iterable[str], name: str) -> Iterator[object]:
    """Objects of that name, in the order of the modules that have one.

    `paths` is the `__path__` of the package.
    """
    for module in sorted(found.name for found in iter_modules(paths)):
        members = vars(import_module(f"{package}.{module}"))
        if name in members:
            yield members[name]
