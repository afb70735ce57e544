"""Costs of operators: what they return is compared with what was captured."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.devices.device import HostDevice, UsedBytes
from plimsoll_trainer.errors import DeviceFullError, IncompatibleError, WorkloadError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.costs import (
    check_same,
    made_up,
    measured,
    named,
    new_bytes,
)
from plimsoll_trainer.placed.graph import Form, Kind, Node, as_captured
from plimsoll_trainer.placed.transport import memory_for
from plimsoll_trainer.torch_internals.operators import storage_of
from tests.support.branching import SAMPLES, branching
from tests.support.ranks import run_ranks


class Uncounted:
    """A device of 64 bytes that counts none."""

    kind, torch_device = DeviceKind.EMULATED, torch.device("cpu")
    backend, product = "gloo", "none"
    capacity_bytes, allocated_bytes = 64, 0

    def read_peak(self) -> UsedBytes:
        """Nothing."""
        return UsedBytes(allocated=0, reserved=0, device=0)

    def trim(self) -> None:
        """Do nothing."""


def node_of(tensor: Tensor) -> Node:
    """A node that was captured with a value like this one."""
    return Node(
        name="node",
        kind=Kind.CALL,
        operator="aten.made_up.default()",
        kwargs={},
        forms=(Form.of(tensor),),
        storages=(0,),
    )


def test_what_lies_otherwise_than_captured_is_refused() -> None:
    """Its bytes would not be those that were planned; the operator is named."""
    captured = torch.empty(2, 3)
    check_same(node_of(captured), torch.ones(2, 3))
    with pytest.raises(IncompatibleError, match=r"aten\.made_up.*strides \[1, 2\]"):
        check_same(node_of(captured), torch.ones(3, 2).t())


def test_strides_of_single_entries_may_be_any() -> None:
    """Torch reports them as they come, and no number lies elsewhere for it."""
    captured, returned = (
        torch.empty(2, 1, 3),
        torch.ones(6).as_strided((2, 1, 3), (3, 7, 1)),
    )
    assert Form.of(captured).stride != Form.of(returned).stride
    check_same(node_of(captured), returned)
    with pytest.raises(IncompatibleError, match="strides"):
        check_same(node_of(captured), torch.ones(6).as_strided((2, 1, 3), (1, 7, 2)))


def test_a_result_is_laid_as_it_was_captured() -> None:
    """A dimension of one number has no order; in what is received it has one."""
    tensor = torch.arange(6.0).view(3, 2).t()[:, None].expand(2, 4, 3)
    captured = tensor + torch.zeros(2, 4, 3)
    node = node_of(captured)
    received = memory_for(Form.of(tensor), torch.device("cpu")).copy_(tensor)
    returned = received + torch.zeros(2, 4, 3)
    assert returned.stride() != captured.stride()
    laid = as_captured(node, returned)
    assert laid.stride() == captured.stride()
    assert torch.equal(laid, captured)
    assert as_captured(node, captured) is captured


def workspaces(name: str, target: str) -> list[tuple[int, int, int]]:
    """Workspaces of an operator: as captured, with packed arguments, with some packed.

    Of its calls with other arguments, largest first.
    """
    workload = branching(name)
    graph = capture(workload, SAMPLES)
    costs = measured(graph, workload, HostDevice()).operators
    found = {
        (one.workspace_bytes, one.packed_workspace_bytes, one.mixed_workspace_bytes)
        for text, one in costs.items()
        if graph.operators[text].target == target
    }
    return sorted(found, reverse=True)


@pytest.mark.slow
def test_what_is_sent_without_gaps_need_not_be_copied_where_it_is_read() -> None:
    """A half of tokens is 8 x 8 of 8 bytes; a factor, copied in turn, 8 x 8 of 4."""
    [tokens] = run_ranks(workspaces, 1, "pair", "aten.embedding_dense_backward.default")
    assert tokens == [(512, 0, 512)]
    [products] = run_ranks(workspaces, 1, "products", "aten.bmm.default")
    assert products == [(512, 0, 256), (256, 0, 256)]


@pytest.mark.slow
def test_as_much_is_done_as_can_be() -> None:
    """8 rows are written to, by places of 8 bytes; 8 bags have 8 places each.

    Whatever the numbers are, a step takes no more than that.
    """
    [rows] = run_ranks(workspaces, 1, "masks", "aten.index_put.default")
    assert rows == [(64, 64, 64)]
    [bags] = run_ranks(workspaces, 1, "masks", "aten._embedding_bag_backward.default")
    assert bags == [(1600, 1600, 1600)]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(2, 3).t(),
        torch.empty(2, 1).expand(2, 5),
        torch.empty(4, dtype=torch.int64),
        torch.empty(0, 2),
    ],
)
def test_numbers_are_made_up_in_the_form_that_was_captured(tensor: Tensor) -> None:
    """Strides included, also where several places are one number."""
    made: Tensor = made_up(node_of(tensor), torch.device("cpu"))
    assert Form.of(made) == Form.of(tensor)
    _, storage = storage_of(made)
    assert storage.nbytes() == tensor.untyped_storage().nbytes()


def test_what_is_known_is_not_measured_again() -> None:
    """Graphs of several micro-batches share optimizers, and few operators."""
    workload = branching()
    two, four = (capture(workload, count) for count in (2, 4))
    first = measured(two, workload, Uncounted())
    both = measured(four, workload, Uncounted(), first)
    assert first.operators.keys() == two.operators.keys()
    assert both.operators.keys() == two.operators.keys() | four.operators.keys()
    for text, cost in first.operators.items():
        assert both.operators[text] is cost
    assert both.optimizers == first.optimizers


def fail(text: str) -> None:
    """Raise as torch does."""
    raise RuntimeError(text)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
            DeviceFullError,
            "it does not fit a device of 64 bytes, with nothing beside it: profile",
        ),
        ("no kernel", WorkloadError, "it cannot be .*: RuntimeError: no kernel at .*;"),
    ],
)
def test_an_operator_that_cannot_be_measured_is_named(
    text: str, kind: type[Exception], message: str
) -> None:
    """In one line, with the way out."""
    with pytest.raises(kind, match=message) as caught:
        named("it", Uncounted(), lambda: fail(text))
    assert "\n" not in str(caught.value)


def test_a_result_may_lie_in_a_larger_storage() -> None:
    """As a mean of squares does; what an operator was given is not counted again."""
    given, squares = torch.ones(4), torch.ones(16)
    known = {storage_of(given)[0]}
    assert new_bytes((given, squares[:1], squares[2:]), known) == (0, 64)
