"""Carries out the actions of one rank, for one micro-batch at a time.

In: a captured graph, the list of actions of this rank (`plimsoll_planner.graph.
actions`), and what it is given. What it holds at every moment follows from that list
alone, by the rules of `plimsoll_planner.graph.curve`. Called by `training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plimsoll_planner.graph.actions import Action, Step
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.graph import (
    CapturedGraph,
    Form,
    Kind,
    Node,
    as_captured,
    empty,
    filled,
)
from plimsoll_trainer.placed.transport import Transport
from plimsoll_trainer.random_keys import random_key, seed_device
from plimsoll_trainer.torch_internals.joint_graph import operator_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a micro-batch is run on."""

    tensors: tuple[Tensor, ...]
    """Of the batch, in the host's memory; none where the rank has no input."""
    step: int
    first_sample: int


class Interpreter:
    """Values of one rank while a micro-batch passes."""

    def __init__(
        self,
        graph: CapturedGraph,
        transport: Transport,
        device: torch.device,
        seed: int,
        *,
        states: Mapping[int, Tensor],
        gradients: Mapping[int, Tensor],
    ) -> None:
        """Take what stands on the rank.

        Args:
            graph: that is run.
            transport: to the other ranks.
            device: of the rank.
            seed: of the workload.
            states: parameters and buffers by node.
            gradients: that are added to, by place of the parameter.
        """
        self._graph, self._transport, self._device = graph, transport, device
        self._seed, self._states, self._gradients = seed, states, gradients
        self._place = {node: at for at, node in enumerate(graph.inputs)}
        self._operators = {
            node.target: operator_of(node.target) for node in graph.operators.values()
        }
        self._values: dict[int, Any] = {}
        self._given = Given(tensors=(), step=0, first_sample=0)
        self._carry_out: dict[Step, Callable[[Action], None]] = {
            Step.RUN: self._run,
            Step.SEND: self._send,
            Step.RECEIVE: self._receive,
            Step.SENT: self._end,
            Step.RECEIVED: self._end,
            Step.ADD: self._add,
            Step.FREE: self._free,
            Step.FREE_COPY: self._free,
        }

    @torch.no_grad()
    def run(self, actions: Iterable[Action], given: Given) -> None:
        """Carry out actions, one after the other."""
        self._given = given
        for action in actions:
            self._carry_out[action.step](action)
        self._given = Given(tensors=(), step=0, first_sample=0)

    def value(self, node: int) -> Tensor | None:
        """Value of a node, if it is here."""
        return self._values.get(node)

    def _run(self, action: Action) -> None:
        node = self._graph.nodes[action.node]
        self._values[action.node] = self._result(action.node, node)

    def _result(self, index: int, node: Node) -> Any:
        """What a node returns."""
        match node.kind:
            case Kind.STATE:
                return self._states[index]
            case Kind.INPUT:
                return laid_out(self._sample(index, node), node, self._device)
            case Kind.CONSTANT:
                assert node.constant is not None  # noqa: S101 - by its kind
                return laid_out(node.constant, node, self._device)
            case Kind.PART:
                source, part = node.args
                return self._values[source.node][part]
            case Kind.CALL:
                return self._called(index, node)

    def _sample(self, index: int, node: Node) -> Tensor:
        """A tensor of the batch.

        Raises:
            WorkloadError: it has another shape or type than the one that was captured.
        """
        tensors, place = self._given.tensors, self._place[index]
        found = f"one of {len(tensors)} tensors"
        if place < len(tensors):
            form = Form.of(tensors[place])
            if (form.shape, form.dtype) == (node.form.shape, node.form.dtype):
                return tensors[place]
            found = form.text
        raise WorkloadError(
            f"{node.name} in step {self._given.step}, from sample "
            f"{self._given.first_sample} on, is {found}, but {node.form.text} was "
            "captured in step 0: give batches of one shape and type, as by padding"
        )

    def _called(self, index: int, node: Node) -> Any:
        """Result of an operator."""
        if node.is_random:
            given = self._given
            key = random_key(self._seed, given.step, given.first_sample, index)
            seed_device(self._device, key)
        args = filled(node.args, self._values, self._device)
        kwargs = filled(dict(node.kwargs), self._values, self._device)
        return as_captured(node, self._operators[node.target](*args, **kwargs))

    def _send(self, action: Action) -> None:
        self._transport.send(action.node, self._values[action.node], action.peer)

    def _receive(self, action: Action) -> None:
        form = self._graph.nodes[action.node].form
        received = self._transport.receive(action.node, form, action.peer)
        self._values[action.node] = received

    def _end(self, action: Action) -> None:
        self._transport.end(action.node, action.peer)

    def _add(self, action: Action) -> None:
        self._gradients[action.peer].add_(self._values[action.node])

    def _free(self, action: Action) -> None:
        del self._values[action.node]


def laid_out(given: Tensor, node: Node, device: torch.device) -> Tensor:
    """A copy of a tensor on the device, laid out as it was captured."""
    return empty(node.form, device).copy_(given)
