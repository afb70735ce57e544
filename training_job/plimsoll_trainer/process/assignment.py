"""From a plan to the work of this job's ranks; refuses what cannot be run as planned.

In: a `HybridPlan`, the workload, and where it is at hand the profile that the plan was
made from. Out: an `Assignment`. Called once by `run`, before anything is allocated, so
that a plan for another model ends with one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from plimsoll_planner.records.engine import (
    OptimizerHome,
    Schedule,
    Sharding,
    can_follow,
)
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    OptimizerMode,
)
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_trainer.carried import carrying_layer
from plimsoll_trainer.engine.elementwise import is_elementwise
from plimsoll_trainer.engine.host_optimizer import try_on_host
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.errors import (
    ForeignFingerprintError,
    OtherWorkloadError,
    PlanMismatchError,
    located,
)
from plimsoll_trainer.workload import Workload, optimizer_mode, sample_optimizer

SAME = (
    "pass the arguments that were profiled, or profile and plan again; an entry point "
    "that gives others here depends on what is not in its arguments, as the rank, the "
    "environment or the machine: let it not"
)
"""Advice for a workload that is not the one profiled; there are two causes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """Work of the ranks of a job; see `engine.world` for their order."""

    slices: tuple[StageSlice, ...]
    """Of every stage, in order."""
    num_replicas: int
    num_parts: int
    """Ranks of a tensor group, which share each layer."""
    micro_batch: int
    """Samples."""
    num_micro_batches: int
    """For each replica and step."""
    schedule: Schedule

    @property
    def num_stages(self) -> int:
        """P."""
        return len(self.slices)

    @property
    def global_batch_size(self) -> int:
        """Samples of one step."""
        return self.num_replicas * self.micro_batch * self.num_micro_batches


def assign(
    plan: HybridPlan, workload: Workload, profiles: Iterable[ModelProfile] = ()
) -> Assignment:
    """Work of the ranks of a plan.

    Raises:
        PlanMismatchError: the plan is for another workload, or asks for what this
            trainer cannot run.
    """
    check_engine(plan)
    check_layers(plan, workload)
    check_optimizer(plan.optimizer_mode, workload, plan.offers[0].device_kind)
    check_divided(plan, workload)
    check_split(plan, workload)
    check_on_host(plan, workload)
    for profile in profiles:
        if profile.fingerprint == plan.fingerprint:
            check_profile(profile, workload)
    return Assignment(
        slices=slices_of(plan),
        num_replicas=plan.stages[0].data_degree,
        num_parts=plan.stages[0].variant.tensor_degree,
        micro_batch=plan.micro_batch,
        num_micro_batches=plan.num_micro_batches,
        schedule=plan.schedule,
    )


def slices_of(plan: HybridPlan) -> tuple[StageSlice, ...]:
    """Layers of every stage, in order, and how it holds them."""
    return tuple(
        StageSlice(
            first_layer=stage.chunks[0].first_layer,
            end_layer=stage.chunks[0].end_layer,
            recomputed=frozenset(stage.recomputed_layers),
            offloaded=frozenset(stage.offloaded_layers),
            offloaded_bytes=stage.offloaded_bytes,
            sharding=stage.sharding,
            optimizer_home=stage.optimizer_home,
            sequence_parallel=stage.variant.sequence_parallel,
            in_flight_cap=(
                stage.in_flight_cap
                if stage.in_flight_cap < plain_in_flight(plan, place)
                else None
            ),
        )
        for place, stage in enumerate(plan.stages)
    )


def plain_in_flight(plan: HybridPlan, place: int) -> int:
    """Micro-batches in flight on a stage that nothing caps."""
    num_left = len(plan.stages) - place
    return SCHEDULES[plan.schedule].in_flight(num_left, plan.num_micro_batches)


def check_engine(plan: HybridPlan) -> None:
    """Refuse what this trainer cannot run yet, by name."""
    if plan.schedule not in SCHEDULES:
        raise cannot_run(f"the schedule {plan.schedule}", ", ".join(SCHEDULES))
    mesh = plan.mesh
    if mesh is None:
        raise cannot_run("stages of different degrees", "the same on every stage")
    if mesh.pipeline > plan.num_micro_batches:
        raise cannot_run(
            f"{plan.num_micro_batches} micro-batches on {mesh.pipeline} stages",
            "at least as many micro-batches as stages",
        )
    for place, stage in enumerate(plan.stages):
        ranks = mesh.ranks(place)
        if stage.ranks != tuple(ranks):
            raise cannot_run(
                f"the ranks {list(stage.ranks)} on stage {place}",
                f"ranks in order, here from {ranks[0]} on",
            )
        check_in_flight(plan, stage, place)


def check_in_flight(plan: HybridPlan, stage: Stage, place: int) -> None:
    """Refuse a cap that the schedule would break, or that waits for ever."""
    cap, plain = stage.in_flight_cap, plain_in_flight(plan, place)
    if cap > plain:
        raise cannot_run(
            f"{cap} micro-batches in flight on stage {place}",
            f"at most the {plain} of plain {plan.schedule}",
        )
    before = plan.stages[place - 1].in_flight_cap if place else cap
    if not can_follow(cap, before):
        raise PlanMismatchError(
            f"the plan asks for {cap} micro-batches in flight on stage {place}, after "
            f"{before} on the stage before, where only {before} or one fewer run: plan "
            "again"
        )


def cannot_run(what: str, instead: str) -> PlanMismatchError:
    """Error for a part of a plan."""
    return PlanMismatchError(
        f"the plan asks for {what}, which this trainer cannot run yet: plan with "
        f"engine plimsoll, which runs {instead}"
    )


def check_layers(plan: HybridPlan, workload: Workload) -> None:
    """Refuse a plan for a chain of another length, and recompute where it may not be.

    Raises:
        OtherWorkloadError: see above.
    """
    planned = max(chunk.end_layer for s in plan.stages for chunk in s.chunks)
    if planned != len(workload.layers):
        raise OtherWorkloadError(
            f"the plan is for {planned} layers, but the workload has "
            f"{len(workload.layers)}: {SAME}"
        )
    for stage in plan.stages:
        for index in stage.recomputed_layers:
            if not workload.layers[index].recomputable:
                raise OtherWorkloadError(
                    f"the plan recomputes layer {workload.layers[index].name!r}, which "
                    "the workload does not allow: profile and plan again"
                )


def check_optimizer(planned: OptimizerMode, workload: Workload, on: DeviceKind) -> None:
    """Refuse an optimizer that holds something else than was planned.

    Where there is no GPU, as in a replay, the one of the CPU tells as much.

    Raises:
        OtherWorkloadError: the workload's optimizer walks its parameters otherwise.
        WorkloadError: it has none.
    """
    found = optimizer_mode(sample_optimizer(workload, device_for(on)), on)
    if found is not planned:
        raise OtherWorkloadError(
            f"the plan is for a {planned} optimizer, but the workload's is {found}: "
            f"{SAME}"
        )


def device_for(kind: DeviceKind) -> str:
    """Device that an optimizer is tried on."""
    return "cuda" if kind is DeviceKind.CUDA and torch.cuda.is_available() else "cpu"


def check_divided(plan: HybridPlan, workload: Workload) -> None:
    """Refuse to divide the state of an optimizer that mixes numbers of a tensor.

    Raises:
        OtherWorkloadError: see above.
    """
    divided = [s for s in plan.stages if s.sharding is not Sharding.NONE]
    device = device_for(plan.offers[0].device_kind)
    if divided and not is_elementwise(workload.optimizer, device):
        name = type(sample_optimizer(workload, device)).__name__
        raise OtherWorkloadError(
            f"the plan divides the optimizer state of layers from "
            f"{divided[0].chunks[0].first_layer} on, but a step of the workload's "
            f"{name} on a part of a tensor is not that part of a step on all of it: "
            f"{SAME}"
        )


def check_split(plan: HybridPlan, workload: Workload) -> None:
    """Refuse to split what an optimizer steps on as a whole, or nobody splits.

    Raises:
        OtherWorkloadError: see above.
    """
    variant = plan.stages[0].variant
    degree = variant.tensor_degree
    plain = [one.name for one in workload.layers if one.parallelize_sequence is None]
    if variant.sequence_parallel and plain:
        raise OtherWorkloadError(
            f"the plan splits sequences over {degree} ranks, but layer {plain[0]!r} "
            f"has no parallelize_sequence: {SAME}"
        )
    does = carrying_layer(workload.layers)
    if degree > 1 and does:
        raise OtherWorkloadError(
            f"the plan splits layers over {degree} ranks, but {does}, which is not "
            f"split: {SAME}"
        )
    device = device_for(plan.offers[0].device_kind)
    if degree > 1 and not is_elementwise(workload.optimizer, device):
        name = type(sample_optimizer(workload, device)).__name__
        raise OtherWorkloadError(
            f"the plan splits layers over {degree} ranks, but a step of the workload's "
            f"{name} on a part of a tensor is not that part of a step on all of it: "
            f"{SAME}"
        )


def check_on_host(plan: HybridPlan, workload: Workload) -> None:
    """Refuse to keep on the host what an optimizer can only do on a GPU.

    Raises:
        OtherWorkloadError: see above.
    """
    there = [s for s in plan.stages if s.optimizer_home is OptimizerHome.HOST]
    if not there:
        return
    try:
        try_on_host(workload.optimizer)
    except Exception as error:
        raise OtherWorkloadError(
            f"the plan keeps the optimizer of layers from "
            f"{there[0].chunks[0].first_layer} on in the host's memory, but the "
            f"workload's cannot step there: {located(error)}; plan with optimizer home "
            "device, or give an optimizer that steps on tensors of the CPU"
        ) from error


def check_profile(profile: ModelProfile, workload: Workload) -> None:
    """Refuse a workload that differs from the profiled one in name or precision.

    Raises:
        OtherWorkloadError: naming the first difference.
        ForeignFingerprintError: the profile is of a release that added gradients up in
            another type, and is to be made anew.
    """
    recipe = profile.recipe
    is_old = recipe.gradient_precision is None
    if is_old and recipe.sums_in is not workload.gradient_precision:
        raise ForeignFingerprintError(
            f"the profile is of a release that added gradients up in {recipe.sums_in}, "
            f"but here it is {workload.gradient_precision}: profile and plan again"
        )
    names = [layer.name for layer in workload.layers]
    found: Iterable[tuple[str, object, object]] = (
        ("precision", recipe.precision, workload.precision),
        ("gradient_precision", recipe.sums_in, workload.gradient_precision),
        *(
            (f"the name of layer {place}", planned, here)
            for place, (planned, here) in enumerate(
                zip(profile.layers.name, names, strict=False)
            )
        ),
    )
    for what, planned, here in found:
        if planned != here:
            raise OtherWorkloadError(
                f"{what} was '{planned}' when profiled, but here it is '{here}': {SAME}"
            )
