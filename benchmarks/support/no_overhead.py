"""Devices that hold tensors and nothing else, so that plans are compared by these.

In: a product and a profile. Out: a `DeviceOverhead`. Called where a cap or a headroom
stands for what is on a device besides tensors.
"""

from __future__ import annotations

from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.model_profile import ModelProfile


def nothing_besides(product: str, made: ModelProfile) -> DeviceOverhead:
    """No bytes besides tensors."""
    version = made.fingerprint.torch_version
    key = OverheadKey(device_product=product, torch_version=version)
    nothing = OverheadLine()
    return DeviceOverhead(
        key=key, allocator=nothing, outside=nothing, num_observations=1
    )
