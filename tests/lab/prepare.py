"""Making everything a lab needs ahead of its start, with a line on what that cost.

Called by `prepare` and `up`, and by the fixtures where PLIMSOLL_LAB_BUILD or CI is set.
A fixture would otherwise hide minutes of building in the first test.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tests.lab import build, images, nodes, packages, project_images
from tests.lab.errors import LabError
from tests.lab.owner import Level
from tools.images import DOCKERFILES


def prepare(say: Callable[[str], None], *, level: Level) -> None:
    """Build binaries and, for nodes, install packages and make images.

    Raises:
        LabError: with what to do about it.
    """
    if not build.find_binaries():
        say("binaries: building them (6 to 7 minutes with empty Go caches)")
    say(f"binaries: {build.build_binaries()}")
    if level == "control-plane":
        return
    if names := packages.missing():
        say(f"packages: installing {' '.join(names)}")
        started_s = time.monotonic()
        packages.install(names)
        say(f"packages: installed in {time.monotonic() - started_s:.0f} s")
    else:
        say("packages: installed")
    say(f"images: {images.make_images()}")
    for image in DOCKERFILES:
        say(f"image of the {image}: {project_images.make_archive(image)}")


def require(level: Level) -> None:
    """Check that a lab of this level could start, and change nothing.

    Raises:
        LabError: what is missing, and the command that adds it.
    """
    if not build.find_binaries():
        raise LabError(
            "the lab's binaries are not built: run `make test`, or "
            "`python -m tests.lab prepare`"
        )
    if level == "nodes":
        nodes.require()


def may_prepare() -> bool:
    """Whether tests may build and install: in CI, or when asked to."""
    return bool(os.environ.get("PLIMSOLL_LAB_BUILD") or os.environ.get("CI"))
