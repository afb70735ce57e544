"""The home of a user: which folder, which machines, which plans.

In: options. Out: an open store and plans of it. Called by the verbs that work with
plans: run, get, describe, logs, cancel, report.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import platformdirs

from plimsoll_cli.errors import NoSuchPlanError, PlanUnderWayError
from plimsoll_cli.offers import own_offers
from plimsoll_cli.questions import read_offers
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.eyes import Eyes
from plimsoll_operator.home.folders import HomeFolder
from plimsoll_operator.home.hands import Hands
from plimsoll_operator.local_inventory import cuda_offers, emulated_offer
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.errors import InvalidFieldError, UnreadableError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.record import nearest

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="PLIMSOLL_HOME",
    default=Path(platformdirs.user_state_path("plimsoll")),
    help="Where plans, profiles and checkpoints are kept.  [env: PLIMSOLL_HOME]",
)
MAY_CHANGE = ("suspend", "run_policy")
"""Of a spec, once its job was launched."""
DEVICES = {"cpu": DeviceKind.EMULATED, "cuda": DeviceKind.CUDA}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """What was typed about the machines that may be used."""

    offers: Path | None = None
    device: str | None = None
    """`cpu`: emulated devices; or `cuda`."""
    num_devices: int | None = None
    memory_bytes: int | None = None
    """Of each emulated device."""

    @property
    def is_given(self) -> bool:
        """Tell whether anything was typed."""
        return self != Machines()


@dataclass(frozen=True)
class Home:
    """A home with its store open."""

    folder: HomeFolder
    store: Store

    async def plan(self, name: str) -> StoredPlan:
        """Return the plan of a name.

        Raises:
            NoSuchPlanError: there is none; names the nearest one.
        """
        found = await self.store.plans.find(name)
        if found is not None:
            return found
        names = [plan.name for plan in await self.store.plans.all()]
        hint = nearest(name, names)
        meant = f"did you mean {hint}?" if hint else "`plimsoll get` lists them"
        raise NoSuchPlanError(f"no plan {name} in {self.folder.root}; {meant}")

    def hands(self, plan: StoredPlan, device_memory_bytes: int = 0) -> Hands:
        """Return what acts for a plan."""
        folder = self.folder.plan(plan.uid)
        return Hands(
            store=self.store,
            eyes=Eyes(self.store, cuda_is_here=has_cuda()),
            plan=plan,
            folder=folder,
            children=Children(folder.children),
            device_memory_bytes=device_memory_bytes,
        )

    async def take(
        self, manifest: Manifest, machines: Machines, *, anew: bool
    ) -> StoredPlan:
        """Return the plan that a manifest asks for: the one under way, or a new one.

        Raises:
            PlanUnderWayError: it was launched with another spec.
            InvalidInputError: there are no such machines.
        """
        plans, code = self.store.plans, str(Path.cwd())
        before = await plans.find(manifest.name)
        if before is None or before.status.is_over or anew:
            offers = offers_of(manifest, machines)
            return await plans.create(
                manifest.name, manifest.spec, offers, code, time.time()
            )
        if before.status.holds(ConditionType.LAUNCHED):
            require_same_job(before, manifest)
        offers = before.offers
        if machines.is_given or manifest.spec.search.offers.config_map:
            offers = offers_of(manifest, machines)
        await plans.set_suspended(before.uid, is_suspended=False)
        return await plans.edit(before.uid, manifest.spec, offers, code)


@asynccontextmanager
async def open_home(root: Path) -> AsyncGenerator[Home]:
    """Open a home; make it where there is none.

    Args:
        root: its folder, absolute.

    Raises:
        HomeError, StoreError: folder or store cannot be used.
    """
    folder = HomeFolder(root)
    folder.make()
    async with open_store(folder.store) as store:
        yield Home(folder, store)


def require_same_job(before: StoredPlan, manifest: Manifest) -> None:
    """Refuse to change under a job what it was launched with.

    Raises:
        PlanUnderWayError: another spec, but for what may change.
    """
    spec = manifest.spec
    for field in spec.__slots__:
        differs = getattr(before.spec, field) != getattr(spec, field)
        if differs and field not in MAY_CHANGE:
            raise PlanUnderWayError(
                f"plan {before.name} was launched with another "
                f"spec.{spec.wire_name(field)}: undo that, give the plan another name, "
                "or begin it anew with --anew"
            )


def offers_of(manifest: Manifest, machines: Machines) -> tuple[Offer, ...]:
    """Return the machines that a plan may use.

    What was typed wins over the manifest, and that over what this machine has.

    Raises:
        InvalidInputError: a file cannot be read, a table is missing or has no such
            device.
    """
    name = manifest.spec.search.offers.config_map
    if machines.offers is not None:
        return of_kind(read_offers(machines.offers), machines, str(machines.offers))
    if name and not machines.is_given:
        if name not in manifest.tables:
            raise InvalidFieldError(
                "spec.search.offers.configMap",
                name,
                "a ConfigMap in the same file, with a table offers.csv; or --offers",
            )
        found = parse_offers(manifest.tables[name], f"ConfigMap {name}").offers
        return of_kind(found, machines, f"ConfigMap {name}")
    return of_this_machine(machines)


def of_kind(
    found: tuple[Offer, ...], machines: Machines, source: str
) -> tuple[Offer, ...]:
    """Return the offers of one kind of device; a plan uses no two."""
    kinds = {offer.device_kind for offer in found}
    wanted = DEVICES[machines.device] if machines.device else None
    if wanted is None and len(kinds) == 1:
        return found
    mine = tuple(offer for offer in found if offer.device_kind is wanted)
    if not mine:
        raise UnreadableError(
            f"{source}: lists {' and '.join(sorted(kinds)) or 'no'} devices; say which "
            "with --device cpu (emulated) or cuda"
        )
    return mine


def of_this_machine(machines: Machines) -> tuple[Offer, ...]:
    """Return the devices of this machine, as many and as large as was typed."""
    kind = DEVICES[machines.device] if machines.device else None
    if kind is None:
        kind = DeviceKind.CUDA if has_cuda() else DeviceKind.EMULATED
    found = tuple(offer for offer in own_offers() if offer.device_kind is kind)
    if not found:
        raise UnreadableError(
            "--device cuda: this machine has no GPU; use --device cpu, or --offers "
            "with spec.launch.policy PlanOnly"
        )
    if kind is DeviceKind.EMULATED:
        found = (emulated_as_typed(machines),)
    if machines.num_devices:
        found = tuple(
            replace(offer, devices_per_node=machines.num_devices) for offer in found
        )
    return found


def emulated_as_typed(machines: Machines) -> Offer:
    """Return the emulated devices; as many as are wanted share the cores."""
    offer = emulated_offer()
    if machines.memory_bytes:
        return replace(offer, device_memory_bytes=machines.memory_bytes)
    if machines.num_devices:
        share = offer.device_memory_bytes * offer.devices_per_node
        return replace(offer, device_memory_bytes=share // machines.num_devices)
    return offer


def has_cuda() -> bool:
    """Tell whether this machine has GPUs."""
    return bool(cuda_offers())
