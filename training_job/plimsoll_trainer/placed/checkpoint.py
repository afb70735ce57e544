"""State of a placed rank by the names of `checkpoint.state`.

The model's own names stand in the place of layer and tensor. A model that is made from
a chain of layers (`workload.of_chain`) has the names that a pipeline gives them, so
each engine reads what the other has saved. Of several replicas the first one saves.

In: a `PlacedTrainer` between two steps. Out: what `checkpoint.saver` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll_trainer.checkpoint.flat_range import Box, FlatRange
from plimsoll_trainer.checkpoint.loader import (
    Found,
    other_model,
    read_boxes,
    saved_specs,
)
from plimsoll_trainer.checkpoint.state import LAYERS, MASTERS, OPTIMIZER, state_of
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.placed.graph import CapturedGraph
from plimsoll_trainer.placed.states import OwnedState
from plimsoll_trainer.placed.training import PlacedTrainer


def check_graph(graph: CapturedGraph, found: Found) -> None:
    """Refuse a checkpoint of another model, before anything is built.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    here = {
        f"{LAYERS}.{state.name}": TensorSpec(form.shape, form.dtype)
        for state in graph.states
        for form in [graph.nodes[state.node].form]
    }
    trained = {f"{LAYERS}.{s.name}" for s in graph.states if s.gradient is not None}
    saved = saved_specs(found.folder)
    for name in sorted(saved):
        if name.startswith(f"{LAYERS}.") and name not in here:
            raise other_model(
                found.folder, f"it holds {name}, which this workload does not have"
            )
    for name, spec in sorted(here.items()):
        if name not in saved and name in trained:
            raise other_model(found.folder, f"it lacks {name}, which this workload has")
        if saved.get(name, spec) != spec:
            raise other_model(
                found.folder, f"{name} is {saved[name]} in it, but {spec} here"
            )


@dataclass(frozen=True, slots=True)
class PlacedState:
    """State of one rank; see `checkpoint.saved_state.SavedState`."""

    trainer: PlacedTrainer

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.trainer.world.device

    @property
    def loss_scale(self) -> None:
        """Nothing is scaled in fp32."""

    def own_boxes(self) -> Iterator[Box]:
        """Yield what this rank saves: all that it holds, on the first replica."""
        if self.trainer.world.replica == 0:
            yield from self._boxes()

    def read(self, found: Found) -> None:
        """Read what this rank holds, in place.

        Raises:
            UnusableCheckpointError: it was written for another model, or is broken.
            CheckpointError: it cannot be read.
        """
        saved = saved_specs(found.folder)
        if any(name.startswith(f"{OPTIMIZER}.") for name in saved):
            self._make_optimizer_states()
        boxes = list(self._boxes())
        for box in boxes:
            spec = TensorSpec(box.whole, box.tensor.dtype)
            if saved.get(box.name) != spec:
                there = saved.get(box.name, "missing")
                raise other_model(
                    found.folder, f"{box.name} is {there} in it, but {spec} here"
                )
        read_boxes(found, boxes)

    def _boxes(self) -> Iterator[Box]:
        """Yield the tensors of this rank by name; they are the live ones."""
        for state in self.trainer.states:
            for name, tensor in named_tensors(state):
                yield from FlatRange(tensor=tensor, like=tensor).boxes(name)

    def _make_optimizer_states(self) -> None:
        """Let optimizers make their state: a step at rate 0 on gradients that are 0."""
        for state in self.trainer.states:
            if state.optimizer is not None:
                state.optimizer.step(0.0)


def named_tensors(state: OwnedState) -> Iterator[tuple[str, Tensor]]:
    """Yield a state, its master and what its optimizer keeps, by name."""
    if state.is_saved:
        yield f"{LAYERS}.{state.name}", state.tensor.detach()
    if state.optimizer is None:
        return
    [master], [parameter] = state.optimizer.masters, state.optimizer.parameters
    if master is not parameter:
        yield f"{MASTERS}.{state.name}", master.detach()
    for key, value in state_of(state.optimizer.optimizer, master):
        yield f"{OPTIMIZER}.{state.name}.{key}", value
