"""Forms of tensors, and arguments with values filled in."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.placed.graph import Form, Value, filled
from plimsoll_trainer.placed.transport import as_row, memory_for, packed

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
    row = as_row(tensor, form) if is_dense else packed(tensor)
    received = memory_for(form, torch.device("cpu"))
    as_row(received, Form.of(received)).copy_(row)
    assert torch.equal(received, tensor)
    if is_dense:
        assert received.stride() == tensor.stride()
    assert row.numel() * row.itemsize == form.num_bytes


def test_values_are_filled_in_wherever_they_stand() -> None:
    """Also in lists and by name; everything else stays."""
    values = {3: "a", 5: "b"}
    assert filled((Value(3), (1, Value(5)), None), values) == ["a", [1, "b"], None]
    assert filled({"x": Value(5), "y": 2.0}, values) == {"x": "b", "y": 2.0}
