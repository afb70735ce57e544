"""What a home says of a spec before anything is begun."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.backends.local.observe import can_rehearse, complaint_of
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import an_offer
from tests.support.specs import a_spec

EMULATED = an_offer(device_kind=DeviceKind.EMULATED, device_product="process")
H200, L4 = an_offer(), an_offer(name="l4", device_product="L4")


@pytest.mark.parametrize(
    ("offers", "products", "can"),
    [
        ((EMULATED,), (), True),
        ((EMULATED,), ("L4",), True),
        ((H200,), (), False),
        ((H200,), ("H200",), True),
        ((H200,), ("L4",), False),
        ((H200, L4), ("L4",), False),
        ((H200, L4), ("L4", "H200"), False),
        ((H200,), ("L4", "H200"), False),
        ((H200,), ("H200", "H200"), True),
    ],
)
def test_a_rank_is_rehearsed_on_the_planned_device_and_no_other(
    offers: Any, products: tuple[str, ...], can: bool
) -> None:
    """A smaller one would be full for nothing, a larger one say nothing.

    Of GPUs that differ it may be either.
    """
    assert can_rehearse(offers, products) is can


@pytest.mark.parametrize(
    ("launch", "products", "complaint"),
    [
        ({"policy": "PlanOnly"}, (), ""),
        ({"policy": "PlanOnly", "rehearse": "IfDevice"}, (), ""),
        (
            {"policy": "PlanOnly", "rehearse": "Always"},
            (),
            "spec.launch.rehearse: Always, but the offers are H200, and this machine "
            "has no GPU: use IfDevice, or run it where they are",
        ),
        (
            {"policy": "PlanOnly", "rehearse": "Always"},
            ("L4",),
            "spec.launch.rehearse: Always, but the offers are H200, and this machine "
            "has L4: use IfDevice, or run it where they are",
        ),
        ({"rehearse": "Always"}, ("H200",), ""),
        (
            {"rehearse": "Always"},
            (),
            "spec.launch.policy: the offers are GPUs and this machine has none: use "
            "PlanOnly, run it where they are, or plan for --device cpu",
        ),
    ],
)
def test_what_is_not_here_is_named(
    launch: dict[str, str], products: tuple[str, ...], complaint: str
) -> None:
    """With what to do next."""
    spec = a_spec(launch=launch)
    assert complaint_of(spec, (H200,), gpu_products=products) == complaint
