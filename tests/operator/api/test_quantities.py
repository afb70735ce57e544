"""Amounts are read as Kubernetes reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from plimsoll_operator.api.quantities import cores, memory_bytes


@pytest.mark.parametrize(
    ("quantity", "num_bytes"),
    [
        ("128974848", 128_974_848),
        ("129e6", 129_000_000),
        ("1.5E+3", 1500),
        ("5e-1", 1),
        ("+1Gi", 2**30),
        (".5Gi", 2**29),
        ("5.Ki", 5 * 2**10),
        ("1.5k", 1500),
        ("123M", 123_000_000),
        ("2E", 2 * 10**18),
        ("2Ei", 2**61),
        ("3Pi", 3 * 2**50),
        ("1500m", 2),
        ("7u", 1),
        ("2000000000n", 2),
        ("0.3", 1),
        ("0", 0),
    ],
)
def test_memory_has_a_unit_or_an_exponent(quantity: str, num_bytes: int) -> None:
    """Powers of ten and of two; a part of a byte counts as one."""
    assert memory_bytes(quantity) == num_bytes


@pytest.mark.parametrize(
    "quantity", ["", "Gi", ".", "-1", "1e3Gi", "1ki", "1Mb", "1 Gi", "1e", "1e400", "٣"]
)
def test_what_is_no_amount_is_refused(quantity: str) -> None:
    """With its words, so that a person finds it."""
    with pytest.raises(ValueError, match="is no amount of memory such as 16Gi"):
        memory_bytes(quantity)


def test_cores_may_come_in_thousandths() -> None:
    """No other unit is known to them."""
    assert (cores("500m"), cores("4")) == (Decimal("0.5"), Decimal(4))
