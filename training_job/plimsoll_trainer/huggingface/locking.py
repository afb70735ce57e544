"""A lock between processes of one machine, in a file.

Called where several ranks would write the same files at once: tokens, and code that
comes with a model.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Within it, no other process of this machine has the same lock.

    Raises:
        OSError: the file, or a folder above it, cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
