"""Real ranks for tests: processes under the emulated device, joined over gloo.

A server process has torch imported and forks the ranks of each run from itself, so a
run starts in milliseconds and every rank is a fresh process with counters of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

CONTEXT = multiprocessing.get_context("forkserver")
PRELOAD = [
    *("plimsoll_trainer.process.run", "plimsoll_profiler.ranks.replayer"),
    "plimsoll_trainer.adapters.causal_lm",  # not there without transformers
    # Of the modules that ranks find their work in:
    *("pytest", "tests.support.jobs", "tests.support.profiles"),
    "tests.support.warm_server",
]
"""Modules that the server imports before it forks, so that no rank has to."""
TIMEOUT_S = 240.0
ENDED_FOR_ANOTHER = "was ended, as another rank had died"
LOST_A_PEER = (ENDED_FOR_ANOTHER, "Connection closed by peer", "Connection reset by")
"""In the text of a rank that died because another had."""


@dataclass(frozen=True, slots=True)
class Died:
    """Last line of a rank that raised."""

    text: str


def start_server() -> None:
    """Start the server under the emulated device, if it does not run yet."""
    from plimsoll_trainer.emulated import device  # noqa: PLC0415 - for few tests only

    extra = device.environment(0) | {"OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        CONTEXT.set_forkserver_preload(PRELOAD)
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_ranks(
    work: Callable[P, T],
    num_ranks: int,
    *args: P.args,
    **kwargs: P.kwargs,
) -> list[T]:
    """Run `work` on every rank and return what each gave, by rank.

    Raises:
        AssertionError: a rank raised; the text of all that did.
    """
    ended = try_ranks(work, [0] * num_ranks, *args, **kwargs)
    died = {rank: end for rank, end in enumerate(ended) if isinstance(end, Died)}
    assert not died, texts_of(died)
    return cast("list[T]", ended)


def texts_of(died: Mapping[int, Died]) -> str:
    """First one line of each rank that died; then, whole, those that lost no peer."""
    lines = (f"rank {rank}: {end.text.splitlines()[0]}" for rank, end in died.items())
    causes = [
        f"rank {rank}: {end.text}"
        for rank, end in died.items()
        if not any(loss in end.text for loss in LOST_A_PEER)
    ]
    return "\n".join([*lines, *(causes or [end.text for end in died.values()])])


def run_on_device(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` alone as an emulated device, in no group: replays make their own."""
    [found] = run_ranks(without_group, 1, partial(work, *args, **kwargs))
    return found


def without_group(work: Callable[[], T]) -> T:
    """Leave the group of ranks, then work."""
    import torch.distributed as dist  # noqa: PLC0415 - the server has it

    dist.destroy_process_group()
    return work()


def try_ranks(
    work: Callable[P, T],
    caps_bytes: Sequence[int],
    *args: P.args,
    **kwargs: P.kwargs,
) -> list[T | Died]:
    """Run `work` on one rank for each cap (0: none); a rank that raises is `Died`.

    When one rank dies, those that wait for it are ended after a moment.
    """
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        ranks = []
        for rank, cap in enumerate(caps_bytes):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            place = (rank, len(caps_bytes), cap, store, theirs)
            process = CONTEXT.Process(target=be_rank, args=(place, work, args, kwargs))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        return collect(ranks)


def collect(ranks: Sequence[tuple[Any, Connection]]) -> list[Any]:
    """Wait for what every rank sends."""
    ended: list[Any] = [None] * len(ranks)
    open_ends = {ours: place for place, (_, ours) in enumerate(ranks)}
    patience_s = TIMEOUT_S
    while open_ends:
        ready = wait(list(open_ends), timeout=patience_s)
        if not ready:
            break
        for ours in cast("list[Connection]", ready):
            place = open_ends.pop(ours)
            try:
                ended[place] = pickle.loads(ours.recv_bytes())  # noqa: S301 - our own
            except EOFError:
                ended[place] = Died(f"ended without a word, {ranks[place][0].exitcode}")
            if isinstance(ended[place], Died):
                patience_s = 2.0
    is_late = patience_s == TIMEOUT_S
    why = f"was not done after {TIMEOUT_S:g} s" if is_late else ENDED_FOR_ANOTHER
    for place in open_ends.values():
        ended[place] = Died(why)
    for process, ours in ranks:
        process.kill() if open_ends else None
        process.join()
        ours.close()
    return ended


def begin_at_random() -> None:
    """Forget the generators of the server, which all ranks would go on from alike."""
    import numpy as np  # noqa: PLC0415 - the server has them
    import torch  # noqa: PLC0415

    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002 - the one that their code draws from


def be_rank(
    place: tuple[int, int, int, str, Connection],
    work: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Join the group, work, send the result; runs in the forked process."""
    rank, num_ranks, cap, store, out = place
    gc.freeze()  # a collection would walk, and so copy, all of the server's memory
    import torch  # noqa: PLC0415 - the server has it
    import torch.distributed as dist  # noqa: PLC0415

    from plimsoll_trainer.emulated.device import EmulatedDevice  # noqa: PLC0415

    torch.set_num_threads(1)
    begin_at_random()
    EmulatedDevice().set_cap(cap)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=num_ranks
        )
        out.send_bytes(pickle.dumps(work(*args, **kwargs)))  # tensors by value
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - passed to the test
        died = Died(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        out.send_bytes(pickle.dumps(died))
