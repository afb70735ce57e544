"""A machine without the memory for optimizers is refused before any is taken."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_trainer.errors import HostFullError
from plimsoll_trainer.process import host_memory as module
from plimsoll_trainer.process.host_memory import (
    Need,
    free_bytes,
    groups_of,
    is_below,
    require_room,
    warn_of_pageable,
)
from plimsoll_trainer.process.options import Options
from tests.support.jobs import Job, events, texts, train
from tests.support.ranks import try_ranks

KIB = 1024


def test_ranks_of_a_machine_take_from_one_memory() -> None:
    """Their needs are added up, and the least that any found is there for all."""
    needs = [
        Need(machine="a", needed_bytes=60, free_bytes=101),
        Need(machine="b", needed_bytes=80, free_bytes=80),
        Need(machine="a", needed_bytes=40, free_bytes=100),
    ]
    require_room(needs)
    with pytest.raises(HostFullError, match=r"takes 101 B of a .* 100 B are free"):
        require_room([*needs, Need(machine="a", needed_bytes=1, free_bytes=200)])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1 MiB available, in whose group `/pod` this process is."""
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    (tmp_path / "cgroup").write_text("4:cpu:/other\n0::/pod/main\n")
    (tmp_path / "groups" / "pod" / "main").mkdir(parents=True)
    monkeypatch.setattr(module, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(module, "CGROUPS", tmp_path / "groups")
    return tmp_path


def limit(folder: Path, most: object, now: int, *, file_bytes: int = 0) -> None:
    """Give a group of processes a limit."""
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{now}\n")
    (folder / "memory.stat").write_text(
        f"anon 7\nfile 9999\ninactive_file {file_bytes}\nactive_file 1\n"
    )


def test_the_narrowest_limit_counts(machine: Path) -> None:
    """Of the machine, the container and the group around it; copies of files go."""
    pod = machine / "groups" / "pod"
    assert free_bytes() == 1024 * KIB
    limit(pod / "main", "max", 5)
    assert free_bytes() == 1024 * KIB
    limit(pod / "main", 900 * KIB, 200 * KIB, file_bytes=100 * KIB)
    assert free_bytes() == 800 * KIB + 1
    limit(pod, 700 * KIB, 300 * KIB)
    assert free_bytes() == 400 * KIB + 1
    limit(pod, 700 * KIB, 800 * KIB)
    assert free_bytes() == 0


def test_a_group_of_the_machine_may_not_be_seen_from_inside(machine: Path) -> None:
    """As in a container with version 1: then its own limit is at the root."""
    root = machine / "groups" / "memory"
    root.mkdir()
    (root / "memory.limit_in_bytes").write_text("5000\n")
    (root / "memory.usage_in_bytes").write_text("2000\n")
    (machine / "cgroup").write_text("9:memory:/kubepods/pod1\n")
    assert free_bytes() == 3000
    assert list(groups_of(["1:cpu:/a"])) == []


def train_with(meminfo: Path, folder: Path, options: Options) -> int:
    """Be a rank on a machine with as much memory as a file states."""
    module.MEMINFO = meminfo
    return train(folder, options)


def test_a_job_ends_before_it_allocates(job: Job) -> None:
    """All ranks say the same line, and a machine with enough runs the job.

    The first stage has 11,888 numbers in parts of whole vectors, of 16 bytes each.
    """
    meminfo = job.folder / "meminfo"
    stages: tuple[dict[str, Any], ...] = ({"optimizer_home": OptimizerHome.HOST}, {})
    options = job.options((0, 4, 5), 2, plan={"of_stages": stages})
    meminfo.write_text("MemAvailable: 160 kB\n")
    first, second = try_ranks(train_with, [0, 0], meminfo, job.folder, options)
    assert texts([first]) == texts([second])
    (line,) = texts([first])
    assert line.startswith(
        "HostFullError: the plan keeps optimizers or activations in host memory"
    )
    assert "which takes 190208 B of " in line
    assert "163840 B are free: plan with --optimizer-home device" in line
    (last,) = events(job.report("report"), "observation")[-1:]
    assert last["observation"]["peaks"] == []
    meminfo.write_text("MemAvailable: 4096 kB\n")
    assert try_ranks(train_with, [0, 0], meminfo, job.folder, options) == [0, 0]
    found = [e["needed_bytes"] for e in events(job.report("report"), "host_memory")]
    assert sorted(found) == [0, 190208]


def test_what_is_not_pinned_is_reported_once_with_its_bytes() -> None:
    """And nothing where all of it is."""
    lines: list[str] = []
    warn_of_pageable(0, lines.append)
    warn_of_pageable(3 * 2**30, lines.append)
    (line,) = lines
    assert line.startswith("3.00 GiB of host memory could not be")
    assert "copies from and to the GPU are slower" in line


def test_no_limit_is_below_nothing() -> None:
    """Of what a process may lock; the kernel's word for none is -1."""
    assert is_below(2**16, 2**16 + 1)
    assert not is_below(2**16, 2**16)
    assert not is_below(resource.RLIM_INFINITY, sys.maxsize)
