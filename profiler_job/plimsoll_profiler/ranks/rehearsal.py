"""Runs one rank of a plan alone on one device: real tensors, nothing sent.

In: a plan's job and a rank. Out: a `Rehearsal`: the rank's peaks by phase, allocated,
reserved and device, or where it ran out of memory. Called by `rehearser`, in a process
that is the device.

What would be received is filled with random numbers, so that no kernel meets what was
left in memory by chance. All micro-batches of a step run: the rank holds what it will
hold, but for communicators.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.task import FullDevice
from plimsoll_planner.units import at_least
from plimsoll_profiler.errors import BusyDeviceError
from plimsoll_profiler.ranks.placed_replay import SilentTransport
from plimsoll_profiler.ranks.planned_work import placed_work, planned_work
from plimsoll_trainer.devices.device import Device, open_device
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.engine.boundaries import settled
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.errors import DeviceFullError, PlanMismatchError
from plimsoll_trainer.placed.training import PlacedTrainer, Ports
from plimsoll_trainer.process.assignment import Assignment
from plimsoll_trainer.process.failures import explain
from plimsoll_trainer.process.host_memory import need_of, require_room
from plimsoll_trainer.process.placed_run import PlacedAssignment
from plimsoll_trainer.reporting.reports import first_observation
from plimsoll_trainer.torch_internals.pipeline import single_process
from plimsoll_trainer.workload import Workload

NUM_STEPS = 3
"""The first brings buffers and optimizer state into being; the others are steady."""
RECEIVED_SCALE = 1e-2
"""Standard deviation of received numbers: gradients of that size overflow no type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalJob:
    """Rank to run, and the device to run it on."""

    plan: HybridPlan
    workload: Workload
    assignment: Assignment | PlacedAssignment
    rank: int
    device: Device
    other_bytes: int | None = None
    """In use by other processes before; None: unknown."""


def job_of(
    plan: HybridPlan,
    profile: ModelProfile,
    entrypoint: str,
    rank: int,
    other_bytes: int | None,
) -> RehearsalJob:
    """The job of one rank of a plan, on the device that this process is or has.

    Raises:
        TrainerError: plan, profile, workload and device do not belong together.
    """
    if not 0 <= rank < plan.num_gpus:
        raise PlanMismatchError(
            f"there is no rank {rank}: the plan has ranks 0 to {plan.num_gpus - 1}"
        )
    assignment: Assignment | PlacedAssignment
    if plan.placement is not None:
        assignment = placed_work(plan, plan.placement, profile, entrypoint)
        workload = assignment.workload
    else:
        workload, assignment = planned_work(plan, profile, entrypoint)
    return RehearsalJob(
        plan=plan,
        workload=workload,
        assignment=assignment,
        rank=rank,
        device=open_device(plan.offers[0].device_kind, local_rank=0),
        other_bytes=other_bytes,
    )


def rehearse(job: RehearsalJob) -> Rehearsal:
    """Run a rank for a few steps.

    Raises:
        BusyDeviceError: it ran out of memory beside other processes.
        PlimsollError: in one line, what else went wrong.
    """
    watch, step_s = PeakWatch(job.device), list[float]()
    full: FullDevice | None = None
    try:
        run_steps(job, watch, step_s)
    except Exception as error:
        reason = explain(error, watch.under_way, job.device)
        if not isinstance(reason, DeviceFullError):
            raise reason from error
        if job.other_bytes:
            raise beside_others(reason, job.other_bytes) from error
        watch(watch.under_way)  # how full it was
        full = FullDevice(
            rank=job.rank, phase=reason.phase, asked_bytes=reason.asked_bytes
        )
    return Rehearsal(
        observation=replace(
            first_observation(job.plan, job.rank, job.device),
            num_steps=len(step_s),
            step_s=tuple(step_s[1:]),
            peaks=watch.observed(),
        ),
        capacity_bytes=job.device.capacity_bytes,
        other_bytes=job.other_bytes,
        full_device=full,
    )


def beside_others(reason: DeviceFullError, other_bytes: int) -> BusyDeviceError:
    """The error of a rank that ran out of memory which others use."""
    return BusyDeviceError(
        f"{reason}; other processes have {at_least(other_bytes)} of the device, so "
        "nothing follows from it: end them, and rehearse again"
    )


class SteppingTrainer(Trainer):
    """Steps whatever overflows, for the numbers of a rehearsal are noise.

    A rank that leaves steps out has no optimizer state, and holds less than it will.
    """

    def follow_scale(self, norm: Tensor | None) -> tuple[float | None, bool]:
        """See the base."""
        scale, _ = super().follow_scale(norm)
        return scale, False


def run_steps(job: RehearsalJob, watch: PeakWatch, step_s: list[float]) -> None:
    """Build the rank and run its steps; their seconds are added to `step_s`."""
    work, device = job.assignment, job.device.torch_device
    num_ranks = work.num_stages * work.num_replicas
    with single_process(job.rank, num_ranks, fill_with_noise(device)):
        world = join_world(work.num_stages, work.num_replicas, device)
        trainer = lone_trainer(job.workload, work, world, watch)
        for step in range(NUM_STEPS):
            begin_s = time.perf_counter()
            result = trainer.run_step(step)
            float(result.loss)  # waits for the device, so that the time is real
            step_s.append(time.perf_counter() - begin_s)


def lone_trainer(
    workload: Workload,
    work: Assignment | PlacedAssignment,
    world: World,
    watch: PeakWatch,
) -> Trainer | PlacedTrainer:
    """Build a rank whose peers are not there."""
    if isinstance(work, PlacedAssignment):
        transport = partial(SilentTransport, fill=fill_with_noise(world.device))
        return work.trainer(world, Ports(transport=transport, on_phase=watch))
    workload, boundaries = settled(workload, work.micro_batch)
    require_room([need_of(workload, work, world)])
    return SteppingTrainer(
        workload,
        slices=work.slices,
        boundaries=boundaries,
        num_micro_batches=work.num_micro_batches,
        world=world,
        schedule=work.schedule,
        on_phase=watch,
    )


def fill_with_noise(device: torch.device) -> Callable[[Tensor], None]:
    """A function that fills received tensors; it never draws from a layer's numbers."""
    generator = torch.Generator(device=device).manual_seed(0)

    def fill(tensor: Tensor) -> None:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.normal_(0.0, RECEIVED_SCALE, generator=generator)
        else:
            tensor.zero_()

    return fill
