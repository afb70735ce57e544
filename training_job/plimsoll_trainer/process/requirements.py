"""Requirements of trainer and profiler on the Python that they travel into.

In: nothing. Out: an error that says what is missing. Called where a process of theirs
begins, before it imports torch. Versions are read from the packages' metadata, so that
a torch that is too old to be used costs no import. The oldest Python is checked in
`pod.start`, which an older one can read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from plimsoll_planner.engines import OLDEST_TORCH, Release, dotted, release_of
from plimsoll_trainer.errors import IncompatibleError
from plimsoll_trainer.user_code.fingerprint import installed_version

OLDEST: dict[str, Release] = {"torch": OLDEST_TORCH, "numpy": (2, 1)}
"""The oldest release of each package that is tested; pyproject.toml has the same."""


def require_supported(
    version_of: Callable[[str], str | None] = installed_version,
) -> None:
    """Refuse a Python whose torch or numpy is missing or too old.

    Args:
        version_of: gives the version of an installed package, or None.

    Raises:
        IncompatibleError: names what was found, what is needed, and what to do.
    """
    for package, oldest in OLDEST.items():
        found = version_of(package)
        release = release_of(found or "")
        if release is not None and release >= oldest:
            continue
        has = f"has {package} {found}" if found else f"has no {package}"
        raise IncompatibleError(
            f"Plimsoll needs {package} {dotted(oldest)} or newer, and {sys.executable} "
            f"{has}: profile and train in an image, or with a Python, that has it"
        )
