"""Which plan a manifest is run as, by what became of the one before."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plimsoll_cli.errors import PlanUnderWayError
from plimsoll_cli.options.machines import Machines
from plimsoll_cli.state.resolve import resolve_plan
from plimsoll_cli.state.state_dir import StateDir, open_state_dir
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.api.status import Status, Truth
from plimsoll_operator.nodes.this_machine import LOCAL_NAME
from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import Occasion
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from tests.support.builders import DIGEST, a_problem, an_offer
from tests.support.reports import a_status
from tests.support.specs import a_spec
from tests.support.stores import begin_attempt

OVER = a_status(
    *("Valid", "Measured", "Proven", "Replayed", "Started", "Trained"),
    truth=Truth.TRUE,
)
GIB = 2**30
DRY: dict[str, Any] = {"launch": {"policy": "PlanOnly"}}
Found = TypeVar("Found")


def emulated(memory_bytes: int = GIB, **fields: Any) -> Offer:
    """Devices of this machine."""
    return an_offer(
        name=LOCAL_NAME,
        device_kind=DeviceKind.EMULATED,
        device_memory_bytes=memory_bytes,
        **fields,
    )


async def asked(home: StateDir, *, anew: bool = False, **given: Any) -> StoredPlan:
    """Ask for a plan: with `offers`, `machines`, and parts of a spec."""
    offers = (given.pop("offer", emulated()),)
    machines = given.pop("machines", Machines())
    manifest = Manifest(name="tiny", spec=a_spec(**given), tables={})
    return await resolve_plan(home, manifest, machines, offers, anew=anew)


async def is_over(home: StateDir, plan: StoredPlan, *, was_told: bool = True) -> None:
    """Let a plan be over."""
    await home.store.plans.save_status(plan.uid, OVER)
    if was_told:
        await home.store.plans.set_told(plan.uid)


def in_home(folder: Path, work: Callable[[StateDir], Awaitable[Found]]) -> Found:
    """Open a new home and work in it."""

    async def opened() -> Found:
        async with open_state_dir(folder / "home") as home:
            return await work(home)

    return asyncio.run(opened())


def test_a_plan_under_way_goes_on_where_it_began(tmp_path: Path) -> None:
    """With other memory free as well, unless other devices are typed."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        again = await asked(home, offer=emulated(2 * GIB))
        assert (again.uid, again.offers, again.generation) == (
            first.uid,
            first.offers,
            1,
        )
        typed = Machines(memory_bytes=2 * GIB)
        other = await asked(home, offer=emulated(2 * GIB), machines=typed)
        assert (other.uid, other.generation) == (first.uid, 2)
        assert other.offers == (emulated(2 * GIB),)

    in_home(tmp_path, work)


def test_a_plan_that_is_over_and_told_begins_anew(tmp_path: Path) -> None:
    """On what is free now."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        await is_over(home, first)
        again = await asked(home, offer=emulated(2 * GIB))
        assert again.uid != first.uid
        assert again.offers == (emulated(2 * GIB),)
        assert again.status == Status()

    in_home(tmp_path, work)


FAILED = a_status(*("Valid", "AppError"), truth=Truth.FALSE)


@pytest.mark.parametrize(
    ("edit", "saved", "goes_on"),
    [
        ({}, 10, True),
        ({"runPolicy": {"backoffLimit": 0}}, 20, True),
        ({}, None, False),
        ({}, 21, False),
        ({"workload": {"entrypoint": "other:workload"}}, 10, False),
        ({"training": {"globalBatchSize": 4, "steps": 20}}, 10, False),
        (DRY, 10, False),
    ],
)
def test_a_plan_that_has_failed_goes_on_from_its_checkpoint(
    edit: dict[str, Any], saved: int | None, goes_on: bool, tmp_path: Path
) -> None:
    """If there is one, and it is asked for the same training again."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        await begin_attempt(home.store, first.uid, 1)
        save_step(home, first, saved)
        await home.store.plans.save_status(first.uid, FAILED)
        await home.store.plans.set_told(first.uid)
        again = await asked(home, **edit)
        assert (again.uid == first.uid) == goes_on
        began = FAILED.start_time if goes_on else ""
        assert (again.status, again.was_told) == (Status(start_time=began), False)
        assert again.generation == (1 if not goes_on else 3 if edit else 2)
        anew = await asked(home, anew=True, **edit)
        assert anew.uid not in (first.uid, again.uid)

    in_home(tmp_path, work)


def save_step(home: StateDir, plan: StoredPlan, step: int | None) -> None:
    """Let a plan have a checkpoint."""
    if step is not None:
        (home.backend(plan).checkpoints / f"step-{step:08}").mkdir(parents=True)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            {"workload": {"entrypoint": "other:workload"}},
            "saved step 10 with spec.workload.entrypoint 'tiny_model:workload', which "
            "is 'other:workload' now",
        ),
        (
            {"training": {"globalBatchSize": 8, "steps": 9}},
            "saved step 10, which is past spec.training.steps 9",
        ),
    ],
)
def test_what_a_checkpoint_does_not_lead_to_is_refused(
    edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Before anything is profiled or launched; what leads on is taken up."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        save_step(home, first, 10)
        with pytest.raises(PlanUnderWayError, match=re.escape(message)):
            await asked(home, **edit)
        longer = await asked(home, training={"globalBatchSize": 8, "steps": 30})
        assert (longer.uid, longer.generation) == (first.uid, 2)

    in_home(tmp_path, work)


def test_checkpoints_elsewhere_are_not_passed_over(tmp_path: Path) -> None:
    """Trained steps would be lost without a word."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        save_step(home, first, 10)
        message = (
            f"saved step 10 in .*/checkpoints, and is to go on from .*/{first.uid}"
        )
        with pytest.raises(PlanUnderWayError, match=message):
            await asked(home, checkpoint={"path": "elsewhere"})
        anew = await asked(home, checkpoint={"path": "elsewhere"}, anew=True)
        assert anew.uid != first.uid

    in_home(tmp_path, work)


def test_what_has_trained_to_its_end_is_over(tmp_path: Path) -> None:
    """Also if its command was killed before it printed that: nothing is added to it."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        await begin_attempt(home.store, first.uid, 1)
        await home.store.attempts.end(
            first.uid, Attempt(number=1, ending=Ending.DONE, ended_s=2.0, generation=1)
        )
        assert (await asked(home)).uid == first.uid
        longer = await asked(home, training={"globalBatchSize": 8, "steps": 30})
        assert longer.uid != first.uid

    in_home(tmp_path, work)


@pytest.mark.parametrize("given", ["saved", "saved/step-00000010"])
def test_a_checkpoint_to_begin_with_must_be_there(given: str, tmp_path: Path) -> None:
    """It is looked for before anything is profiled; a dry run needs none."""
    place = str(tmp_path / given)

    async def work(home: StateDir) -> None:
        with pytest.raises(InvalidFieldError, match=r"spec\.checkpoint\.resumeFrom: "):
            await asked(home, checkpoint={"resumeFrom": place})
        await asked(home, checkpoint={"resumeFrom": place}, **DRY)
        (tmp_path / "saved/step-00000010").mkdir(parents=True)
        await asked(home, checkpoint={"resumeFrom": place})

    in_home(tmp_path, work)


def test_an_end_that_nobody_was_told_is_told_first(tmp_path: Path) -> None:
    """As it was; who asks for something else is not answered by it."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        await is_over(home, first, was_told=False)
        same = await asked(home, offer=emulated(2 * GIB))
        assert (same.uid, same.status, same.offers) == (
            first.uid,
            OVER,
            first.offers,
        )
        typed = Machines(memory_bytes=2 * GIB)
        other = await asked(home, offer=emulated(2 * GIB), machines=typed)
        assert other.uid != first.uid

    in_home(tmp_path, work)


@pytest.mark.parametrize("over", [False, True])
def test_anew_is_anew(over: bool, tmp_path: Path) -> None:
    """Whatever is under way, or was not reported."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        if over:
            await is_over(home, first, was_told=False)
        again = await asked(home, anew=True, offer=emulated(2 * GIB))
        assert again.uid != first.uid
        assert again.offers == (emulated(2 * GIB),)

    in_home(tmp_path, work)


@pytest.mark.parametrize(("steps", "num_handed_on"), [(20, 1), (21, 0)])
def test_what_a_dry_run_planned_is_what_is_launched(
    steps: int, num_handed_on: int, tmp_path: Path
) -> None:
    """Whatever was calibrated since: the question goes on, if nothing else changed."""

    async def work(home: StateDir) -> None:
        dry = await asked(home, **DRY)
        occasion = Occasion(
            plan_uid=dry.uid, generation=1, round=0, profile_digest=DIGEST
        )
        put = await home.store.questions.put(occasion, a_problem())
        await is_over(home, dry)
        training = {"globalBatchSize": 8, "steps": steps}
        launch = await asked(home, offer=emulated(2 * GIB), training=training)
        assert launch.uid != dry.uid
        assert launch.offers == dry.offers
        found = await home.store.questions.of(launch.uid)
        assert found == (put,) * num_handed_on

    in_home(tmp_path, work)


def test_what_was_launched_is_no_dry_run_any_more(tmp_path: Path) -> None:
    """It would say that nothing was launched."""

    async def work(home: StateDir) -> None:
        first = await asked(home)
        await begin_attempt(home.store, first.uid, 1)
        with pytest.raises(PlanUnderWayError, match="PlanOnly cannot undo"):
            await asked(home, **DRY)

    in_home(tmp_path, work)
