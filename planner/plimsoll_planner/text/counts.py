"""Numbers of things in words."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer

LONGEST_LISTED = 2
"""Numbers in a row that are listed one by one."""


def counted(number: int, noun: str) -> str:
    """Number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def numbers_text(numbers: Iterable[int]) -> str:
    """Ascending numbers in words, as in `1 to 4, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}"
        if len(run) > LONGEST_LISTED
        else ", ".join(map(str, run))
        for run in runs
    )


def device_noun(offers: Iterable[Offer]) -> str:
    """Word for devices in all texts: emulated ones are no GPUs."""
    is_emulated = any(one.device_kind is DeviceKind.EMULATED for one in offers)
    return "device" if is_emulated else "GPU"


def gpus_text(num_gpus: int, offers: Iterable[Offer]) -> str:
    """Number of GPUs in words, or of devices that are emulated."""
    return counted(num_gpus, device_noun(offers))
