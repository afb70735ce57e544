"""The plan that a manifest runs: the one under way, or a new one.

In: a manifest, machines, an open state directory whose plan of that name nobody else
runs. Out: a `StoredPlan`. Called by `run`.

    no plan of that name             a new one
    --anew                           a new one; what runs of the old one is ended
    it is under way                  that one, with what may be edited
    it is over, not yet reported     that one, if the same is asked for
    it has failed and had saved      that one, from its checkpoint; the same training
    it is over                       a new one

It is over also where its last attempt has trained all steps, and whoever ran it was
killed before it reported that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_cli.errors import PlanUnderWayError
from plimsoll_cli.options.machines import Machines, gpu_products
from plimsoll_cli.state.state_dir import StateDir
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.api.record import ApiRecord
from plimsoll_operator.api.spec import LaunchPolicy, TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.backends.local.checkpoints import holds_checkpoint, newest_step
from plimsoll_operator.backends.local.observe import complaint_of
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.errors import InvalidFieldError, InvalidInputError, shorten
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.record import shapes_of

MAY_CHANGE = ("spec.suspend", "spec.runPolicy.")
"""Fields that may change once a job was launched."""
OF_THE_TRAINING = ("spec.workload.", "spec.training.globalBatchSize")
"""Fields that a checkpoint belongs to."""
UNDO = "undo that, give the plan another name, or begin it anew with --anew"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """A plan as a person asks for it."""

    name: str
    spec: TrainingPlanSpec
    offers: tuple[Offer, ...]
    folder: str
    """Folder of the workload's code."""

    def is_met_by(self, plan: StoredPlan) -> bool:
        """Whether a plan was asked for the same."""
        asked = self.spec, self.offers, self.folder
        return asked == (plan.spec, plan.offers, plan.folder)

    def launches(self, plan: StoredPlan) -> bool:
        """Whether this is what a plan that was a dry run has planned for."""
        launch = replace(plan.spec.launch, policy=LaunchPolicy.LAUNCH)
        return is_dry(plan.spec) and self.is_met_by(
            replace(plan, spec=replace(plan.spec, launch=launch))
        )


async def resolve_plan(
    home: StateDir,
    manifest: Manifest,
    machines: Machines,
    offers: tuple[Offer, ...],
    *,
    anew: bool,
) -> StoredPlan:
    """The plan that a manifest is run as; nobody else runs it in this state directory.

    `offers` are what the manifest and what was typed mean now. If `anew`, what is under
    way is left where it is, and another begins.

    Raises:
        PlanUnderWayError: it was launched with another spec.
        InvalidInputError: the spec names what is not there, or its parts contradict
            each other or the offers.
    """
    before = await home.store.plans.find(manifest.name)
    if before is not None and not anew and keeps_offers(before, manifest, machines):
        offers = before.offers
    asked = PlanRequest(
        name=manifest.name,
        spec=manifest.spec,
        offers=offers,
        folder=str(Path.cwd()),
    )
    complaint = complaint_of(asked.spec, asked.offers, gpu_products=gpu_products())
    if complaint:  # before anything of it is stored
        raise InvalidInputError(complaint)
    if before is None:
        return await begun(home, asked)
    if not anew and not await is_over(home, before):
        return await continued(home, before, asked)
    if not before.was_told and asked.is_met_by(before) and not anew:
        return before
    if is_resumed(home, before, asked) and not anew:
        again = await home.store.plans.open_again(before.uid)
        return await continued(home, again, asked)
    home.backend(before).end_all()  # nobody could find them again
    made = await begun(home, asked)
    if asked.launches(before) and not anew:
        await home.store.questions.hand_on(before.uid, made.uid)
    return made


def keeps_offers(before: StoredPlan, manifest: Manifest, machines: Machines) -> bool:
    """Whether a plan stays with the machines that it began with.

    What this machine has free changes by the minute; what a table lists does not.
    """
    is_listed = manifest.spec.search.offers.config_map and not machines.is_given
    is_open = not before.status.is_over or not before.was_told or is_dry(before.spec)
    return is_open and not is_listed and machines.mean(before.offers)


def is_dry(spec: TrainingPlanSpec) -> bool:
    """Whether nothing is launched."""
    return spec.launch.policy is LaunchPolicy.PLAN_ONLY


async def is_over(home: StateDir, plan: StoredPlan) -> bool:
    """Whether nothing more is done for a plan."""
    attempts = await home.store.attempts.of(plan.uid)
    has_trained = bool(attempts) and attempts[-1].ending is Ending.DONE
    return plan.status.is_over or has_trained


async def begun(home: StateDir, asked: PlanRequest) -> StoredPlan:
    """Begin a plan."""
    require_beginning(asked)
    return await home.store.plans.create(
        asked.name, asked.spec, asked.offers, asked.folder, time.time()
    )


async def continued(
    home: StateDir, before: StoredPlan, asked: PlanRequest
) -> StoredPlan:
    """Go on with a plan, with what was edited.

    Raises:
        PlanUnderWayError: that may not be edited any more, or its checkpoints belong to
            another model, batch or place, or to more steps.
    """
    attempts = await home.store.attempts.of(before.uid)
    if attempts and is_dry(asked.spec):
        raise PlanUnderWayError(
            f"plan {before.name} was launched, which spec.launch.policy PlanOnly "
            "cannot undo: give the dry run another name, or begin it with --anew"
        )
    if attempts and attempts[-1].ending is None:
        require_same_job(before, asked)
    if why := why_not_resumed(home, before, asked):
        raise PlanUnderWayError(f"plan {before.name} has {why}: {UNDO}")
    if saved_step(home, before) is None:
        require_beginning(asked)
    await home.store.plans.set_suspended(before.uid, is_suspended=False)
    return await home.store.plans.edit(
        before.uid, asked.spec, asked.offers, asked.folder
    )


def require_beginning(asked: PlanRequest) -> None:
    """Refuse to begin with a checkpoint that is not there.

    Raises:
        InvalidFieldError: the folder has none.
    """
    given = asked.spec.checkpoint.resume_from
    if not given or is_dry(asked.spec):
        return
    if not holds_checkpoint(Path(asked.folder) / given):
        rule = f"a checkpoint (step-NNNNNNNN), or a folder of some; from {asked.folder}"
        raise InvalidFieldError("spec.checkpoint.resumeFrom", given, rule)


def is_resumed(home: StateDir, before: StoredPlan, asked: PlanRequest) -> bool:
    """Whether a plan that is over goes on: it has failed, and has saved."""
    ended = before.status.condition(ConditionType.SUCCEEDED)
    has_failed = ended is not None and ended.status is Truth.FALSE
    if not has_failed or saved_step(home, before) is None or is_dry(asked.spec):
        return False
    return not why_not_resumed(home, before, asked)


def saved_step(home: StateDir, plan: StoredPlan) -> int | None:
    """The step that a plan would go on from, None where nothing is saved."""
    return newest_step(home.backend(plan).checkpoints)


def why_not_resumed(home: StateDir, before: StoredPlan, asked: PlanRequest) -> str:
    """Reason why the checkpoints do not lead to what is asked for; empty if they do."""
    step = saved_step(home, before)
    if step is None:
        return ""
    for path, was, now in differences(before.spec, asked.spec, "spec"):
        if path.startswith(OF_THE_TRAINING):
            return f"saved step {step} with {path} {changed_text(was, now)}"
    steps = asked.spec.training.steps
    if step > steps:
        return f"saved step {step}, which is past spec.training.steps {steps}"
    saved = home.backend(before).checkpoints
    after = replace(before, spec=asked.spec, folder=asked.folder)
    if (looked_for := home.backend(after).checkpoints) != saved:
        return f"saved step {step} in {saved}, and is to go on from {looked_for}"
    return ""


def changed_text(was: object, now: object) -> str:
    """Both values of a field."""
    return f"{shorten(was)}, which is {shorten(now)} now"


def require_same_job(before: StoredPlan, asked: PlanRequest) -> None:
    """Refuse to change under a job what it was launched with.

    Raises:
        PlanUnderWayError: another spec, but for what may change; other machines, or
            another folder of the code.
    """
    launched = f"plan {before.name} was launched with"
    for path, was, now in differences(before.spec, asked.spec, "spec"):
        if not path.startswith(MAY_CHANGE):
            text = f"{launched} {path} {changed_text(was, now)}: {UNDO}"
            raise PlanUnderWayError(text)
    advice = "give the plan another name, or begin it anew with --anew"
    if asked.offers != before.offers:
        text = f"{launched} other machines: leave --device.. and --offers away"
        raise PlanUnderWayError(f"{text}, {advice}")
    if asked.folder != before.folder:
        text = f"{launched} code in {before.folder}: run it there"
        raise PlanUnderWayError(f"{text}, {advice}")


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
