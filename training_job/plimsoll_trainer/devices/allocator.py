"""Settings of torch's allocators that plans are made for.

In: the environment. Out: what it lacks. Called before torch is loaded, which reads it
once. A setting that the user made stays.

Torch rounds each block of pinned memory of the host up to a power of two, so that
optimizers there could take up to twice their bytes; from 2.15 on it can be told to
round only small blocks.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

from plimsoll_planner.engines import release_of

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Today's name and the earlier one."""
SETTING = "expandable_segments:True"
"""Without it, fragmentation has doubled what is reserved (torchtune#1185)."""
EXACT_PINS = "pinned_max_round_threshold_mb:1"
FIRST_WITH_EXACT_PINS = (2, 15)
ROUNDED_BYTES = 2**20
"""Largest pinned block that is rounded up all the same."""


def allocator_environment(
    environment: Mapping[str, str], torch_version: str = ""
) -> dict[str, str]:
    """Variables that an environment lacks for the allocators that are planned for.

    `torch_version` is that of the torch to be loaded; empty: the installed one's.
    """
    if any(name in environment for name in VARIABLES):
        return {}
    version = torch_version or importlib.metadata.version("torch")
    release = release_of(version)
    if release is not None and release >= FIRST_WITH_EXACT_PINS:
        return {VARIABLES[0]: f"{SETTING},{EXACT_PINS}"}
    return {VARIABLES[0]: SETTING}


def pinned_block(size: int, environment: Mapping[str, str]) -> int:
    """Bytes that the allocator takes of the host for so many pinned ones."""
    is_exact = any(EXACT_PINS in environment.get(name, "") for name in VARIABLES)
    if is_exact and size > ROUNDED_BYTES:
        return size
    return 1 << (size - 1).bit_length()
