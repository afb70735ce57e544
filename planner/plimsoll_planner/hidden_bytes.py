"""What kernels hold inside that neither a trace nor a replay shows.

In: a kind of device and a precision. Out: by how much traced bytes may be off for it.
Called where a profile is put together and where a replay is compared.
"""

from __future__ import annotations

from plimsoll_planner.records.model_profile import DeviceKind, Precision

BF16_ON_CPU_ERROR = 0.03
"""Matrix products of bf16 on CPU take workspaces, up to 1.8 % of a peak where it was
looked for (torch 2.15, a GPT of width 128)."""


def hidden_error(device_kind: DeviceKind, precision: Precision) -> float:
    """Return the part of a peak that is not seen, 0 where everything is."""
    if device_kind is DeviceKind.EMULATED and precision is Precision.BF16:
        return BF16_ON_CPU_ERROR
    return 0.0
