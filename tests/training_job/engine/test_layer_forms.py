"""Layers that carry values are called and return as they declare, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import Batch, Layer, Workload
from tests.support.skips import (
    MODELS,
    WIDTH,
    a_layer,
    a_workload,
    add,
    keep,
    square,
    vectors,
    widen,
)


def a_chain(
    first: Callable[..., Any], second: Callable[..., Any] = add, **fields: Any
) -> Workload:
    """A layer that gives a value, one that takes it, and one behind."""
    layers = [
        a_layer("giver", first, (), ("skip",), into=square),
        a_layer("taker", second, ("skip",), into=square),
        a_layer("end", widen, into=square),
    ]
    return a_workload(layers, vectors, **fields)


def writing(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """Write to what is taken."""
    skip.mul_(2)
    return add(parts, x, skip)


def failing(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """Fail on a form."""
    y: Tensor = parts["into"](x) + skip[:, :3]
    return y


def giving(*values: Any) -> Callable[..., Any]:
    """A layer that returns these behind its product."""
    return lambda parts, x: (parts["into"](x), *values)


REFUSED = {
    "no tuple": (
        a_chain(widen),
        "layer 'giver' returns one tensor, but gives a tuple of the passed tensor and "
        "'skip'",
    ),
    "too many": (a_chain(giving(1, 2)), "layer 'giver' returns a tuple of 3, but"),
    "no tensor": (a_chain(giving(1)), "layer 'giver' returns int as 'skip', but"),
    "written to": (
        a_chain(keep, writing),
        "layer 'taker' writes to 'skip', which it takes and others may need",
    ),
    "another form": (
        a_chain(keep, failing),
        r"layer 'taker' fails on float32\[2, 16\], which 'giver' gives, and 'skip', "
        r"float32\[2, 16\], which layer 'giver' gives: ",
    ),
    "undeclared": (
        a_workload([a_layer("one", keep, into=square)], vectors),
        "layer 'one' returns tuple, but layers pass one tensor on: .* in `gives`",
    ),
    "not taken": (
        a_workload(
            [Layer(name="one", factory=lambda: nn.Bilinear(4, 4, 4), kind="one")],
            vectors,
        ),
        "layer 'one' takes several inputs, input1, input2, .* in its `takes`",
    ),
}


@pytest.mark.parametrize(("workload", "why"), REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_contract_is_named(workload: Workload, why: str) -> None:
    """With the layer and the value, before anything is computed."""
    with pytest.raises(WorkloadError, match=why):
        boundaries_of(workload, 2)


def test_what_crosses_each_cut_is_known() -> None:
    """The passed value first; integers and inputs need no gradient."""
    found = boundaries_of(MODELS["memory"](), 2)
    names = [[one.value.name for one in found.entering(at)] for at in range(8)]
    assert names == [["target"]] * 4 + [["memory"]] * 2 + [[]] * 2
    needs = {one.value.name: one.needs_gradient for one in found.carried}
    assert needs == {"target": False, "memory": True}
    for boundary in range(8):
        tensors = found.specs_of(boundary)
        assert [one.nbytes for one in found.crossing(boundary)] == [
            one.nbytes for one in tensors
        ]


def several(*inputs: Any) -> Callable[[int, int, int], Batch]:
    """A batch of these inputs."""
    return lambda step, first, count: (inputs, torch.zeros(count, 2))  # noqa: ARG005


TWO = torch.zeros(2, WIDTH)
BATCHES = {
    "one tensor": (
        vectors,
        "gives a tuple of Tensor and Tensor, but a tuple of a tuple of tensors and a "
        "tensor is needed: the first input and 'other', then the targets",
    ),
    "too few": (several(TWO), "gives 1 inputs, but the workload has 2: the first one"),
    "no tensor": (several(TWO, 3), "gives int as 'other', but a tensor is needed"),
    "too short": (several(TWO, TWO[:1]), "but the first dimension must be 2 samples"),
}


EXAMPLES = {
    "another shape": (torch.zeros(2, WIDTH + 1), r"float32\[2, {wide}\] as 'other'"),
    "another type": (torch.zeros(2, WIDTH, dtype=torch.int64), r"int64\[2, .* 'other'"),
}


@pytest.mark.parametrize(("other", "why"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_batch_is_like_the_examples(other: Tensor, why: str) -> None:
    """Behind its samples; other floating types are brought to that of the layers."""
    examples = (torch.zeros(1, WIDTH), torch.zeros(1, WIDTH))
    made = replace(MODELS["towers"](), example_inputs=examples)
    with pytest.raises(WorkloadError, match=why.format(wide=WIDTH + 1)):
        make_batch(replace(made, batch=several(TWO, other)), 0, 0, 2)
    make_batch(replace(made, batch=several(TWO, TWO.double())), 0, 0, 2)


@pytest.mark.parametrize(("batch", "why"), BATCHES.values(), ids=BATCHES)
def test_a_batch_has_the_inputs_that_are_named(
    batch: Callable[[int, int, int], Batch], why: str
) -> None:
    """Each a tensor with as many samples."""
    with pytest.raises(WorkloadError, match=why):
        boundaries_of(MODELS["towers"](batch=batch), 2)
