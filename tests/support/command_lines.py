"""A small chain on emulated devices, as files, and the command line that plans it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from plimsoll_planner.records.document import save
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import MIB, an_offer
from tests.support.chains import Activation, Layer, chain_profile

EMBEDDING = Layer(
    parameters=6 * MIB,
    gradients=6 * MIB,
    boundary=MIB,
    kept=Activation(forward=MIB, backward=MIB),
    again=Activation(keeps_input=True, forward=MIB, backward=MIB),
    forward_s=0.25,
    backward_s=0.25,
)
BLOCK = Layer(
    parameters=4 * MIB,
    gradients=4 * MIB,
    optimizer=8 * MIB,
    boundary=MIB,
    kept=Activation(saved=6 * MIB, keeps_input=True, forward=7 * MIB, backward=8 * MIB),
    again=Activation(keeps_input=True, forward=4 * MIB, backward=9 * MIB),
)
HEAD = Layer(
    parameters=6 * MIB,
    gradients=6 * MIB,
    boundary=1,
    kept=Activation(
        saved=9 * MIB, keeps_input=True, forward=12 * MIB, backward=15 * MIB
    ),
    again=Activation(keeps_input=True, forward=12 * MIB, backward=17 * MIB),
)


def a_profile_file(folder: Path, **fields: Any) -> str:
    """Write the profile of a small chain on emulated devices."""
    kind: dict[str, Any] = {"device_kind": DeviceKind.EMULATED}
    profile = chain_profile(
        [EMBEDDING, *[BLOCK] * 8, HEAD],
        byte_error=0.01,
        time_error=0.05,
        **(kind | fields),
    )
    save(folder / "profile.json", profile)
    return str(folder / "profile.json")


def an_offers_file(folder: Path, memory_mib: int = 96, **fields: Any) -> str:
    """Write one offer of emulated devices."""
    offer = an_offer(
        **(
            {
                "device_kind": DeviceKind.EMULATED,
                "device_memory_bytes": memory_mib * MIB,
                "price_per_node_hour": Decimal("2.50"),
            }
            | fields
        )
    )
    save(folder / "offer.json", offer)
    return str(folder / "offer.json")


def words(folder: Path, *more: str) -> list[str]:
    """Command line of a plan for the small chain."""
    return [
        "plan",
        a_profile_file(folder),
        "--offers",
        an_offers_file(folder),
        "--batch",
        "8",
        *more,
    ]
