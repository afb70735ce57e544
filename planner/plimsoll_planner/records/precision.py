"""Types of the numbers in training: of parameters, products, steps and sums.

One name stands for all of them, as a person gives it. Imported from `model_profile`,
whose recipe says which one was profiled.
"""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """Types of the numbers in training."""

    FP32 = "fp32"
    BF16 = "bf16"
    """bf16 parameters and activations, fp32 optimizer state and master weights."""
    PURE_BF16 = "bf16-pure"
    """The same without masters: the optimizer steps on bf16, and its state is bf16."""
    BF16_AUTOCAST = "bf16-autocast"
    """fp32 parameters, state, and what passes between layers; inside of a layer torch's
    autocast has products in bf16."""
    FP16 = "fp16"
    """fp16 parameters and activations, fp32 state and masters, a scaled loss."""
    FP16_AUTOCAST = "fp16-autocast"
    """As `BF16_AUTOCAST` in fp16, with a scaled loss."""

    @property
    def of_parameters(self) -> Precision:
        """Type of parameters, and of what passes between layers."""
        return PARAMETERS.get(self, self)

    @property
    def of_products(self) -> Precision:
        """Type that most arithmetic is done in."""
        return PRODUCTS.get(self, self)

    @property
    def is_autocast(self) -> bool:
        """Whether layers compute in another type than their parameters are."""
        return self.of_parameters is not self.of_products

    @property
    def has_masters(self) -> bool:
        """Whether the optimizer steps on fp32 copies of smaller parameters."""
        return self in {Precision.BF16, Precision.FP16}

    @property
    def is_scaled(self) -> bool:
        """Whether the loss is multiplied, so that small gradients are not lost."""
        return self.of_products is Precision.FP16

    @property
    def stepped_in(self) -> Precision:
        """Type that the optimizer steps on."""
        return Precision.FP32 if self.has_masters else self.of_parameters


PARAMETERS = {
    Precision.PURE_BF16: Precision.BF16,
    Precision.BF16_AUTOCAST: Precision.FP32,
    Precision.FP16_AUTOCAST: Precision.FP32,
}
PRODUCTS = {
    Precision.PURE_BF16: Precision.BF16,
    Precision.BF16_AUTOCAST: Precision.BF16,
    Precision.FP16_AUTOCAST: Precision.FP16,
}
NUMBERS = (Precision.FP32, Precision.BF16, Precision.FP16)
"""Those that are a type of numbers."""
NUMBER_BYTES = {
    precision: 4 if precision.of_parameters is Precision.FP32 else 2
    for precision in Precision
}
"""Of a parameter."""
