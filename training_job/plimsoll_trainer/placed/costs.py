"""Costs of operators and optimizers, each measured alone on the device.

In: a captured graph, a workload, a device. Out: `Costs`. Called by whoever profiles a
graph; it holds the tensors of one operator at a time, so models of any size fit.

    seconds      the least of some runs, on numbers that are made up; as it is run in a
                 step, arguments are put together each time
    workspace    the most that is held while it runs, beyond what goes in and comes out;
                 also where all arguments with gaps, or some, were sent and have none
    storages     what stays held with what it returns

Operators are also compared with what was captured: what they return must lie in memory
as it does without data, or peaks would not be exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from plimsoll_trainer.devices.device import Device
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.errors import (
    DeviceFullError,
    IncompatibleError,
    TrainerError,
    WorkloadError,
    located,
)
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.placed.graph import (
    CapturedGraph,
    Form,
    Node,
    Value,
    as_captured,
    empty,
    filled,
    is_sent_as_it_lies,
    require_device,
)
from plimsoll_trainer.placed.workload import PlacedWorkload
from plimsoll_trainer.torch_internals.graphs import arguments_of
from plimsoll_trainer.torch_internals.joint_graph import operator_of
from plimsoll_trainer.torch_internals.operators import storage_of, tree_iter

Cost = TypeVar("Cost")
NUM_RUNS = 3
"""Of each operator; the first may load what stays."""
COUNTS = ("bag_size",)
"""Arguments of whole numbers that are no indices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorCost:
    """Cost of one call of an operator."""

    seconds: float
    workspace_bytes: int
    packed_workspace_bytes: int
    """If all arguments with gaps that may be sent were, and have none."""
    mixed_workspace_bytes: int
    """At the most, if some of them were."""
    storage_bytes: tuple[int, ...] = ()
    """Of each storage that it returns, in their order; 0: it is that of an input. A
    kernel may return a part of a larger one, which nobody sees without running it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerCost:
    """Cost of an optimizer for one parameter."""

    state_bytes: int
    """From step to step."""
    step_bytes: int
    """On top while it steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs of everything that a graph has."""

    operators: dict[str, OperatorCost]
    """By their text."""
    optimizers: dict[str, OptimizerCost]
    """By the form of the parameter."""


UNKNOWN = Costs(operators={}, optimizers={})
"""Nothing is measured: a graph is carried out without costs."""


def measured(
    graph: CapturedGraph,
    workload: PlacedWorkload,
    device: Device,
    known: Costs = UNKNOWN,
) -> Costs:
    """Costs of a graph on a device.

    Args:
        graph: that was captured.
        workload: that it was captured from.
        device: to measure on.
        known: costs of other graphs of this workload, which are not measured again.

    Returns:
        What is known, and the costs of this graph.

    Raises:
        IncompatibleError: an operator returns something else than was captured.
        DeviceFullError: an operator or an optimizer does not fit the device alone.
        WorkloadError: an operator cannot run on made-up numbers, or on this device.
    """
    require_device(graph, device.torch_device)
    operators, optimizers = dict(known.operators), dict(known.optimizers)
    with torch.no_grad():
        for text, node in graph.operators.items():
            if text not in operators:
                operators[text] = named(
                    f"operator {text}",
                    device,
                    partial(operator_cost, graph, node, device),
                )
    for state in graph.states:
        form = graph.nodes[state.node].form
        if state.gradient is not None and form.text not in optimizers:
            optimizers[form.text] = named(
                f"the optimizer of {state.name}, {form.text},",
                device,
                partial(optimizer_cost, form, workload, device),
            )
    return Costs(operators=operators, optimizers=optimizers)


def named(what: str, device: Device, measure: Callable[[], Cost]) -> Cost:
    """A cost; an error names what was measured.

    Raises:
        DeviceFullError: it does not fit the device alone.
        WorkloadError: it raises.
    """
    try:
        return measure()
    except TrainerError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise DeviceFullError(
                f"{what} does not fit a device of {device.capacity_bytes} bytes, with "
                "nothing beside it: profile and train on a larger device, or with "
                "smaller micro-batches"
            ) from error
        raise WorkloadError(
            f"{what} cannot be measured on made-up numbers: {located(error)}; train "
            "it as a chain of layers"
        ) from error


def operator_cost(graph: CapturedGraph, node: Node, device: Device) -> OperatorCost:
    """Cost of one operator."""
    inputs = {one: graph.nodes[one] for one in node.inputs}
    cost = call_cost(node, inputs, device)
    sent = {
        one: replace(source, forms=tuple(form and form.packed for form in source.forms))
        for one, source in inputs.items()
        if node.may_receive(source) and not is_sent_as_it_lies(source)
    }
    if not sent:
        return cost
    packed = call_cost(node, inputs | sent, device, is_packed=True)
    mixed = [
        call_cost(node, inputs | part, device, is_packed=True) for part in some_of(sent)
    ]
    every = (cost, packed, *mixed)
    return replace(
        cost,
        packed_workspace_bytes=packed.workspace_bytes,
        mixed_workspace_bytes=max(one.workspace_bytes for one in mixed or every),
        storage_bytes=tuple(map(max, *(one.storage_bytes for one in every))),
    )


def some_of(sent: Mapping[int, Node]) -> Iterator[dict[int, Node]]:
    """Yield each of several alone, and all but each: of three, all that there is."""
    for count in sorted({1, len(sent) - 1} - {0, len(sent)}):
        for some in combinations(sent, count):
            yield {one: sent[one] for one in some}


def call_cost(
    node: Node, inputs: Mapping[int, Node], device: Device, *, is_packed: bool = False
) -> OperatorCost:
    """Cost of a call on inputs of some forms; `is_packed`: of others than captured."""
    operator = operator_of(node.target)
    arguments = arguments_of(operator, node.args, node.kwargs)
    counts = [arguments[name] for name in COUNTS if name in arguments]
    values = {
        one: made_up(source, device.torch_device, is_count=Value(one) in counts)
        for one, source in inputs.items()
    }
    given = {storage_of(one)[0] for one in tree_iter(values) if isinstance(one, Tensor)}
    seconds, workspace, fresh = float("inf"), 0, tuple[int, ...]()
    for _ in range(NUM_RUNS):
        before = device.allocated_bytes
        device.read_peak()
        wait(device)
        begin_s = time.perf_counter()
        args = filled(node.args, values, device.torch_device)
        kwargs = filled(dict(node.kwargs), values, device.torch_device)
        result = operator(*args, **kwargs)
        if is_packed:
            result = as_captured(node, result)
        wait(device)
        seconds = min(seconds, time.perf_counter() - begin_s)
        peak = device.read_peak().allocated
        fresh = new_bytes(result, given)
        workspace = max(0, peak - before - sum(fresh))
        check_same(node, result)
        del result
    return OperatorCost(
        seconds=seconds,
        workspace_bytes=workspace,
        packed_workspace_bytes=workspace,
        mixed_workspace_bytes=workspace,
        storage_bytes=fresh,
    )


def new_bytes(result: Any, given: set[int]) -> tuple[int, ...]:
    """Bytes of each storage that an operator returned, 0 of those that it was given."""
    found: dict[int, int] = {}
    for tensor in tree_iter(result):
        if isinstance(tensor, Tensor):
            key, storage = storage_of(tensor)
            found[key] = 0 if key in given else storage.nbytes()
    return tuple(found.values())


def wait(device: Device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.torch_device.type == "cuda":
        torch.cuda.synchronize(device.torch_device)


def made_up(node: Node, device: torch.device, *, is_count: bool = False) -> Any:
    """Tensors in the place of what a node returns: ones, or zeros where they index.

    Of all numbers, these let an operator take the most memory: masks let everything
    through, and no bag is empty.
    """
    rows = [
        None
        if form is None
        else empty(form, device).fill_(is_count or not is_index(form.dtype))
        for form in map(without_overlap, node.forms)
    ]
    laid = [
        None if row is None or form is None else row.as_strided(form.shape, form.stride)
        for row, form in zip(rows, node.forms, strict=True)
    ]
    return laid[0] if len(laid) == 1 else laid


def without_overlap(form: Form | None) -> Form | None:
    """Storage of a tensor as one row of numbers."""
    if form is None:
        return None
    return Form(shape=(form.span,), stride=(1,), offset=0, dtype=form.dtype)


def is_index(dtype: torch.dtype) -> bool:
    """Whether numbers of a type may be indices, of which 0 is one anywhere."""
    is_number = dtype.is_floating_point or dtype.is_complex
    return not is_number and dtype is not torch.bool


def check_same(node: Node, result: Any) -> None:
    """Raise `IncompatibleError` if an operator returns what was not captured."""
    leaves = list(result) if isinstance(result, tuple | list) else [result]
    for form, leaf in zip(node.forms, leaves, strict=False):
        if form is None or not isinstance(leaf, Tensor):
            continue
        found = Form.of(leaf)
        if (found.shape, found.steps) != (form.shape, form.steps):
            raise IncompatibleError(
                f"{node.operator} returns {found.text} on this device, but "
                f"{form.text} was captured, so its bytes cannot be planned: use a "
                "release of torch that Plimsoll is tested with, or a chain of layers"
            )


def optimizer_cost(
    form: Form, workload: PlacedWorkload, device: Device
) -> OptimizerCost:
    """Cost of the optimizer of one parameter, from its second step on."""
    parameter = nn.Parameter(empty(form, device.torch_device).fill_(1.0))
    parameter.grad = torch.ones_like(parameter)
    before = device.allocated_bytes
    optimizer = LayerOptimizer([parameter], workload.optimizer)
    optimizer.step(0.0)
    after = device.allocated_bytes
    device.read_peak()
    optimizer.step(0.0)
    peak = device.read_peak().allocated
    return OptimizerCost(state_bytes=after - before, step_bytes=max(0, peak - after))
