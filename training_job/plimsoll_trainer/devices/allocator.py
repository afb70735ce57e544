"""Setting of torch's CUDA allocator that plans are made for.

In: the environment. Out: what it lacks. Called before torch is loaded, which reads it
once. A setting that the user made stays.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Today's name and the earlier one."""
SETTING = "expandable_segments:True"
"""Without it, fragmentation has doubled what is reserved (torchtune#1185)."""


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that an environment lacks for the allocator that is planned for."""
    if any(name in environment for name in VARIABLES):
        return {}
    return {VARIABLES[0]: SETTING}
