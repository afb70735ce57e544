"""An optimizer in the host's memory, for parameters and gradients of a device.

The host holds once more what this replica owns of a layer, and steps on that:

    device    parameters             gradients
                  ^                      |
    host      parameters  <- masters <- sums of gradients      optimizer state
                             where parameters are not fp32

So the device holds parameters and gradients alone, and nothing on top in a step: types
are changed on the host. The step itself is that of `LayerOptimizer`, on other tensors;
in this process it gives the same bits. Beside a GPU it is torch's fused one, unless the
user has chosen: 0.9 ns instead of 7.0 for a number of AdamW on one core (torch 2.15).

In: buffers of a layer. Called by `trained_layer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.flat_buffers import FlatBuffer, by_type
from plimsoll_trainer.engine.gradients import attach, gradient_of, parts_of, sizes_of
from plimsoll_trainer.engine.host_link import HostLink, Wait, made_on_host, nothing
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.engine.sharded_optimizer import PieceOf
from plimsoll_trainer.workload import MakeOptimizer


class HostMirror:
    """Parameters and gradients that a replica owns of a layer, once more on the host.

    Gradients lie as in the buffer; parameters are in one piece for each type.
    """

    def __init__(self, buffers: Sequence[FlatBuffer], link: HostLink) -> None:
        """Copy the parameters."""
        self.link = link
        self._parameters: list[tuple[Tensor, Tensor]] = []
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self.owned: list[tuple[nn.Parameter, PieceOf]] = []
        """What an optimizer is to step on, as `FlatBuffer.owned` yields it."""
        for buffer in buffers:
            self._take(buffer)
        self.read_parameters()

    def _take(self, buffer: FlatBuffer) -> None:
        """Make room for what is owned of a buffer, unless that is padding alone."""
        place_of = dict(buffer.owned())
        if not place_of:
            return
        there = buffer.own_gradients
        gradients = self.link.empty(there.numel(), there.dtype)
        self._gradients.append((gradients, there))
        for group in by_type(place_of):
            values = self.link.empty(sum(sizes_of(group)), group[0].dtype)
            for parameter, part in zip(group, parts_of(values, group), strict=True):
                mirror, own = nn.Parameter(part), gradient_of(parameter)
                assert own is not None  # noqa: S101 - a buffer has one for each
                start = own.storage_offset() - there.storage_offset()
                attach(mirror, gradients.as_strided(own.shape, own.stride(), start))
                self._parameters.append((part, parameter.detach()))
                self.owned.append((mirror, place_of[parameter]))

    def read_parameters(self) -> None:
        """Take over the device's parameters."""
        self.link.to_host(self._parameters)()

    def fetch_gradients(self) -> Wait:
        """Bring gradients here; returns what waits for them."""
        return self.link.to_host(self._gradients)

    def send_parameters(self) -> None:
        """Give the device what was stepped on, and set its gradients to zero."""
        self.link.to_device(self._parameters)
        for _, there in self._gradients:
            there.zero_()

    def tensors(self) -> Iterable[Tensor]:
        """Yield what is here."""
        for host, _ in (*self._parameters, *self._gradients):
            yield host


class HostOptimizer(LayerOptimizer):
    """The optimizer of one layer, on a mirror of what the device has."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        make: MakeOptimizer,
        mirror: HostMirror,
        least: torch.dtype = torch.float32,
    ) -> None:
        """Make the optimizer on parameters of a mirror, in the order of the layer."""
        with made_on_host():
            super().__init__(parameters, make, least)
        if mirror.link.is_cuda:
            choose_fused(self.optimizer)
        self._mirror = mirror
        self._wait = nothing

    def begin(self) -> None:
        """Let gradients come; those of other layers may follow meanwhile."""
        self._wait = self._mirror.fetch_gradients()

    @torch.no_grad()
    def step(self, learning_rate_factor: float) -> None:
        """Step on gradients that `begin` has asked for, and send parameters."""
        self._wait()
        with made_on_host():
            self.update(learning_rate_factor)
        self._mirror.send_parameters()

    def read_parameters(self) -> None:
        """Take over the device's parameters, as after a checkpoint was read."""
        self._mirror.read_parameters()

    @property
    def held_bytes(self) -> int:
        """Bytes of the host's tensors between two steps."""
        states = self.optimizer.state.values()
        kept = (value for state in states for value in state.values())
        found = (*self._mirror.tensors(), *self.masters, *kept)
        storages = {
            each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
            for each in found
            if isinstance(each, Tensor)
        }
        return sum(storages.values())

    @property
    def cast_bytes(self) -> int:
        """Bytes of gradients in the type of a step, where sums are of another."""
        return sum(
            master.nbytes
            for parameter, master in zip(self.parameters, self.masters, strict=True)
            if (own := gradient_of(parameter)) is not None and own.dtype != master.dtype
        )


def try_on_host(make: MakeOptimizer) -> None:
    """Step on a matrix and a vector of the host; raises what the optimizer raises."""
    with made_on_host():
        tried = [
            nn.Parameter(torch.zeros(shape, device="cpu")) for shape in ((4, 4), (4,))
        ]
        for parameter in tried:
            parameter.grad = torch.ones_like(parameter)
        LayerOptimizer(tried, make).step(0.0)


def steps_on_host(make: MakeOptimizer) -> bool:
    """Whether an optimizer steps on tensors of the host; one that raises does not."""
    try:
        try_on_host(make)
    except Exception:  # noqa: BLE001 - their code
        return False
    return True


def choose_fused(optimizer: torch.optim.Optimizer) -> None:
    """Let groups take torch's fused step, where there is one and nobody has chosen."""
    for group in optimizer.param_groups:
        chosen = {group.get("fused", False), group.get("foreach", False)}
        if chosen == {None} and not (
            group.get("differentiable") or group.get("capturable")
        ):
            group["fused"] = True
