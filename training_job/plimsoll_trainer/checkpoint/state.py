"""The tensors of a rank by names that do not depend on the plan.

    layers.block.3.mlp.0.weight               parameters and persistent buffers
    masters.block.3.mlp.0.weight              fp32 copies that the optimizer works on
    optimizer.block.3.mlp.0.weight.exp_avg    its state

The layer's own name stands where other trainers have a stage or an index. A tied tensor
goes by its first place. Of several replicas each saves a part of the layers, and where
they divide state the numbers that it owns; of several copies of a tied tensor the first
place's stage saves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from plimsoll_trainer.checkpoint.flat_range import Box, FlatRange, Part
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.flat_buffers import FlatBuffer
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.engine.shared_tensors import first_places
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.trained_layer import TrainedLayer
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import MakeOptimizer, Workload

LAYERS, MASTERS, OPTIMIZER = "layers", "masters", "optimizer"
KINDS = (LAYERS, MASTERS, OPTIMIZER)


def check_names(workload: Workload) -> None:
    """Refuse layers whose tensors could not be told apart.

    Raises:
        WorkloadError: one name goes on where another ends.
    """
    names = sorted(f"{layer.name}." for layer in workload.layers)
    for first, second in pairwise(names):
        if second.startswith(first):
            raise WorkloadError(
                f"layers {first[:-1]!r} and {second[:-1]!r} cannot be told apart in a "
                "checkpoint: rename one so that no name begins with another and a dot"
            )


def check_optimizer(make: MakeOptimizer, device: torch.device) -> None:
    """Refuse an optimizer whose state a checkpoint could not hold.

    It takes one step on one number. One that does not work on such a parameter is left
    to training, which will say so.

    Raises:
        WorkloadError: it keeps what is no tensor, or keeps it elsewhere.
    """
    parameter = nn.Parameter(torch.zeros(1, 1, device=device))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = make([parameter])
    before = settings_of(optimizer)
    try:
        optimizer.step()
    except Exception:  # noqa: BLE001 - their code
        return
    list(state_of(optimizer, parameter))
    if changed := settings_of(optimizer) - before:
        _, key, _ = min(changed)
        raise WorkloadError(
            f"the optimizer {type(optimizer).__name__} counts in its setting {key!r}, "
            "but a checkpoint holds the state of parameters: keep it there, as a tensor"
        )


def settings_of(optimizer: torch.optim.Optimizer) -> set[tuple[int, str, str]]:
    """Group, name and text of every setting of an optimizer."""
    return {
        (place, name, repr(value))
        for place, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name != "params"
    }


def state_of(
    optimizer: torch.optim.Optimizer, parameter: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield what an optimizer keeps for a parameter.

    Raises:
        WorkloadError: something is no tensor.
    """
    for key, value in optimizer.state[parameter].items():
        if isinstance(value, Tensor):
            yield key, value
        elif value is not None:
            raise WorkloadError(
                f"the optimizer {type(optimizer).__name__} keeps {key!r} of type "
                f"{type(value).__name__}, but a checkpoint holds tensors: keep it as "
                "one"
            )


def layer_specs(workload: Workload, part: StageSlice) -> dict[str, TensorSpec]:
    """Forms of some layers' parameters and buffers by name, without a byte of them.

    The layers are those that `boundaries_of` has found to work.
    """
    first = first_places(workload)
    found: dict[str, TensorSpec] = {}
    with FakeTensorMode():
        for index in range(part.first_layer, part.end_layer):
            layer = workload.layers[index].name
            built = build_layer(workload, index, torch.device("cpu"))
            for name, value in built.state_dict(keep_vars=True).items():
                if isinstance(value, Tensor):
                    base = ".".join(first.get((layer, name), (layer, name)))
                    found[f"{LAYERS}.{base}"] = TensorSpec.of(value)
    return found


class RankState:
    """State that one rank holds; tensors are the live ones, not copies."""

    def __init__(self, trainer: Trainer) -> None:
        """Find the names of the stage's tensors.

        Raises:
            WorkloadError: a layer or optimizer keeps what is no tensor.
        """
        self._trainer = trainer
        workload = trainer.workload
        self._first_place = first_places(workload)
        self._index = {layer.name: i for i, layer in enumerate(workload.layers)}
        self._tensors: dict[str, Tensor] = {}
        self._layer_of: dict[str, str] = {}
        """Layer by base name, which is the name without its kind."""
        self._base_of: dict[int, str] = {}
        """Base name by identity of a parameter."""
        self._part_of: dict[str, Part | None] = {}
        """By base name, where each rank of a tensor group has a part."""
        self._piece_of: dict[str, FlatRange | None] = {}
        """By base name, where each replica has a piece; None: not this one."""
        for index, layer in trainer.stage.layers.items():
            for name, value in layer.state_dict(keep_vars=True).items():
                self._take(workload.layers[int(index)].name, name, value)
        for trained in trainer.trained.values():
            for buffer in trained.buffers:
                if buffer.kept_values is not None:
                    self._take_pieces(buffer)

    def _take_pieces(self, buffer: FlatBuffer) -> None:
        """Note pieces of parameters that are whole only while they are at work."""
        for parameter in buffer.parameters:
            self._piece_of[self._base_of[id(parameter)]] = None
        for piece, place in buffer.owned():
            base = self._base_of[id(place.whole)]
            self._piece_of[base] = FlatRange(
                tensor=piece.detach(),
                like=place.whole,
                first=place.first,
                part=self._part_of[base],
            )

    def _take(self, layer: str, name: str, value: object) -> None:
        """Note one tensor of a layer."""
        if not isinstance(value, Tensor):
            raise WorkloadError(
                f"layer {layer!r} keeps {name!r} of type {type(value).__name__}, but a "
                "checkpoint holds tensors: make it a buffer"
            )
        first_layer, first_name = self._first_place.get((layer, name), (layer, name))
        base, value = f"{first_layer}.{first_name}", here(value)
        self._layer_of.setdefault(base, first_layer)
        self._base_of.setdefault(id(value), base)
        self._part_of.setdefault(base, Part.of(value))
        self._tensors.setdefault(f"{LAYERS}.{base}", value.detach())

    @property
    def layers(self) -> list[str]:
        """Names of the layers in this stage."""
        part = self._trainer.part
        return list(self._index)[part.first_layer : part.end_layer]

    def ranges(self) -> dict[str, FlatRange]:
        """Numbers that this rank holds now, by name of the tensor."""
        return {name: held for name, held, _ in self._held()}

    def own_boxes(self) -> Iterator[Box]:
        """Yield what this rank saves; over all ranks every number occurs once."""
        for name, held, saves in self._held():
            if saves:
                yield from held.boxes(name)

    def elsewhere(self) -> Iterator[str]:
        """Yield beginnings of names of state that other replicas alone hold, or none.

        Of what is frozen a checkpoint may have it, as it was trained before.
        """
        trained = {
            self._base_of[id(parameter)]
            for layer in self._trainer.trained.values()
            for buffer in layer.buffers
            for parameter in buffer.parameters
        }
        for base in self._layer_of.keys() - trained:
            yield from (f"{MASTERS}.{base}.", f"{OPTIMIZER}.{base}.")
        for base, piece in self._piece_of.items():
            if piece is None:
                yield f"{LAYERS}.{base}."
        for layer in self._trainer.trained.values():
            here = {id(place.whole) for place in layer.places}
            for parameter in (p for b in layer.buffers for p in b.parameters):
                if id(parameter) not in here:
                    base = self._base_of[id(parameter)]
                    yield from (f"{MASTERS}.{base}.", f"{OPTIMIZER}.{base}.")

    def _held(self) -> Iterator[tuple[str, FlatRange, bool]]:
        """Yield names, the numbers that are here, and whether this rank saves them."""
        for name, tensor in self._tensors.items():
            base = name.partition(".")[2]
            if base in self._piece_of:
                if (piece := self._piece_of[base]) is not None:
                    yield name, piece, self._saves_own(base)
                continue
            held = FlatRange(tensor=tensor, like=tensor, part=self._part_of[base])
            yield name, held, self._saves(base)
        for layer in self._trainer.trained.values():
            if layer.optimizer is not None:
                yield from self._held_of(layer, layer.optimizer)

    def _held_of(
        self, layer: TrainedLayer, optimizer: LayerOptimizer
    ) -> Iterator[tuple[str, FlatRange, bool]]:
        """Yield masters and optimizer state of a layer likewise.

        Of a piece, state that each number has is that of the piece. What a parameter
        has once is saved with its first number.
        """
        for parameter, master, place in zip(
            optimizer.parameters, optimizer.masters, layer.places, strict=True
        ):
            base = self._base_of[id(place.whole)]
            tensors = {
                f"{OPTIMIZER}.{base}.{key}": value
                for key, value in state_of(optimizer.optimizer, master)
            }
            if master is not parameter:
                tensors = {f"{MASTERS}.{base}": master.detach(), **tensors}
            for name, tensor in tensors.items():
                is_once = tensor.shape != master.shape
                part = None if is_once else self._part_of[base]
                if not layer.is_divided:
                    saves = self._saves(base) and (self._is_first_part or not is_once)
                    yield name, FlatRange(tensor=tensor, like=tensor, part=part), saves
                elif is_once:
                    is_owner = self._is_first_part and place.first == 0
                    saves = self._is_first(base) and is_owner
                    yield name, FlatRange(tensor=tensor, like=tensor), saves
                else:
                    held = FlatRange(
                        tensor=tensor, like=place.whole, first=place.first, part=part
                    )
                    yield name, held, self._saves_own(base)

    def _saves(self, base: str) -> bool:
        """Whether this rank is the one that saves what all replicas hold whole."""
        world = self._trainer.world
        index = self._index[self._layer_of[base]]
        return self._saves_own(base) and index % world.num_replicas == world.replica

    def _saves_own(self, base: str) -> bool:
        """Whether this rank saves what it holds, if no other replica holds it."""
        is_one = self._is_first_part or self._part_of[base] is not None
        return self._is_first(base) and is_one

    @property
    def _is_first_part(self) -> bool:
        """Whether this is the first rank of its tensor group."""
        return self._trainer.world.part == 0

    def _is_first(self, base: str) -> bool:
        """Whether the first of all layers that share a tensor is in this stage."""
        return self._trainer.part.holds(self._index[self._layer_of[base]])

    def make_optimizer_state(self) -> None:
        """Let optimizers make their state, layer by layer as in any step."""
        for layer in self._trainer.trained.values():
            layer.make_state()

    def take_over_read(self) -> None:
        """Let optimizers that keep parameters elsewhere have those that were read."""
        for layer in self._trainer.trained.values():
            layer.read_parameters()


def prefixes(layers: Sequence[str]) -> tuple[str, ...]:
    """Beginnings of the names of these layers' tensors."""
    return tuple(f"{kind}.{layer}." for layer in layers for kind in KINDS)
