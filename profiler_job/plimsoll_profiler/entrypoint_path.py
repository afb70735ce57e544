"""Python path of the profiler's processes, and whether it has an entry point at all.

Looked up here before a process is started, which imports torch for seconds before it
comes to the same answer. Nothing is imported here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

from plimsoll_profiler.errors import BadWorkloadError


def folders() -> list[str]:
    """Folders of a process that finds the entry point as from here.

    The path of a command begins with the folder of the command, not the current one.
    """
    return [os.getcwd(), *filter(None, sys.path)]  # noqa: PTH109 - a name, no path


def python_path() -> str:
    """Those folders as PYTHONPATH."""
    return os.pathsep.join(folders())


def require_module(entrypoint: str) -> None:
    """Refuse an entry point whose module is not there.

    Raises:
        BadWorkloadError: see above.
    """
    module = entrypoint.partition(":")[0]
    places: Sequence[str] = folders()
    for depth, part in enumerate(module.split(".")):
        # By its own name: a package without __init__.py asks for its parent's module.
        spec = PathFinder.find_spec(part, places)
        if spec is None and depth == 0:
            spec = installed(part)
        if spec is None:
            raise BadWorkloadError(
                f"entry point {entrypoint}: no module {module} on the Python path; "
                "check the name, and that its folder is in PYTHONPATH"
            )
        places = spec.submodule_search_locations or ()


def installed(name: str) -> ModuleSpec | None:
    """Spec of a module that an installer has its own way to find; not imported."""
    with contextlib.suppress(ValueError):  # no name at all, or that of a script
        return importlib.util.find_spec(name)
    return None
