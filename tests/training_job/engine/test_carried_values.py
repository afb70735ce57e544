"""Carried values within one stage: what is held, and what comes back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.carried_values import returned
from plimsoll_trainer.engine.stage import StageModule, StageSlice, build_stage
from plimsoll_trainer.torch_internals.operators import storage_of
from plimsoll_trainer.workload import Layer
from tests.support.skips import WIDTH, a_layer, a_workload, square, vectors, widen

CPU = torch.device("cpu")
ROWS = 3


def a_stage(first: int, end: int, *layers: Layer, **fields: Any) -> StageModule:
    """Some layers of a chain."""
    workload = a_workload(list(layers), vectors, **fields)
    return build_stage(workload, StageSlice(first_layer=first, end_layer=end), CPU)


def received(*, grad: bool = True) -> Tensor:
    """A leaf, as torch's stage has it."""
    return torch.randn(ROWS, WIDTH, requires_grad=grad)


def keep(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Pass a product, and give another one."""
    return parts["into"](x), parts["given"](x)


def cat(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """A product of both, side by side."""
    y: Tensor = parts["into"](torch.cat([skip, x], dim=1))
    return y


def add(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """The sum, which saves nothing."""
    del parts
    return x + skip


GIVER = a_layer("keep", keep, (), ("skip",), into=square, given=square)
ADDER = a_layer("add", add, ("skip",))
CATTER = a_layer("cat", cat, ("skip",), into=lambda: nn.Linear(2 * WIDTH, WIDTH))
PLAIN = a_layer("plain", widen, into=square)


def test_what_passes_through_is_the_very_memory_that_was_received() -> None:
    """No copy on the way, and the gradient that comes back goes on as it is."""
    stage = a_stage(1, 2, GIVER, PLAIN, ADDER)
    x, skip = received(), received()
    y, sent = stage(x, skip)
    assert storage_of(sent)[0] == storage_of(skip)[0]
    gradient = torch.randn(ROWS, WIDTH)
    torch.autograd.backward([y, sent], [torch.ones_like(y), gradient.clone()])
    assert skip.grad is not None
    assert torch.equal(skip.grad, gradient)


def test_gradients_of_takers_and_of_later_stages_add_up() -> None:
    """In the order in which one process adds them: the last one first."""
    stage = a_stage(1, 3, GIVER, ADDER, replace_name(ADDER, "more"), ADDER_LATER)
    x, skip = received(), received()
    y, sent = stage(x, skip)
    later = torch.randn(ROWS, WIDTH)
    torch.autograd.backward([y, sent], [torch.ones_like(y), later.clone()])
    assert skip.grad is not None
    assert torch.equal(skip.grad, later + 1 + 1)


def replace_name(layer: Layer, name: str) -> Layer:
    """The same layer by another name."""
    return Layer(name=name, factory=layer.factory, kind=layer.kind, takes=layer.takes)


ADDER_LATER = replace_name(ADDER, "later")


def test_the_gradient_of_a_view_owns_its_memory() -> None:
    """That behind a `cat` would keep the gradient of all of it."""
    stage = a_stage(1, 2, GIVER, CATTER, PLAIN)
    x, skip = received(), received()
    y = stage(x, skip)
    y.sum().backward()
    assert skip.grad is not None
    assert skip.grad.untyped_storage().nbytes() == skip.nbytes


def test_a_buffer_is_no_gradient_of_the_passed_value() -> None:
    """A sum hands one tensor to both, and what is added to one must not reach both."""
    stage = a_stage(1, 3, GIVER, ADDER, replace_name(ADDER, "more"), PLAIN)
    x, skip = received(), received()
    stage(x, skip).sum().backward()
    assert x.grad is not None
    assert skip.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(skip.grad, torch.full_like(skip, 2.0))


def alive_after(
    run: Callable[[Any, Tensor], tuple[Tensor, Tensor]], *, grad: bool
) -> tuple[bool, bool]:
    """Whether a value that nobody saves is held between the passes, and behind them."""
    seen: list[weakref.ref[Any]] = []

    def noted(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y, value = run(parts, x)
        seen.append(weakref.ref(value.untyped_storage()))
        return y, value

    giver = a_layer("keep", noted, (), ("skip",), into=square, given=square)
    stage = a_stage(0, 3, giver, ADDER, PLAIN, PLAIN_END)
    x = torch.randn(ROWS, WIDTH, requires_grad=grad)
    y = stage(x)
    assert isinstance(y, Tensor)
    gc.collect()
    between = seen[0]() is not None
    torch.autograd.backward(y.sum())
    stage.end_backward()
    gc.collect()
    return between, seen[0]() is not None


PLAIN_END = a_layer("end", widen, into=square)


def test_a_value_is_held_until_the_backward_pass_of_its_giver() -> None:
    """Though a sum saves nothing: bytes must not depend on what layers save."""
    assert alive_after(keep, grad=True) == (True, False)


def still(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Pass a product, and give a value without a gradient."""
    return parts["into"](x), parts["given"](x).detach()


def test_a_value_without_a_gradient_is_held_likewise() -> None:
    """By the pass of its giver."""
    assert alive_after(still, grad=True) == (True, False)


def all_still(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Give and pass on what is not trained."""
    y, value = keep(parts, x)
    return y.detach(), value.detach()


def test_a_value_of_an_untrained_giver_is_held_for_the_micro_batch() -> None:
    """No backward pass of its giver will come."""
    assert alive_after(all_still, grad=False) == (True, False)


def test_passes_without_gradients_hold_nothing() -> None:
    """An evaluation takes what a layer needs inside, and what is carried now."""
    stage = a_stage(0, 2, GIVER, ADDER, PLAIN)
    with torch.no_grad():
        stage(received(grad=False))
    assert not stage.num_in_flight


SHARING: dict[str, Callable[[Tensor], Sequence[Tensor]]] = {
    "the passed value": lambda x: (y := x * 2, y),
    "what entered": lambda x: (x * 2, x),
    "another given one": lambda x: (x * 2, y := x * 3, y),
    "a part of a tensor": lambda x: (x * 2, (x * 3)[:, : WIDTH // 2]),
    "a part of it that is contiguous": lambda x: (x * 2, (x * 3)[:2]),
}


@pytest.mark.parametrize("give", SHARING.values(), ids=SHARING)
def test_a_given_value_is_alone_in_its_memory(
    give: Callable[[Tensor], Sequence[Tensor]],
) -> None:
    """What shares it is copied, once and by the giver."""
    x = received()
    passed, given = returned(tuple(give(x)), x, (), nn.Identity())
    tensors = [x, passed, *given]
    assert len({storage_of(one)[0] for one in tensors}) == len(tensors)
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in given)
    assert all(one.is_contiguous() for one in given)


def test_a_parameter_that_is_given_is_copied() -> None:
    """Its memory may be gone by then, if replicas divide it."""
    layer = nn.Linear(WIDTH, WIDTH)
    x = torch.randn(WIDTH, WIDTH)
    _, [given] = returned((x * 2, layer.weight), x, (), layer)
    assert storage_of(given)[0] != storage_of(layer.weight)[0]


def test_a_taken_value_that_is_passed_on_is_copied() -> None:
    """The next layer may write to what passes, and others take the value."""
    x, taken = received(), received()
    passed, _ = returned(taken, x, (taken,), nn.Identity())
    assert storage_of(passed)[0] != storage_of(taken)[0]
