"""Forms of tensors, and arguments with values filled in."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.graph import Form, Value, filled, require_device
from plimsoll_trainer.placed.transport import as_row, memory_for, packed
from tests.support.branching import CLASSES, SAMPLES, branching

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
MADE = torch.arange(24.0).view(2, 3, 4)


@pytest.mark.parametrize(
    ("tensor", "is_plain", "is_dense"),
    [
        (MADE, True, True),
        (MADE.transpose(0, 2), False, True),
        (MADE[1], True, True),
        (MADE[:, :2], False, False),
        (MADE[0, 0, 0].expand(3), False, False),
        (MADE[:1, :, :1].transpose(0, 1), False, False),
        (torch.tensor(1.0), True, True),
        (torch.empty(0, 3), True, True),
    ],
)
def test_a_value_arrives_as_it_was(
    tensor: Tensor, is_plain: bool, is_dense: bool
) -> None:
    """With its strides if it has no gaps; the numbers are the same in any case."""
    form = Form.of(tensor)
    assert form.is_plain is is_plain
    assert form.is_dense is is_dense
    row = as_row(tensor) if is_dense else packed(tensor)
    received = memory_for(form, torch.device("cpu"))
    as_row(received).copy_(row)
    assert torch.equal(received, tensor)
    assert received.stride() == Form.of(tensor).packed.stride
    if is_dense:
        assert received.stride() == tensor.stride()
    assert row.numel() * row.itemsize == form.num_bytes


@pytest.mark.parametrize(
    "tensor",
    [
        MADE[:, :, :2].permute(2, 0, 1),
        MADE[:, :2].permute(1, 2, 0),
        MADE[:, :1].expand(2, 3, 4).transpose(0, 2),
    ],
)
def test_operators_return_the_same_form_wherever_a_value_was_sent(
    tensor: Tensor,
) -> None:
    """Those that work number by number, so nothing is copied behind them."""
    received = memory_for(Form.of(tensor), CPU).copy_(tensor)
    assert received.relu().stride() == tensor.relu().stride()
    assert (received + 1).stride() == (tensor + 1).stride()


def test_values_are_filled_in_wherever_they_stand() -> None:
    """Also in lists and by name; devices become that of the rank, all else stays."""
    values = {3: "a", 5: "b"}
    fill = partial(filled, values=values, device=GPU)
    assert fill((Value(3), (1, Value(5)), None)) == ["a", [1, "b"], None]
    assert fill({"x": Value(5), "y": 2.0}) == {"x": "b", "y": 2.0}
    assert fill({"device": torch.device("cpu"), "z": [CPU]}) == {
        "device": GPU,
        "z": [GPU],
    }


class Attends(nn.Module):
    """Causal attention within 16 numbers, as torch chooses or as is asked for."""

    def __init__(self, backends: list[SDPBackend]) -> None:
        """Make a head for the classes."""
        super().__init__()
        self.head, self.backends = nn.Linear(16, CLASSES), backends

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        h = self.head.weight.mean() * x.view(-1, 1, 4, 4)
        with sdpa_kernel(self.backends) if self.backends else nullcontext():
            h = functional.scaled_dot_product_attention(h, h, h, is_causal=True)
        found: Tensor = self.head(h.flatten(1))
        return found


def test_attention_of_a_cpu_is_refused_on_a_gpu() -> None:
    """Before anything is measured; the attention that the message names passes."""
    graph = capture(branching(model=lambda: Attends([])), SAMPLES)
    require_device(graph, CPU)
    with pytest.raises(WorkloadError, match=r"for_cpu.*SDPBackend\.MATH"):
        require_device(graph, GPU)
    graph = capture(branching(model=lambda: Attends([SDPBackend.MATH])), SAMPLES)
    require_device(graph, GPU)
