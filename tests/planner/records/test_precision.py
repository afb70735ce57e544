"""What a precision stands for, and where a type of numbers alone is meant."""

from __future__ import annotations

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import NUMBER_BYTES, Precision
from plimsoll_planner.records.offer import ComputeRate
from tests.support.builders import a_recipe

FP32, BF16, FP16 = Precision.FP32, Precision.BF16, Precision.FP16
MEANINGS = [
    # precision, parameters, products, stepped on, masters, scaled
    ("fp32", FP32, FP32, FP32, False, False),
    ("bf16", BF16, BF16, FP32, True, False),
    ("bf16-pure", BF16, BF16, BF16, False, False),
    ("bf16-autocast", FP32, BF16, FP32, False, False),
    ("fp16", FP16, FP16, FP32, True, True),
    ("fp16-autocast", FP32, FP16, FP32, False, True),
]


def test_every_precision_has_a_meaning() -> None:
    """One row each, as in docs/workload.md."""
    assert [
        (
            one.value,
            one.of_parameters,
            one.of_products,
            one.stepped_in,
            one.has_masters,
            one.is_scaled,
        )
        for one in Precision
    ] == MEANINGS
    assert {one: NUMBER_BYTES[one] for one in Precision} == {
        Precision(name): 4 if parameters is FP32 else 2
        for name, parameters, *_ in MEANINGS
    }


@pytest.mark.parametrize(
    ("precision", "sums", "casts"),
    [
        ("fp32", "fp32", False),
        ("bf16", "fp32", False),
        ("bf16", "bf16", True),
        ("bf16-pure", "fp32", True),
        ("bf16-pure", "bf16", False),
        ("fp16-autocast", "fp32", False),
    ],
)
def test_a_step_casts_sums_of_another_type(
    precision: str, sums: str, *, casts: bool
) -> None:
    """A copy of a layer's gradients, which its host has to hold."""
    recipe = a_recipe(
        precision=Precision(precision), gradient_precision=Precision(sums)
    )
    assert recipe.casts_sums is casts


@pytest.mark.parametrize("name", ["bf16-pure", "bf16-autocast", "fp16-autocast"])
def test_a_recipe_of_training_is_no_type_of_numbers(name: str) -> None:
    """Sums and rates have one of three."""
    with pytest.raises(InvalidFieldError, match="one of fp32, bf16, fp16"):
        a_recipe(gradient_precision=Precision(name))
    with pytest.raises(InvalidFieldError, match="one of fp32, bf16, fp16"):
        ComputeRate(precision=Precision(name), flop_per_s=1.0)
