"""A captured step: every operator with its arguments, and where tensors lie.

Made by `capture`. A node is an input, a tensor of the model, a constant, the call of an
operator, or one part of what an operator of several results returns. Nodes are
numbered in the order in which one process ran them. Words are those of
`plimsoll_planner.records.graph_profile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

import torch
from torch import Tensor

from plimsoll_trainer.errors import WorkloadError


class Kind(StrEnum):
    """Kind of a node."""

    INPUT = "input"
    """A tensor of the batch."""
    STATE = "state"
    """A parameter or buffer."""
    CONSTANT = "constant"
    """A tensor that the model makes from numbers in its code."""
    CALL = "call"
    PART = "part"
    """One of the results of a call."""


@dataclass(frozen=True, slots=True)
class Value:
    """Stands for the value of a node among arguments."""

    node: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """Shape and place in memory of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """Form of a tensor."""
        return cls(
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            dtype=tensor.dtype,
        )

    @property
    def numel(self) -> int:
        """Numbers in it."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def num_bytes(self) -> int:
        """Of its numbers, without gaps."""
        return self.numel * self.dtype.itemsize

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides that matter: 0 where a dimension has one entry, for any would do."""
        pairs = zip(self.stride, self.shape, strict=True)
        return tuple(stride if size != 1 else 0 for stride, size in pairs)

    @property
    def is_dense(self) -> bool:
        """Whether its numbers lie one behind the other, in any order of dimensions."""
        expected = 1
        for stride, size in sorted(zip(self.stride, self.shape, strict=True)):
            if size == 1:
                continue
            if stride != expected:
                return not self.numel
            expected *= size
        return True

    @property
    def packed(self) -> Form:
        """Form of a copy that was sent: its numbers have no gaps, and begin at 0.

        One without gaps keeps its strides. Else dimensions lie in the order in which an
        operator returns them that works number by number, so what is computed from the
        copy lies as what is computed from the tensor.
        """
        if self.is_dense:
            return replace(self, offset=0)
        stride = strides_of_results(self.shape, self.stride)
        return replace(self, stride=stride, offset=0)

    @property
    def span(self) -> int:
        """Numbers from the first to the last."""
        if not self.numel:
            return 0
        pairs = zip(self.stride, self.shape, strict=True)
        return 1 + sum((size - 1) * stride for stride, size in pairs)

    @property
    def text(self) -> str:
        """It in a few letters, such as `float32[4, 8]`; strides where they matter."""
        kind = str(self.dtype).removeprefix("torch.")
        strides = "" if self.is_plain else f" strides {list(self.stride)}"
        return f"{kind}{list(self.shape)}{strides}"

    @property
    def is_plain(self) -> bool:
        """Whether it lies as a new tensor of its shape does."""
        expected = 1
        for stride, size in zip(
            reversed(self.stride), reversed(self.shape), strict=True
        ):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@cache
def strides_of_results(
    shape: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides of what an operator returns that works number by number."""
    return torch.empty_strided(shape, stride, device="meta").neg().stride()


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node."""

    name: str
    kind: Kind
    operator: str
    """Operator with its arguments in words; equal ones cost the same."""
    target: str = ""
    """Name of what is called, such as `aten.add.Tensor`; empty: nothing is."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...] = ()
    """Nodes whose values it reads, each once, in the order of arguments."""
    waits: tuple[int, ...] = ()
    """Nodes that read what it overwrites."""
    forms: tuple[Form | None, ...]
    """Of the tensors that it returns."""
    storages: tuple[int, ...]
    """That these lie in, each once."""
    is_random: bool = False
    constant: Tensor | None = None

    def may_receive(self, source: Node) -> bool:
        """Whether it may read a value that was sent: not of a storage that it returns.

        What shares a storage stands on one device.
        """
        return set(self.storages).isdisjoint(source.storages)

    @property
    def form(self) -> Form:
        """Of the one tensor that it returns; operators of several have parts."""
        [form] = self.forms
        assert form is not None  # noqa: S101 - only parts and single results get here
        return form


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """A parameter or buffer of the model."""

    name: str
    """In checkpoints; of several names in the model the first one, or a tie's first."""
    node: int
    gradient: int | None
    """Node that returns its gradient; None: it is frozen, or has no part in the
    loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedGraph:
    """Loss and gradients of a model for one micro-batch, or its loss alone."""

    nodes: tuple[Node, ...]
    storage_bytes: tuple[int, ...]
    states: tuple[State, ...]
    loss: int
    inputs: tuple[int, ...]
    """Node of each tensor of the batch; -1: nothing reads it."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Group of each node: what shares storages, or is part of one result."""
        parent = list(range(len(self.nodes)))

        def root(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        first: dict[int, int] = {}
        for index, node in enumerate(self.nodes):
            joined = [first.setdefault(storage, index) for storage in node.storages]
            if node.kind is Kind.PART:
                joined += node.inputs
            for other in joined:
                one, two = sorted((root(index), root(other)))
                parent[two] = one
        numbers: dict[int, int] = {}
        return tuple(
            numbers.setdefault(root(node), len(numbers))
            for node in range(len(self.nodes))
        )

    @property
    def operators(self) -> dict[str, Node]:
        """One node of each operator that is called."""
        return {node.operator: node for node in self.nodes if node.kind is Kind.CALL}


def require_device(graph: CapturedGraph, device: torch.device) -> None:
    """Raise `WorkloadError` if a graph has operators of a CPU, and this is a GPU.

    Graphs are captured on tensors of the CPU, of whatever device they are for.
    """
    if device.type == "cpu":
        return
    for node in graph.nodes:
        if "_for_cpu" in node.target:
            raise WorkloadError(
                f"the model is captured with {node.target}, which a GPU does not have: "
                "compute attention within torch.nn.attention.sdpa_kernel("
                "SDPBackend.MATH), or train it as a chain of layers (engine plimsoll)"
            )


def is_sent_as_it_lies(node: Node) -> bool:
    """Whether a value has no gaps; several results are never sent together."""
    return all(form is None or form.is_dense for form in node.forms)


def as_captured(node: Node, result: Any) -> Any:
    """Result of a node in the strides that were captured, which receivers have.

    Kernels differ in the strides of dimensions of one entry, which place no number, and
    may choose another layout if an argument was received without gaps: that result
    is copied.
    """
    if isinstance(result, tuple | list):
        pairs = zip(result, node.forms, strict=True)
        return [relaid(one, form) for one, form in pairs]
    return relaid(result, node.forms[0])


def relaid(result: Any, form: Form | None) -> Any:
    """A tensor in the strides of a form."""
    if not isinstance(result, Tensor) or form is None:
        return result
    if result.stride() == form.stride:
        return result
    if Form.of(result).steps == form.steps:
        return result.as_strided(form.shape, form.stride)
    return empty(form, result.device).copy_(result)


def empty(form: Form, device: torch.device) -> Tensor:
    """Memory for a tensor."""
    return torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device=device)


def filled(
    argument: Any, values: Sequence[Any] | Mapping[int, Any], device: torch.device
) -> Any:
    """An argument with values in the place of what stands for them.

    A device in it is the one that tensors were captured on, in place of the rank's.
    """
    match argument:
        case Value(node):
            return values[node]
        case tuple() | list():
            return [filled(one, values, device) for one in argument]
        case dict():
            return {name: filled(one, values, device) for name, one in argument.items()}
        case torch.device():
            return device
        case _:
            return argument
