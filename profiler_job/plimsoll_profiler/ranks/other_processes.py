"""Memory of a GPU that other processes use, read before this one touches the GPU.

In: nothing but the environment. Out: bytes, or None where nobody can tell. Torch alone
cannot: by the time it can ask, its own context is part of the answer. So `nvidia-smi`
is asked, which the driver brings along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
QUERY = ("--query-gpu=index,uuid,memory.used", "--format=csv,noheader,nounits")
TIMEOUT_S = 30.0
MIB = 2**20
IDLE_BYTES = 64 * MIB
"""An idle GPU shows less, which is the driver's own."""


def other_process_bytes() -> int | None:
    """Bytes in use on the first GPU that this process may see; None: unknown."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own program
            (program, *QUERY),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return used_bytes(done.stdout.splitlines(), os.environ.get(VISIBLE_VARIABLE))


def used_bytes(lines: Iterable[str], visible: str | None) -> int | None:
    """Bytes in use on the first visible GPU, by the lines of `nvidia-smi`.

    Args:
        lines: index, UUID and used MiB of each GPU, parted by commas.
        visible: value of CUDA_VISIBLE_DEVICES, an index or the beginning of a UUID for
            each GPU; None: not set.
    """
    first = "0" if visible is None else visible.split(",")[0].strip()
    for line in lines:
        index, uuid, used = (*(part.strip() for part in line.split(",")), "", "")[:3]
        is_first = first != "" and (first == index or uuid.startswith(first))
        if is_first and used.isdecimal():
            num_bytes = int(used) * MIB
            return num_bytes if num_bytes > IDLE_BYTES else 0
    return None
