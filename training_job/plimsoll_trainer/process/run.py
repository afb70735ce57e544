"""One training process, from its options to its exit code.

What can be refused is refused before the first allocation, in this order: plan, world
and code (`admission`), the workload, the device, what the trainer cannot run, layers
that do not fit together, memory of the host for optimizers that are there, the
checkpoint: its files, data, layers. Only optimizer state of another kind than the
checkpoint's is found out when that is read, and replicas that differ when all is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.pod_names import WEIGHTS
from plimsoll_planner.records.document import digest_of
from plimsoll_trainer.checkpoint.exported import (
    check_exports,
    checkpoint_at,
    export_weights,
)
from plimsoll_trainer.checkpoint.folders import step_of
from plimsoll_trainer.checkpoint.loader import Found, check_layers
from plimsoll_trainer.checkpoint.manifest import identity_of
from plimsoll_trainer.checkpoint.saved_state import StageState
from plimsoll_trainer.checkpoint.state import check_names, check_optimizer
from plimsoll_trainer.devices.device import Device, open_device
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.boundaries import Boundaries, settled
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.equal_replicas import check_frozen, check_replicas
from plimsoll_trainer.engine.evaluating import evaluate
from plimsoll_trainer.engine.evaluation_samples import check_evaluation
from plimsoll_trainer.engine.learned import listed
from plimsoll_trainer.engine.loading import Loader, open_loader
from plimsoll_trainer.engine.shared_tensors import stages_that_share
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.errors import DeviceFullError, exit_code_of
from plimsoll_trainer.placed.checkpoint import check_graph
from plimsoll_trainer.process.admission import Admitted, Place
from plimsoll_trainer.process.assignment import Assignment, assign
from plimsoll_trainer.process.calls import Calls
from plimsoll_trainer.process.checkpointing import Checkpointing
from plimsoll_trainer.process.evaluations import Evaluations
from plimsoll_trainer.process.failures import explain
from plimsoll_trainer.process.host_memory import check_host_memory, warn_of_pageable
from plimsoll_trainer.process.meeting import meeting_place
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.process.placed_run import (
    PlacedAssignment,
    assign_placed,
    build_placed,
)
from plimsoll_trainer.process.revisions import Revisions
from plimsoll_trainer.process.session import Session
from plimsoll_trainer.process.steps import Built, Steps
from plimsoll_trainer.process.stopping import StopSignal
from plimsoll_trainer.reporting.console import say
from plimsoll_trainer.reporting.report_sink import file_sink
from plimsoll_trainer.reporting.reports import Reporter, first_observation
from plimsoll_trainer.schedules import Schedule
from plimsoll_trainer.streams import Stream
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Work of one rank, checked."""

    admitted: Admitted
    workload: Workload
    assignment: Assignment | PlacedAssignment

    @property
    def rank(self) -> int:
        """This one."""
        return self.admitted.place.rank


def run(admitted: Admitted, stop: StopSignal) -> ExitCode:
    """Train as one rank.

    Where a process group exists already, as in tests, the rank is a member of that.

    Raises:
        PlimsollError: in one line, why this rank ended.
    """
    options, place = admitted.options, admitted.place
    arguments = parse_arguments(admitted.plan.fingerprint.arguments)
    workload = of_job(load_workload(options.entrypoint, arguments), options.steps)
    device = open_device(admitted.plan.offers[0].device_kind, place.local_rank)
    assignment = assignment_of(admitted, workload)
    job = Job(admitted=admitted, workload=workload, assignment=assignment)
    if dist.is_initialized():
        return train(job, device, stop)
    store = meeting_place(place, options, stop)
    if stop.is_set:
        return ExitCode.CHECKPOINTED  # nothing was done that could be lost
    with joined(device, store, place, options):
        return train(job, device, stop)


def assignment_of(
    admitted: Admitted, workload: Workload
) -> Assignment | PlacedAssignment:
    """Work of the job's ranks, by the engine of the plan.

    Raises:
        TrainerError: plan and workload do not belong together, or cannot be run.
    """
    plan, profiles = admitted.plan, admitted.profiles
    if plan.placement is None:
        return assign(plan, workload, profiles)
    return assign_placed(plan, plan.placement, workload, profiles)


def of_job(workload: Workload, num_steps: int) -> Workload:
    """The workload of a job with so many steps, over which its learning rate falls.

    Raises:
        WorkloadError: the schedule does not go with them.
    """
    schedule = workload.learning_rate_factor
    if not isinstance(schedule, Schedule):
        return workload
    return replace(workload, learning_rate_factor=schedule.over(num_steps))


@contextmanager
def joined(
    device: Device, store: Any, place: Place, options: Options
) -> Iterator[None]:
    """Be a member of the group of all ranks."""
    dist.init_process_group(
        device.backend,
        store=store,
        rank=place.rank,
        world_size=place.num_ranks,
        timeout=timedelta(seconds=options.timeout_s),
        device_id=device.torch_device if device.backend == "nccl" else None,
    )
    yield
    # Not after an error: a group with a dead member may never come to an end.
    dist.destroy_process_group()


def train(job: Job, device: Device, stop: StopSignal) -> ExitCode:
    """Train this rank's share, and report how that ends.

    Raises:
        PlimsollError: in one line, why this rank ended.
    """
    watch = PeakWatch(device)
    timeout = timedelta(seconds=job.admitted.options.timeout_s)
    control = Control(timeout)
    world = join_world(
        job.assignment.num_stages,
        job.assignment.num_replicas,
        device.torch_device,
        timeout,
        job.assignment.num_parts,
    )
    reporter = reporter_of(job, device, world, watch)
    try:
        session, first_step = prepare(job, world, control, watch, reporter, stop)
        code = session.run(first_step)
        if code is ExitCode.DONE:
            export(job, reporter)
            if session.last_words and job.rank == 0:
                say(job.rank, session.last_words)
        reporter.event("end", exit_code=int(code))
    except Exception as error:
        reason = explain(error, watch.under_way, device)
        if isinstance(reason, DeviceFullError):
            watch(watch.under_way)  # how full it was
        reporter.failed(reason, exit_code_of(reason))
        raise reason from error
    else:
        return code
    finally:
        reporter.close()


def export(job: Job, reporter: Reporter) -> None:
    """Write the trained weights from rank 0, where that is asked for.

    Raises:
        CheckpointError: they cannot be written.
    """
    root, options = job.admitted.options.checkpoint_dir, job.admitted.options
    if not options.export_weights or root is None or job.rank:
        return
    checkpoint, target = checkpoint_at(root), root / WEIGHTS
    export_weights(job.workload, checkpoint, target, replaces=True)
    reporter.event("exported", step=step_of(checkpoint), folder=str(target))
    say(job.rank, f"trained weights: {target}")


def prepare(
    job: Job,
    world: World,
    control: Control,
    watch: PeakWatch,
    reporter: Reporter,
    stop: StopSignal,
) -> tuple[Session, int]:
    """Build this rank's share and resume; return the first step to run as well."""
    options, assignment = job.admitted.options, job.assignment
    warn = partial(say, job.rank)
    if options.export_weights:
        check_exports(job.workload)
    workload, boundaries = settled(job.workload, assignment.micro_batch)
    check_frozen(boundaries.unlearned, control)
    job = replace(job, workload=workload)
    if boundaries.unlearned and job.rank == 0:
        names = listed(workload, boundaries.unlearned)
        warn(f"frozen, for no gradient comes back to them: {names}")
    check_evaluation(job.workload, boundaries)
    check_host(job, world, control, reporter)
    check_names(job.workload)
    if options.checkpoint_dir is not None:
        check_optimizer(job.workload.optimizer, world.device)
    checkpoints = Checkpointing(options, control, watch, reporter, warn)
    identity = identity_of(job.workload, assignment.global_batch_size)
    checkpoints.choose(identity, partial(check_model, job, world))
    if isinstance(assignment, PlacedAssignment):
        built = build_placed(assignment, world, watch)
    else:
        built = build_stages(job.workload, assignment, boundaries, world, watch)
        warn_of_pageable(built.unpinned_bytes, warn)
    digest = digest_of(job.admitted.plan)
    first_step = checkpoints.open(built.state, identity, digest)
    with host_memory():  # sums are small, but an emulated device may be smaller
        built.check_replicas(control)  # and waits for all ranks
    calls = Calls.of(job.workload.callbacks, job.rank)
    built.steps.loader = loader_of(built.steps, checkpoints, first_step, warn)
    session = Session(
        trainer=built.steps,
        control=control,
        checkpoints=checkpoints,
        revisions=revisions_of(job, built.steps, control, checkpoints, reporter),
        reporter=reporter,
        watch=watch,
        stop=stop,
        num_steps=options.steps,
        evaluations=Evaluations(
            wanted=job.workload.evaluation, evaluate=built.evaluate, watch=watch
        ),
        calls=calls,
    )
    return session, first_step


def check_host(job: Job, world: World, control: Control, reporter: Reporter) -> None:
    """Refuse what the host has no room for, and report what it takes."""
    if isinstance(job.assignment, PlacedAssignment):
        return  # which leaves nothing there
    warn = partial(say, job.rank)
    need = check_host_memory(job.workload, job.assignment, world, control, warn)
    if need:
        reporter.event(
            "host_memory",
            needed_bytes=need.needed_bytes,
            free_bytes=need.free_bytes,
        )


def check_model(job: Job, world: World, found: Found) -> None:
    """Refuse a checkpoint of another model, before anything is built.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    if isinstance(job.assignment, PlacedAssignment):
        check_graph(job.assignment.graph, found)
    else:
        check_layers(job.workload, job.assignment.slices[world.stage], found)


def build_stages(
    workload: Workload,
    assignment: Assignment,
    boundaries: Boundaries,
    world: World,
    watch: PeakWatch,
) -> Built:
    """Build what a rank of a pipeline runs."""
    trainer = Trainer(
        workload,
        slices=assignment.slices,
        boundaries=boundaries,
        num_micro_batches=assignment.num_micro_batches,
        world=world,
        schedule=assignment.schedule,
        on_phase=watch,
    )
    return Built(
        steps=trainer,
        state=StageState(trainer),
        evaluate=partial(evaluate, trainer),
        check_replicas=partial(check_replicas, trainer),
        unpinned_bytes=0 if trainer.link is None else trainer.link.unpinned_bytes,
    )


def revisions_of(
    job: Job,
    steps: Steps,
    control: Control,
    checkpoints: Checkpointing,
    reporter: Reporter,
) -> Revisions | None:
    """What revises the plan as it runs; None: operators are not moved."""
    if not isinstance(steps, Trainer) or not isinstance(job.assignment, Assignment):
        return None
    return Revisions(
        path=job.admitted.options.revision_file,
        wait_s=job.admitted.options.revision_wait_s,
        plan=job.admitted.plan,
        assignment=job.assignment,
        trainer=steps,
        control=control,
        checkpoints=checkpoints,
        reporter=reporter,
        warn=partial(say, job.rank),
    )


def loader_of(
    trainer: Steps,
    checkpoints: Checkpointing,
    first_step: int,
    warn: Callable[[str], None],
) -> Loader:
    """Loader of the samples of a rank, from a step on."""
    batch = trainer.workload.batch
    if isinstance(batch, Stream):
        batch.resume(checkpoints.loop.data)
    if not trainer.takes_samples:
        return trainer.loader
    return open_loader(
        trainer.workload,
        partial(trainer.keys, range(first_step, checkpoints.options.steps)),
        num_ahead=trainer.num_micro_batches,
        device=trainer.world.device,
        warn=warn,
    )


def reporter_of(job: Job, device: Device, world: World, watch: PeakWatch) -> Reporter:
    """Reports of this rank."""
    options = job.admitted.options
    about = replace(
        first_observation(job.admitted.plan, job.rank, device),
        attempt=options.attempt,
        num_communicators=num_communicators(job.workload, job.assignment, world),
    )
    path = (options.report_file or "").replace("{rank}", str(job.rank))
    return Reporter(
        about,
        watch,
        lines=file_sink(Path(path), partial(say, job.rank)) if path else None,
        every_s=options.report_every_s,
    )


def num_communicators(
    workload: Workload, assignment: Assignment | PlacedAssignment, world: World
) -> int:
    """Number of groups of several ranks that this rank is a member of.

    The planner allows for as many (`plimsoll_planner.overhead.allowance`).
    """
    sharing = (
        stages_that_share(workload, assignment.slices)
        if isinstance(assignment, Assignment)
        else []
    )
    degrees = (world.num_stages, world.num_replicas, world.num_parts)
    return (
        any(degree > 1 for degree in degrees)
        + sum(degree > 1 for degree in degrees)
        + sum(world.stage in stages for stages in sharing)
    )
