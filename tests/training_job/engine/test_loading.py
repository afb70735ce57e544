"""Samples that other processes make ahead are those that the rank would make."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.engine import loading
from plimsoll_trainer.engine.loading import DirectLoader, Key, WorkerLoader, open_loader
from plimsoll_trainer.errors import TrainerError, WorkloadError
from tests.support.ranks import Died, run_ranks, try_ranks
from tests.support.workloads import a_gpt, tokens

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
KEYS = [(step, first, 2) for step in range(3) for first in (0, 2, 4)]


def keys() -> Iterator[Key]:
    """All that is taken."""
    yield from KEYS


def strided(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples that lie across a larger memory."""
    x, y = tokens(step, first, 2 * count)
    return x[::2], y[::2]


def take_both_ways() -> tuple[bool, int]:
    """Whether all samples are alike, and how much the worker's were to the device."""
    from plimsoll_trainer.emulated.device import EmulatedDevice  # noqa: PLC0415

    workload = a_gpt(batch=strided, loading_workers=2)
    loader = open_loader(workload, keys, num_ahead=3, device=CPU, warn=print)
    assert isinstance(loader, WorkerLoader)
    assert loader.is_shared
    held = EmulatedDevice().current_bytes
    made = [loader.take(*key) for key in KEYS]
    held = EmulatedDevice().current_bytes - held
    direct = [DirectLoader(workload).take(*key) for key in KEYS]
    loader.close()
    alike = [
        torch.equal(one, other)
        for (x, y), (plain_x, plain_y) in zip(made, direct, strict=True)
        for one, other in zip((*x, y), (*plain_x, plain_y), strict=True)
    ]
    return all(alike), held


def test_they_are_alike_and_in_order() -> None:
    """And lie in no memory that is the device's."""
    assert run_ranks(take_both_ways, 1) == [(True, 0)]


def short(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make a sample less than is asked for, at one place."""
    return tokens(step, first, count - ((step, first) == (1, 2)))


def take_all(batch: object, pids: Path | None = None) -> str:
    """Take all, one after the other; the error that ends it."""
    workload = a_gpt(batch=batch, loading_workers=2)
    loader = open_loader(workload, keys, num_ahead=3, device=CPU, warn=print)
    try:
        for key in KEYS:
            loader.take(*key)
            if pids is not None:
                killed = int(pids.read_text().splitlines()[0])
                os.kill(killed, signal.SIGKILL)
    except (WorkloadError, TrainerError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        loader.close()
    return ""


def test_a_worker_checks_what_is_made() -> None:
    """A broken contract is one, wherever it is found."""
    [text] = run_ranks(take_all, 1, short)
    assert text.startswith(
        "WorkloadError: batch(1, 2, 2) gives inputs of shape [1, 32]"
    )


def known(pids: Path, step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples, and note which process does."""
    with pids.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.1)
    return tokens(step, first, count)


def test_a_worker_that_is_killed_ends_the_rank(tmp_path: Path) -> None:
    """With what was waited for."""
    pids = tmp_path / "pids"
    [text] = run_ranks(take_all, 1, partial(known, pids), pids)
    assert text.startswith("TrainerError: a process that makes data ended before it ")
    assert "loading_workers=0" in text


def die_beside_workers(pids: Path) -> None:
    """Start workers, and be killed while they work."""
    workload = a_gpt(batch=partial(known, pids), loading_workers=2)
    loader = open_loader(workload, keys, num_ahead=6, device=CPU, warn=print)
    loader.take(*KEYS[0])
    os.kill(os.getpid(), signal.SIGKILL)


def runs(pid: int) -> bool:
    """Whether a process is there and not only remembered."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_workers_die_with_the_rank(tmp_path: Path) -> None:
    """Killed, it leaves none behind."""
    pids = tmp_path / "pids"
    [end] = try_ranks(die_beside_workers, [0], pids)
    assert isinstance(end, Died)
    workers = {int(line) for line in pids.read_text().splitlines()}
    assert len(workers) == 2
    end_s = time.monotonic() + 3
    while any(map(runs, workers)):
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_machine_that_starts_none_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the rank makes what it needs itself."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(loading, "WorkerLoader", refuse)
    lines: list[str] = []
    workload = a_gpt(loading_workers=2)
    loader = open_loader(workload, keys, num_ahead=3, device=CPU, warn=lines.append)
    assert isinstance(loader, DirectLoader)
    assert lines == [
        "data is made before each step, for 2 processes to make it ahead cannot be "
        "started: OSError: Resource temporarily unavailable"
    ]
