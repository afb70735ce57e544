"""The interpreter that runs the tests, with all its packages, inside a pod.

In: source folders to add. Out: volumes, mounts, environment and command for a pod whose
image is images.BASE. All of it is mounted read-only from the host: torch is 4 GB, and
importing that into a node's image store takes longer than the tests that need it.

The base image is of the host's own release, so the C library is the same one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.errors import LabError
from tests.lab.host_packages import HIDDEN, PACKAGES, compile_once, packages

PREFIX = "/host-python"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPython:
    """Parts of a pod template."""

    command: str
    """Path of the interpreter in the container."""
    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    environment: list[dict[str, str]]


def host_python(*, sources: Sequence[Path] = ()) -> HostPython:
    """Command of this interpreter in a pod; `sources` join its module path.

    Raises:
        LabError: the interpreter lies in a folder that nodes cannot see.
    """
    base = Path(sys.base_prefix).resolve()
    places = {str(base): PREFIX, str(packages()): PACKAGES}
    for number, source in enumerate(sources):
        places[str(source.resolve())] = f"/host-source/{number}"
    for path in places:
        if path.startswith(HIDDEN):
            raise LabError(
                f"{path} is out of sight for pods, as all of {', '.join(HIDDEN)}: "
                "use an interpreter or a checkout elsewhere"
            )
    compile_once(packages())
    # Not sys.executable resolved: a virtual environment may hold a copy.
    executable = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    module_path = [place for place in places.values() if place != PREFIX]
    environment = {
        "PYTHONPATH": ":".join(module_path),
        "LD_LIBRARY_PATH": f"{PREFIX}/lib",  # libpython, where it is a shared library
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    named = [(f"host-{number}", *each) for number, each in enumerate(places.items())]
    return HostPython(
        command=f"{PREFIX}/{executable}",
        volumes=[{"name": name, "hostPath": {"path": path}} for name, path, _ in named],
        mounts=[
            {"name": name, "mountPath": place, "readOnly": True}
            for name, _, place in named
        ],
        environment=[{"name": name, "value": it} for name, it in environment.items()],
    )
