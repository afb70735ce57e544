"""The home of a user: which folder, which plans.

In: options. Out: an open store and plans of it. Called by the verbs that work with
plans: run, get, describe, logs, cancel, report.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click
import platformdirs

from plimsoll_cli.errors import NoSuchPlanError, PlanUnderWayError
from plimsoll_cli.machines import Machines, has_cuda
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.api.record import ApiRecord
from plimsoll_operator.api.spec import LaunchPolicy, TrainingPlanSpec
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.eyes import Eyes, complaint_of
from plimsoll_operator.home.folders import HomeFolder
from plimsoll_operator.home.hands import Hands
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.errors import InvalidInputError, shorten
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.record import shapes_of

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="PLIMSOLL_HOME",
    default=Path(platformdirs.user_state_path("plimsoll")),
    help="Where plans, profiles and checkpoints are kept.  [env: PLIMSOLL_HOME]",
)
MAY_CHANGE = ("spec.suspend", "spec.runPolicy.")
"""Once a job was launched."""


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
        close = get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]}?" if close else "`plimsoll get` lists them"
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
        self,
        manifest: Manifest,
        machines: Machines,
        offers: tuple[Offer, ...],
        *,
        anew: bool,
    ) -> StoredPlan:
        """Return the plan that a manifest asks for: the one under way, or a new one.

        Args:
            manifest: what is asked for.
            machines: what was typed.
            offers: what both of them mean now.
            anew: leave what is under way where it is, and begin again.

        Nobody else runs it meanwhile.

        Raises:
            PlanUnderWayError: it was launched with another spec.
            InvalidInputError: parts of the spec contradict each other or the offers.
        """
        plans, spec, code = self.store.plans, manifest.spec, str(Path.cwd())
        before = await plans.find(manifest.name)
        if before is None:
            require_sense(spec, offers)
            return await plans.create(manifest.name, spec, offers, code, time.time())
        is_over = before.status.is_over or anew
        was_dry = before.spec.launch.policy is LaunchPolicy.PLAN_ONLY
        is_open = not before.status.is_over or not before.was_told
        is_listed = spec.search.offers.config_map and not machines.is_given
        if is_listed or not machines.mean(before.offers):
            pass
        elif was_dry or (is_open and not anew):
            offers = before.offers
        require_sense(spec, offers)
        is_same = (before.spec, before.offers, before.folder) == (spec, offers, code)
        if before.status.is_over and is_same and not (before.was_told or anew):
            return before  # whoever ran it was killed before telling its end
        if is_over:
            self.hands(before).end_all()  # nobody could find them again
            return await plans.create(manifest.name, spec, offers, code, time.time())
        attempts = await self.store.attempts.of(before.uid)
        if attempts and spec.launch.policy is LaunchPolicy.PLAN_ONLY:
            raise PlanUnderWayError(
                f"plan {before.name} was launched, which spec.launch.policy PlanOnly "
                "cannot undo: give the dry run another name, or begin it with --anew"
            )
        if attempts and attempts[-1].ending is None:
            require_same_job(before, manifest)
            require_same_place(before, offers, code)
        await plans.set_suspended(before.uid, is_suspended=False)
        return await plans.edit(before.uid, spec, offers, code)


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


@asynccontextmanager
async def open_old_home(root: Path) -> AsyncGenerator[Home]:
    """Open a home that is there; whoever only looks makes none.

    Raises:
        NoSuchPlanError: nothing was ever run there.
        HomeError, StoreError: see `open_home`.
    """
    if not HomeFolder(root).store.exists():
        raise NoSuchPlanError(
            f"{root}: nothing was ever run here; name another --home, or begin with "
            "`plimsoll run plan.yaml`"
        )
    async with open_home(root) as home:
        yield home


def require_sense(spec: TrainingPlanSpec, offers: tuple[Offer, ...]) -> None:
    """Refuse what the loop would, before anything of it is stored.

    Raises:
        InvalidInputError: it names what is not there, or contradicts itself.
    """
    complaint = complaint_of(spec, offers, cuda_is_here=has_cuda())
    if complaint:
        raise InvalidInputError(complaint)


def require_same_job(before: StoredPlan, manifest: Manifest) -> None:
    """Refuse to change under a job what it was launched with.

    Raises:
        PlanUnderWayError: another spec, but for what may change.
    """
    for path, was, now in differences(before.spec, manifest.spec, "spec"):
        if not path.startswith(MAY_CHANGE):
            raise PlanUnderWayError(
                f"plan {before.name} was launched with {path} {shorten(was)}, which "
                f"is {shorten(now)} now: undo that, give the plan another name, or "
                "begin it anew with --anew"
            )


def require_same_place(
    before: StoredPlan, offers: tuple[Offer, ...], code: str
) -> None:
    """Refuse to change under a job what it runs on, or where its code lies.

    Raises:
        PlanUnderWayError: other machines, or another folder.
    """
    if offers != before.offers:
        changed = "other machines: leave --device.. and --offers away"
    elif code != before.folder:
        changed = f"code in {before.folder}: run it there"
    else:
        return
    raise PlanUnderWayError(
        f"plan {before.name} was launched with {changed}, give the plan another name, "
        "or begin it anew with --anew"
    )


def differences(
    old: ApiRecord, new: ApiRecord, path: str
) -> Iterator[tuple[str, object, object]]:
    """Yield each field that differs: its path, and both of its values."""
    for field in shapes_of(type(new)):
        was, now = getattr(old, field), getattr(new, field)
        place = f"{path}.{new.wire_name(field)}"
        if isinstance(was, ApiRecord) and isinstance(now, ApiRecord):
            yield from differences(was, now, place)
        elif was != now:
            yield place, was, now
