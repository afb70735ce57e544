"""Activations on the host: the same numbers, and no memory of the device meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from examples import mlp
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.host_link import HostLink, Wait
from plimsoll_trainer.engine.layer_runs import run_once
from plimsoll_trainer.engine.offloaded_layers import HostPool, saved_on_host
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import WorkloadError
from tests.support.ranks import Died, run_on_device, run_ranks, try_ranks

CPU = torch.device("cpu")


def a_layer() -> nn.Module:
    """A layer with a buffer, a norm, and tensors that are saved more than once."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.Tanh()
    )


def gradients(
    layer: nn.Module, x: Tensor, pool: HostPool | None, *, recomputed: bool = False
) -> list[Tensor]:
    """Gradients of a layer's parameters and input, by one pass."""
    x = x.clone().requires_grad_()
    run: Callable[[Tensor], Tensor] = partial(run_once, layer, recomputed=recomputed)
    if pool is None:
        y = run(x)
    else:
        with saved_on_host(layer, pool):
            y = run(x)
    wanted = [x, *layer.parameters()]
    return list(torch.autograd.grad(y.square().sum(), wanted))


@pytest.mark.parametrize("recomputed", [False, True])
def test_offloading_changes_no_bit(recomputed: bool) -> None:
    """Also of a layer that recomputes, whose input alone is saved."""
    layer, x, pool = a_layer(), torch.randn(8, 64), HostPool(HostLink(CPU))
    wanted = gradients(layer, x, None)
    found = gradients(layer, x, pool, recomputed=recomputed)
    assert all(map(torch.equal, found, wanted))
    input_bytes = x.nbytes
    if recomputed:
        assert pool.num_bytes == input_bytes
    else:
        assert pool.num_bytes > input_bytes


def test_memory_of_the_host_is_used_again() -> None:
    """By the next micro-batch, once the backward pass of the one before has run."""
    layer, x, pool = a_layer(), torch.randn(8, 64), HostPool(HostLink(CPU))
    gradients(layer, x, pool)
    first_bytes = pool.num_bytes
    gradients(layer, x, pool)
    assert pool.num_bytes == first_bytes
    held = []
    for _ in range(2):
        with saved_on_host(layer, pool):
            held.append(layer(x))
    assert pool.num_bytes == 2 * first_bytes


class Spectrum(nn.Module):
    """Saves complex numbers, and the conjugates of them in the same memory."""

    def forward(self, x: Tensor) -> Tensor:
        """Power of each frequency."""
        found: Tensor = torch.fft.fft(x)
        power: Tensor = (found * found.conj()).real
        return power * x


class TwoTypes(torch.autograd.Function):
    """Saves numbers that lie in the bytes of a tensor which is saved as well.

    The backward pass asks for each of them twice.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Twice the input."""
        memory = torch.zeros(4 * x.numel() + 3, dtype=torch.uint8)
        numbers = memory[:-3].view(torch.float32).view(x.shape)
        numbers.copy_(x)
        ctx.save_for_backward(memory, numbers)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Depends on what was saved."""
        more: Tensor = ctx.saved_tensors[0][:-3].view(torch.float32)
        numbers: Tensor = ctx.saved_tensors[1]
        return gradients[0] * numbers + more.view(numbers.shape)


class Types(nn.Module):
    """See `TwoTypes`."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice the input."""
        found: Tensor = TwoTypes.apply(x)
        return found


class Recurrent(nn.Module):
    """Writes to gates in turn, all of which lie in one memory."""

    def __init__(self, cell: nn.Module) -> None:
        """Hold a cell of 64 numbers."""
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        """The state after two steps."""
        state: Any = None
        for one in (x, x.flip(-1)):
            state = self.cell(one, state)
        found: Tensor = state[0] if isinstance(state, tuple) else state
        return found


@pytest.mark.parametrize(
    "layer",
    [
        Spectrum(),
        Types(),
        Recurrent(nn.GRUCell(64, 64)),
        Recurrent(nn.LSTMCell(64, 64)),
    ],
    ids=["complex", "types", "gates of GRU", "gates of LSTM"],
)
def test_views_of_any_kind_come_back_as_they_were(layer: nn.Module) -> None:
    """Conjugates, several types in one memory, and tensors that are asked for twice.

    And parts of one memory that are saved after each other, one written to in between.
    """
    torch.manual_seed(0)
    x, pool = torch.randn(8, 64), HostPool(HostLink(CPU))
    wanted = gradients(layer, x, None)
    assert all(map(torch.equal, gradients(layer, x, pool), wanted))
    assert pool.num_bytes > 0


class Unused(nn.Module):
    """Computes what no gradient comes back to, as a statistic of its input is."""

    def forward(self, x: Tensor) -> Tensor:
        """The input, once it was looked at."""
        self.statistic = torch.sigmoid((x * x).mean())
        return x * 2


def test_what_no_gradient_comes_back_to_is_let_go_of() -> None:
    """Its small output is saved by autograd, in the graph that it is of."""
    layer, x, pool = Unused(), torch.randn(8, 64), HostPool(HostLink(CPU))
    gradients(layer, x, pool)
    first_bytes = pool.num_bytes
    for _ in range(3):
        gradients(layer, x, pool)
        gc.collect()
    assert pool.num_bytes <= 2 * first_bytes


def held_bytes(*, offloaded: bool) -> int:
    """Bytes of the device that a layer holds between the passes, but for its output."""
    device, layer = EmulatedDevice(), a_layer()
    pool = HostPool(HostLink(CPU))
    x = torch.randn(512, 64)
    before = device.current_bytes
    y = x * 1
    if offloaded:
        with saved_on_host(layer, pool):
            y = layer(y)
    else:
        y = layer(y)
    joint = y.mean()
    del y
    gc.collect()
    found = device.current_bytes - before
    joint.backward()
    return found


def test_nothing_is_left_on_the_device() -> None:
    """But means and deviations of norms, and what is too small to be worth a copy."""
    kept, offloaded = (
        run_on_device(partial(held_bytes, offloaded=one)) for one in (False, True)
    )
    assert kept > 10 * 512 * 64
    assert offloaded < 1024


class Writes(nn.Module):
    """Overwrites what its backward pass needs."""

    def forward(self, x: Tensor) -> Tensor:
        """Square, then change the factor."""
        factor = x * 2
        y = factor * factor
        factor.zero_()
        return y


def test_a_write_to_what_was_saved_is_found() -> None:
    """A copy that runs beside the device may have either value."""
    x = torch.randn(8, 64, requires_grad=True)
    with (
        pytest.raises(WorkloadError, match=r"writes in place .* shape \[8, 64\]"),
        saved_on_host(nn.Identity(), HostPool(HostLink(CPU))),
    ):
        Writes()(x)


class SlowLink(HostLink):
    """Notes each copy, and the waits for it."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        super().__init__(CPU)
        self.seen: list[str] = []

    def start(self, to: Tensor, source: Tensor) -> Wait:
        """Copy at once, and note when somebody waits."""
        super().start(to, source)
        name = str(source.nbytes // 4)
        self.seen.append(f"copy {name}")
        return lambda: self.seen.append(f"wait {name}")


class Steps(nn.Module):
    """Saves three tensors, each longer than the one before."""

    def forward(self, x: Tensor) -> Tensor:
        """Three products."""
        for count in (300, 400, 500):
            x = x.square().sum().expand(count).clone()
        return x.square()


def test_copies_come_one_ahead() -> None:
    """All of a layer is out when it ends; each comes while the next one is used."""
    link = SlowLink()
    x = torch.ones(256, requires_grad=True)
    with saved_on_host(nn.Identity(), HostPool(link)):
        y = Steps()(x)
    sizes = ("256", "300", "400", "500")
    assert link.seen == [
        *(f"copy {size}" for size in sizes),
        *(f"wait {size}" for size in sizes),
    ]
    link.seen.clear()
    y.sum().backward()
    assert link.seen == [
        *("copy 500", "copy 400", "wait 500"),
        *("copy 300", "wait 400"),
        *("copy 256", "wait 300"),
        "wait 256",
    ]


DEEP = 12
"""Layers whose outputs alone take 3 MiB."""


def losses_of(part: StageSlice) -> list[float]:
    """Losses of two steps of a chain of wide samples, on one device."""
    workload = mlp.workload(depth=DEEP - 2, width=32, num_points=2048)
    trainer = Trainer(
        workload,
        slices=[part],
        boundaries=boundaries_of(workload, 1),
        num_micro_batches=2,
        world=join_world(1, 1, CPU),
    )
    return [float(trainer.run_step(step).loss) for step in range(2)]


def test_what_fits_no_device_trains_if_it_is_offloaded() -> None:
    """2 MiB are too few if all layers recompute; losses are those of a large device."""
    every, caps = frozenset(range(DEEP)), [2 * 2**20]
    kept = StageSlice(first_layer=0, end_layer=DEEP)
    again, away = replace(kept, recomputed=every), replace(kept, offloaded=every)
    [large] = run_ranks(losses_of, 1, kept)
    [small] = try_ranks(losses_of, caps, again)
    assert isinstance(small, Died)
    assert "can't allocate memory" in small.text
    for part in (away, replace(away, recomputed=every)):
        assert try_ranks(losses_of, caps, part) == [large]
