"""Samples for the steps, made when they are needed or ahead by other processes.

    step 0       wait | passes, exchange, optimizer step | step 1 ...
    worker 0     0.0  0.2 | 1.0  1.2                     | 2.0 ...      step.micro-batch
    worker 1     0.1  0.3 | 1.1  1.3                     | 2.1 ...

Workers are forks of the rank, so nothing of the workload has to be pickled; they are
torch's, by its `DataLoader`, and die with the rank. Each is asked for its micro-batches
by (step, first sample, number), and makes those of the next step while the rank trains
on one. A micro-batch comes back in shared memory, which the rank copies to its device.

In: a workload, and which micro-batches this rank will need. Out: a `Loader` for
`training`. Nothing here is seen by other ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from plimsoll_trainer.emulated.device import EmulatedDevice, is_emulated_device
from plimsoll_trainer.engine.batches import DEBUG, make_batch
from plimsoll_trainer.errors import TrainerError, WorkloadError, described, located
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.streams import Stream
from plimsoll_trainer.workload import BatchOfSeveral, Workload

Key: TypeAlias = tuple[int, int, int]
"""Step, first sample in its global batch, number of samples."""
KILLED_WITH_PARENT = 1
"""PR_SET_PDEATHSIG, of prctl(2)."""


class Loader(Protocol):
    """Gives a rank its samples, in the order in which it trains on them."""

    is_shared: bool
    """Whether samples lie in memory of several processes, pinned beside a GPU."""

    @property
    def state(self) -> str:
        """Of data that has a position, behind what was taken last; else empty."""
        ...

    def take(self, step: int, first: int, count: int) -> BatchOfSeveral:
        """Samples of a step.

        Raises:
            WorkloadError: they are no tensors of `count` samples.
            TrainerError: the workload raised as it made them.
        """
        ...

    def close(self) -> None:
        """Make no more."""
        ...


@dataclass
class DirectLoader:
    """Makes samples as they are asked for."""

    workload: Workload
    is_shared: bool = False

    @property
    def state(self) -> str:
        """See `Loader`."""
        return state_of(self.workload)

    def take(self, step: int, first: int, count: int) -> BatchOfSeveral:
        """See `Loader`; what is out of memory is raised as it is."""
        try:
            return make_batch(self.workload, step, first, count)
        except Exception as error:
            if isinstance(error, TrainerError) or is_out_of_memory(error):
                raise
            raise unmade((step, first, count), located(error)) from error

    def close(self) -> None:
        """Nothing is under way."""


def state_of(workload: Workload) -> str:
    """Position of data that has one."""
    return workload.batch.state() if isinstance(workload.batch, Stream) else ""


def unmade(key: Key, why: str) -> TrainerError:
    """Error for samples that could not be made."""
    return TrainerError(f"batch({', '.join(map(str, key))}) raises {why}; {DEBUG}")


@dataclass(frozen=True, slots=True)
class Fault:
    """Error of a worker, which no other process could raise as it was."""

    text: str
    breaks_contract: bool


Made: TypeAlias = tuple[Key, "BatchOfSeveral | None", str, "Fault | None"]
"""What was asked for, the samples, the position behind them; or what went wrong."""


class Samples(Dataset[Made]):
    """The samples of a workload, as torch's workers ask for them."""

    def __init__(self, workload: Workload) -> None:
        """Take the workload as it is in this process."""
        self._workload = workload

    def __getitem__(self, key: Key) -> Made:
        """Make a micro-batch; runs in a worker."""
        try:
            made = make_batch(self._workload, *key)
        except WorkloadError as error:
            return key, None, "", Fault(str(error), breaks_contract=True)
        except Exception as error:  # noqa: BLE001 - told to the rank
            return key, None, "", Fault(located(error), breaks_contract=False)
        inputs, targets = made
        batch = tuple(whole(part) for part in inputs), whole(targets)
        return key, batch, state_of(self._workload), None


def whole(tensor: Tensor) -> Tensor:
    """A tensor without the rest that it may be a view of, which would be sent too."""
    is_part = tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if is_part else tensor


class WorkerLoader:
    """Takes what workers have made ahead.

    Raises:
        OSError: the machine starts no more processes.
    """

    def __init__(
        self,
        workload: Workload,
        keys: Callable[[], Iterator[Key]],
        *,
        num_workers: int,
        num_ahead: int,
        pins: bool,
    ) -> None:
        """Start the workers.

        Args:
            workload: they call it as it is now.
            keys: all micro-batches that will be taken, in order.
            num_workers: processes.
            num_ahead: micro-batches that are made before they are taken, at least.
            pins: whether samples are to lie in pinned memory.
        """
        self.state = ""
        self.is_shared = True
        with warnings.catch_warnings():
            # Of forks beside threads, and of more workers than cores.
            warnings.simplefilter("ignore")
            self._made: Iterator[Made] | None = iter(
                DataLoader(
                    Samples(workload),
                    batch_size=None,
                    sampler=Asked(keys),
                    num_workers=num_workers,
                    prefetch_factor=-(-num_ahead // num_workers),
                    collate_fn=as_it_is,
                    pin_memory=pins,
                    worker_init_fn=partial(begin_worker, os.getpid()),
                    multiprocessing_context="fork",
                    generator=torch.Generator().manual_seed(0),
                )
            )

    def take(self, step: int, first: int, count: int) -> BatchOfSeveral:
        """See `Loader`."""
        key = step, first, count
        assert self._made is not None  # noqa: S101 - nothing is taken once it is closed
        try:
            found, batch, state, fault = next(self._made)
        except RuntimeError as error:
            raise TrainerError(
                f"a process that makes data ended before it gave batch{key}: "
                f"{described(error)}; look for what the kernel killed, or make data "
                "without such processes (loading_workers=0)"
            ) from error
        assert tuple(found) == key, f"{found} is not {key}"  # noqa: S101 - in order
        if fault is not None and fault.breaks_contract:
            raise WorkloadError(fault.text)
        if fault is not None or batch is None:
            raise unmade(key, fault.text if fault else "nothing")
        self.state = state
        return batch

    def close(self) -> None:
        """End the workers."""
        self._made = None


class Asked(Iterable[Key]):
    """Keys, as often as they are iterated; torch's word is sampler."""

    def __init__(self, keys: Callable[[], Iterator[Key]]) -> None:
        """Take a function that begins anew."""
        self._keys = keys

    def __iter__(self) -> Iterator[Key]:
        """All of them."""
        return self._keys()


def as_it_is(made: Any) -> Any:
    """Collate nothing: a key asks for a whole micro-batch."""
    return made


def begin_worker(rank_pid: int, _: int) -> None:
    """Live as long as the rank, deaf to what it answers itself; runs in the worker."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(KILLED_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != rank_pid:
        os._exit(1)  # it was gone before the kernel knew
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if is_emulated_device():
        EmulatedDevice().set_cap(0)  # what it makes lies in the memory of the machine


def open_loader(
    workload: Workload,
    keys: Callable[[], Iterator[Key]],
    *,
    num_ahead: int,
    device: torch.device,
    warn: Callable[[str], None],
) -> Loader:
    """The loader that a workload asks for; one without workers if none can be started.

    Args:
        workload: the samples, and how many workers.
        keys: see `WorkerLoader`.
        num_ahead: micro-batches of a step.
        device: pinned memory is of use to a GPU.
        warn: takes one line.
    """
    most = getattr(workload.batch, "most_workers", workload.loading_workers)
    num_workers = min(workload.loading_workers, most, num_ahead)
    if num_workers < 1:
        return DirectLoader(workload)
    pins = device.type == "cuda"
    try:
        return WorkerLoader(
            workload, keys, num_workers=num_workers, num_ahead=num_ahead, pins=pins
        )
    except OSError as error:
        warn(
            f"data is made before each step, for {num_workers} processes to make it "
            f"ahead cannot be started: {described(error)}"
        )
        return DirectLoader(workload)
