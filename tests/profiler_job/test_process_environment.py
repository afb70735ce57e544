"""A process of the profiler begins as the device that it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from plimsoll_profiler.process_environment import environment_on_device
from plimsoll_trainer.devices.allocator import SETTING, VARIABLES
from tests.profiler_job.ranks.test_rehearser import a_small_plan
from tests.support.builders import MIB, an_offer


def test_an_emulated_device_has_what_the_plan_says_or_what_it_really_has() -> None:
    """Its library is preloaded, and one thread works, as for a rank."""
    for given, cap_bytes in ((0, 64 * MIB), (3 * MIB, 3 * MIB)):
        found = environment_on_device(a_small_plan(), given)
        code = (
            "from plimsoll_trainer.emulated.device import EmulatedDevice;"
            "print(EmulatedDevice().cap_bytes)"
        )
        done = subprocess.run(
            (sys.executable, "-c", code),
            env=os.environ | found,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == cap_bytes
        assert found["OMP_NUM_THREADS"] == "1"


def test_a_gpu_is_used_as_by_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the allocator that is planned for, unless the user has set it up."""
    gpu = replace(a_small_plan(), offers=(an_offer(devices_per_node=2),))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found = environment_on_device(gpu)
    assert SETTING in found[VARIABLES[0]]
    assert "LD_PRELOAD" not in found
    monkeypatch.setenv(VARIABLES[1], "max_split_size_mb:64")
    assert VARIABLES[0] not in environment_on_device(gpu)
