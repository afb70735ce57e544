"""Numbers of things in words."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer


def counted(number: int, noun: str) -> str:
    """Number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def device_noun(offers: Iterable[Offer]) -> str:
    """Word for devices in all texts: emulated ones are no GPUs."""
    is_emulated = any(one.device_kind is DeviceKind.EMULATED for one in offers)
    return "device" if is_emulated else "GPU"


def gpus_text(num_gpus: int, offers: Iterable[Offer]) -> str:
    """Number of GPUs in words, or of devices that are emulated."""
    return counted(num_gpus, device_noun(offers))
