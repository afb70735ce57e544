"""A chain in which one layer is far wider than all others.

    spec:
      workload: {entrypoint: "examples.wide_layer:workload", args: {wide: 32768}}

Cutting it into stages of equally many layers puts nearly everything on one device; the
cut that needs the least memory leaves the wide layer nearly alone: own-module.yaml and
override.yaml show both. Where the wide layer alone is more than a device holds, no cut
does: shared-layer.yaml lets two devices share it. The data are those of `examples.mlp`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from examples.mlp import cross_entropy, layer, points
from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.workload import AdamW, Workload


class WideLayer(nn.Module):
    """Widens the activations, and narrows them again."""

    def __init__(self, width: int, wide: int) -> None:
        """Build for activations of `width`, with `wide` inside."""
        super().__init__()
        self.widen = nn.Linear(width, wide)
        self.narrow = nn.Linear(wide, width)
        self.bend = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """[batch, points, width] -> [batch, points, width]."""
        y: Tensor = x + self.narrow(self.bend(self.widen(x)))
        return y


def split_wide(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank of a mesh some of the numbers inside."""
    styles = {"widen": ColwiseParallel(), "narrow": RowwiseParallel()}
    parallelize_module(module, mesh, styles, src_data_rank=None)


def workload(
    *,
    depth: int = 8,
    width: int = 128,
    wide: int = 16384,
    place: int = 3,
    num_points: int = 16,
    shared: bool = False,
    seed: int = 0,
) -> Workload:
    """Build the chain.

    Args:
        depth: number of layers between the first and the last.
        width: of these layers.
        wide: width inside the one wide layer.
        place: which of them it is, from 0.
        num_points: in a sample.
        shared: whether several devices may share the wide layer.
        seed: of weights and samples.
    """
    features, classes = 32, 8
    narrow, broad = partial(layer, width, width), partial(WideLayer, width, wide)
    made = from_factories(
        {
            "first": partial(layer, features, width),
            **{f"middle.{i}": broad if i == place else narrow for i in range(depth)},
            "last": partial(nn.Linear, width, classes),
        },
        loss=cross_entropy,
        batch=partial(points, (num_points, features), classes, seed),
        optimizer=AdamW(learning_rate=1e-3),
        seed=seed,
    )
    split = {f"middle.{place}": split_wide} if shared else {}
    layers = [replace(one, parallelize=split.get(one.name)) for one in made.layers]
    return replace(made, layers=tuple(layers))
