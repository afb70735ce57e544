"""The process that replays a plan, started by `plimsoll_profiler.start`.

Prints lines of progress and then a `Replay`, each as one line of JSON, or one line of
what is wrong on stderr. Runs in the user's image, on a CPU, also for plans of GPUs.

Stages are replayed side by side, in as many processes as there is room and work for.
Each loads the workload itself. Stages of one that is killed are replayed here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO

import torch

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import digest_of, load, to_text
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_profiler.counting.meters import settled_heap
from plimsoll_profiler.ranks.placed_replay import PlacedReplayJob, replay_device
from plimsoll_profiler.ranks.planned_work import placed_work, planned_work
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_profiler.ranks.replay_process import OnProgress, ignore
from plimsoll_profiler.ranks.side_by_side import room_for_processes, side_by_side
from plimsoll_trainer.emulated.device import require_emulated_device
from plimsoll_trainer.engine.boundaries import settled
from plimsoll_trainer.errors import TrainerError, described

PASSES_OF_A_PROCESS = 50
"""Passes of a micro-batch through a layer that take 2 to 3 s, as loading a workload
does: with less to do, another process saves nothing."""


def main() -> int:
    """Replay every stage."""
    parser = argparse.ArgumentParser(prog="plimsoll_profiler.start replayer")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--profile", type=Path, required=True, help="it is made from")
    parser.add_argument("--entrypoint", required=True)
    options = parser.parse_args()
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        plan = load(options.plan, HybridPlan)
        if plan.offers[0].device_kind is DeviceKind.EMULATED:
            require_emulated_device()
        profile = load(options.profile, ModelProfile)
        found = replay(
            plan,
            profile,
            options.entrypoint,
            num_processes=min(room_for_processes(), processes_worth(plan)),
            on_progress=progress_printer(out),
        )
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        refused = refusal_of(error)
        print(refused.text, file=sys.stderr)
        return refused.exit_code
    # Python flushes what is `sys.stdout` at its end, and this is not any more.
    print(to_text(found), file=out, flush=True)
    return ExitCode.DONE


def progress_printer(out: IO[str]) -> OnProgress:
    """A function that prints a line of progress, as profiling does."""

    def show(done: int, total: int) -> None:
        line = {"done": done, "total": total, "what": "ranks"}
        print(json.dumps(line), file=out, flush=True)

    return show


def processes_worth(plan: HybridPlan) -> int:
    """Processes that there is work for, one a stage at most."""
    num_stages = len(plan.stages)
    num_passes = sum(
        (num_stages - place + 2) * sum(c.end_layer - c.first_layer for c in part.chunks)
        for place, part in enumerate(plan.stages)
    )
    return max(1, min(num_stages, num_passes // PASSES_OF_A_PROCESS))


class RefusedError(Exception):
    """End of a replay that fails; passed from process to process, caught by `main`."""

    def __init__(self, exit_code: ExitCode, text: str) -> None:
        """Keep both as they are, so that a process can send it."""
        super().__init__(exit_code, text)
        self.exit_code = exit_code
        self.text = text


def refusal_of(error: Exception) -> RefusedError:
    """End after an error; its traceback is shown if that is asked for."""
    if isinstance(error, RefusedError):
        return error
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    if isinstance(error, TrainerError):
        return RefusedError(error.exit_code, str(error))
    return RefusedError(ExitCode.FAILED, described(error))


AnyJob = ReplayJob | PlacedReplayJob


def replay_job(plan: HybridPlan, profile: ModelProfile, entrypoint: str) -> AnyJob:
    """Job that all ranks of a plan share.

    Raises:
        TrainerError: plan, profile and workload do not belong together, or cannot be
            run.
    """
    kind = plan.offers[0].device_kind
    if plan.placement is not None:
        placed = placed_work(plan, plan.placement, profile, entrypoint)
        return PlacedReplayJob(assignment=placed, device_kind=kind)
    workload, work = planned_work(plan, profile, entrypoint)
    workload, boundaries = settled(workload, work.micro_batch)
    return ReplayJob(
        workload=workload,
        slices=work.slices,
        num_replicas=work.num_replicas,
        num_parts=work.num_parts,
        num_micro_batches=work.num_micro_batches,
        boundaries=boundaries,
        device_kind=kind,
        schedule=work.schedule,
    )


def replay_here(
    load_job: Callable[[], AnyJob], stages: Iterable[int]
) -> Iterator[ReplayedStage]:
    """Replay one rank of each of some stages."""
    job = load_job()
    with settled_heap():
        for stage in stages:
            peaks = tuple(
                ReplayedPeak(phase=phase, allocated_bytes=peak)
                for phase, peak in peaks_of(job, stage).items()
            )
            yield ReplayedStage(stage=stage, peaks=peaks)


def peaks_of(job: AnyJob, stage: int) -> dict[Phase, int]:
    """Peak of a rank of a stage, or of a device, in each phase."""
    if isinstance(job, PlacedReplayJob):
        return replay_device(job, stage)
    return replay_stage(job, stage)


def try_to_replay(
    load_job: Callable[[], AnyJob], stages: Iterable[int]
) -> Iterator[ReplayedStage | RefusedError]:
    """Replay them in a process of many; ends with a refusal if it fails."""
    try:
        yield from replay_here(load_job, stages)
    except Exception as error:  # noqa: BLE001 - as in `main`
        yield refusal_of(error)


def replay(
    plan: HybridPlan,
    profile: ModelProfile,
    entrypoint: str,
    *,
    num_processes: int = 1,
    on_progress: OnProgress = ignore,
) -> Replay:
    """Replay one rank of every stage of a plan, in some processes side by side.

    Raises:
        TrainerError: plan, profile and workload do not belong together, or cannot be
            run.
        RefusedError: so it was in another process.
    """
    load_job = partial(replay_job, plan, profile, entrypoint)
    num_stages = len(plan.stages)
    found: dict[int, ReplayedStage] = {}
    on_progress(0, num_stages)
    with closing(replayed(load_job, num_stages, num_processes)) as stages:
        for made in stages:
            found[made.stage] = made
            on_progress(len(found), num_stages)
    return Replay(
        plan_digest=digest_of(plan),
        torch_version=str(torch.__version__),
        stages=tuple(found[stage] for stage in range(num_stages)),
    )


def replayed(
    load_job: Callable[[], AnyJob], num_stages: int, num_processes: int
) -> Generator[ReplayedStage, None, None]:
    """Every stage, in the order in which they are done."""
    left = set(range(num_stages))
    if num_processes > 1:
        work = partial(try_to_replay, load_job)
        with closing(side_by_side(work, num_stages, num_processes)) as made:
            for one in made:
                if isinstance(one, RefusedError):
                    raise one
                left.discard(one.stage)
                yield one
    if left:
        yield from replay_here(load_job, sorted(left))
