"""The machines that a plan may use: as typed, as its manifest lists them, or this one.

In: options and a manifest. Out: offers. Called by `run`, before it opens a state
directory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_cli.options.offers import own_offers, read_offers
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.errors import InventoryError
from plimsoll_operator.nodes.this_machine import LOCAL_NAME, cuda_offers, emulated_offer
from plimsoll_planner.errors import InvalidFieldError, UnreadableError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.units import MIB

DEVICES = {"cpu": DeviceKind.EMULATED, "cuda": DeviceKind.CUDA}
FIELD = "spec.search.offers.configMap"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """The typed options about the machines that may be used."""

    offers: Path | None = None
    device: str | None = None
    """`cpu`: emulated devices; or `cuda`."""
    num_devices: int | None = None
    memory_bytes: int | None = None
    """Of each emulated device."""

    @property
    def is_given(self) -> bool:
        """Whether anything was typed."""
        return self != Machines()

    @property
    def kind(self) -> DeviceKind | None:
        """The kind of device, None where it was not typed."""
        return DEVICES[self.device] if self.device else None

    def mean(self, offers: tuple[Offer, ...]) -> bool:
        """Whether these offers, found earlier, are what is typed now.

        The memory that is free changes by the minute: a plan stays with what it began
        with as long as nothing else is asked for.
        """
        if not self.is_given:
            return True
        return self.offers is None and all(
            offer.name == LOCAL_NAME
            and self.kind in (None, offer.device_kind)
            and self.num_devices in (None, offer.devices_per_node)
            and self.memory_bytes in (None, offer.device_memory_bytes)
            for offer in offers
        )


def offers_of(manifest: Manifest, machines: Machines) -> tuple[Offer, ...]:
    """The machines that a plan may use.

    What was typed wins over the manifest, and that over what this machine has.

    Raises:
        InvalidInputError: a file cannot be read, a table is missing or has no such
            device.
    """
    name = manifest.spec.search.offers.config_map
    if machines.offers is not None:
        return listed_in(machines.offers, machines)
    if not name or machines.is_given:
        return of_this_machine(machines)
    if name not in manifest.tables:
        rule = "a ConfigMap in the same file, with a table offers.csv; or --offers"
        raise InvalidFieldError(FIELD, name, rule)
    found = parse_offers(manifest.tables[name], f"ConfigMap {name}").offers
    if len({offer.device_kind for offer in found}) != 1:
        rule = f"a table of one kind of device; this one {listed(found)}"
        raise InvalidFieldError(FIELD, name, rule)
    return found


def listed_in(path: Path, machines: Machines) -> tuple[Offer, ...]:
    """The offers of a file that are of one kind; a plan uses no two."""
    for option, value in (
        ("--devices", machines.num_devices),
        ("--device-memory", machines.memory_bytes),
    ):
        if value is not None:
            rule = f"nothing beside --offers: {path} says how many and how large"
            raise InvalidFieldError(option, value, rule)
    found = read_offers(path)
    mine = tuple(o for o in found if machines.kind in (None, o.device_kind))
    if len({offer.device_kind for offer in mine}) == 1:
        return mine
    advice = "list at least one"
    if found:
        advice = "say which with --device cpu (emulated) or --device cuda"
    if found and machines.device:
        advice = f"--device {machines.device} asks for others"
    raise UnreadableError(f"{path}: {listed(found)}; {advice}")


def listed(offers: tuple[Offer, ...]) -> str:
    """Words for the kinds of device that a table lists."""
    kinds = sorted({offer.device_kind for offer in offers})
    return f"lists {' and '.join(kinds) or 'no'} devices"


def of_this_machine(machines: Machines) -> tuple[Offer, ...]:
    """The devices of this machine, as many and as large as was typed.

    Raises:
        InvalidInputError: it has no such devices, or not so many.
    """
    kind = machines.kind
    if kind is None:
        kind = DeviceKind.CUDA if gpu_products() else DeviceKind.EMULATED
    if kind is DeviceKind.EMULATED:
        return (emulated_as_typed(machines),)
    if machines.memory_bytes is not None:
        rule = "for emulated devices alone: --device cpu"
        raise InvalidFieldError("--device-memory", machines.memory_bytes, rule)
    found = tuple(offer for offer in own_offers() if offer.device_kind is kind)
    if not found:
        raise UnreadableError(
            "--device cuda: this machine has no GPU; use --device cpu, or --offers "
            "with spec.launch.policy PlanOnly"
        )
    most = max(offer.devices_per_node for offer in found)
    wanted = machines.num_devices or most
    if wanted > most:
        rule = f"at most {most}, the GPUs of this machine"
        raise InvalidFieldError("--devices", wanted, rule)
    return tuple(
        replace(offer, devices_per_node=min(wanted, offer.devices_per_node))
        for offer in found
    )


def emulated_as_typed(machines: Machines) -> Offer:
    """The emulated devices; as many as are wanted share memory and cores."""
    offer = emulated_offer()
    wanted = machines.num_devices or offer.devices_per_node
    memory = machines.memory_bytes
    if memory is None:
        free = offer.device_memory_bytes * offer.devices_per_node
        if wanted > free // MIB:
            rule = f"at most {free // MIB}, a MiB for each; or say --device-memory"
            raise InvalidFieldError("--devices", wanted, rule)
        memory = free // wanted
    option_of = {
        "Offer.devices_per_node": "--devices",
        "Offer.device_memory_bytes": "--device-memory",
    }
    try:
        return replace(offer, devices_per_node=wanted, device_memory_bytes=memory)
    except InvalidFieldError as error:
        option = option_of.get(error.path, error.path)
        raise InvalidFieldError(option, error.value, error.allowed) from None


def gpu_products() -> frozenset[str]:
    """Products of the GPUs of this machine that answer."""
    try:
        return frozenset(offer.device_product for offer in cuda_offers())
    except InventoryError:
        return frozenset()
