"""The settings of torch's allocators that plans are made for."""

from __future__ import annotations

import pytest

from plimsoll_trainer.devices.allocator import (
    EXACT_PINS,
    SETTING,
    VARIABLES,
    allocator_environment,
    pinned_block,
)


@pytest.mark.parametrize(
    ("torch_version", "setting"),
    [
        ("2.14.1+cu130", SETTING),
        ("2.15.0+cu132", f"{SETTING},{EXACT_PINS}"),
        ("3.0", f"{SETTING},{EXACT_PINS}"),
        ("unknown", SETTING),
    ],
)
def test_an_environment_gets_what_it_lacks(torch_version: str, setting: str) -> None:
    """Under the name that torch knows today, and no more than this torch knows."""
    found = allocator_environment({"HOME": "/root"}, torch_version)
    assert found == {"PYTORCH_ALLOC_CONF": setting}
    assert SETTING == "expandable_segments:True"


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("value", ["max_split_size_mb:128", ""])
def test_a_setting_of_the_user_stays(name: str, value: str) -> None:
    """Under either name, also an empty one."""
    assert allocator_environment({name: value}) == {}


@pytest.mark.parametrize(
    ("setting", "size", "block"),
    [("", 3 * 2**20, 2**22), (EXACT_PINS, 3 * 2**20, 3 * 2**20), (EXACT_PINS, 5, 8)],
)
def test_pinned_memory_is_rounded_up(setting: str, size: int, block: int) -> None:
    """To a power of two, but for large blocks under the setting."""
    assert pinned_block(size, {VARIABLES[0]: setting}) == block


def test_the_installed_torch_knows_the_settings() -> None:
    """Torch refuses one that it does not know."""
    torch = pytest.importorskip("torch")
    setting = allocator_environment({})[VARIABLES[0]]
    torch._C._accelerator_setAllocatorSettings(setting)
    with pytest.raises(ValueError, match="Unrecognized key"):
        torch._C._accelerator_setAllocatorSettings("another:1")
