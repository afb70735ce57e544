"""The setting of torch's allocator that plans are made for."""

from __future__ import annotations

import pytest

from plimsoll_trainer.devices.allocator import SETTING, VARIABLES, allocator_environment


def test_an_environment_gets_what_it_lacks() -> None:
    """Under the name that torch knows today; what else is there does not matter."""
    assert allocator_environment({"HOME": "/root"}) == {"PYTORCH_ALLOC_CONF": SETTING}
    assert SETTING == "expandable_segments:True"


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("value", ["max_split_size_mb:128", ""])
def test_a_setting_of_the_user_stays(name: str, value: str) -> None:
    """Under either name, also an empty one."""
    assert allocator_environment({name: value}) == {}
