"""The process that replays a plan: `python -m plimsoll_profiler.replayer`.

Prints a `Replay` as one line of JSON, or one line of what is wrong on stderr. Runs in
the user's image, on a CPU, also for plans of GPUs.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

import torch

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import digest_of, load, to_text
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_profiler.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.arguments import parse_arguments
from plimsoll_trainer.assignment import assign
from plimsoll_trainer.boundaries import boundaries_of
from plimsoll_trainer.emulated.device import require_emulated_device
from plimsoll_trainer.entrypoint import load_workload
from plimsoll_trainer.errors import TrainerError, described
from plimsoll_trainer.fingerprint import fingerprint_of, require_same


def main() -> int:
    """Replay every stage."""
    parser = argparse.ArgumentParser(prog="plimsoll_profiler.replayer")
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
        found = replay(plan, profile, options.entrypoint)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        is_ours = isinstance(error, TrainerError)
        print(error if is_ours else described(error), file=sys.stderr)
        return error.exit_code if isinstance(error, TrainerError) else ExitCode.FAILED
    # Python flushes what is `sys.stdout` at its end, and this is not any more.
    print(to_text(found), file=out, flush=True)
    return ExitCode.DONE


def replay(plan: HybridPlan, profile: ModelProfile, entrypoint: str) -> Replay:
    """Replay one rank of every stage of a plan.

    Raises:
        TrainerError: plan, profile and workload do not belong together, or cannot be
            run.
    """
    arguments = plan.fingerprint.arguments
    here = fingerprint_of(entrypoint, arguments)
    require_same(here, plan.fingerprint, entrypoint)
    require_same(here, profile.fingerprint, entrypoint)
    workload = load_workload(entrypoint, parse_arguments(arguments))
    work = assign(plan, workload, (profile,))
    job = ReplayJob(
        workload=workload,
        slices=work.slices,
        num_replicas=work.num_replicas,
        num_micro_batches=work.num_micro_batches,
        boundaries=boundaries_of(workload, work.micro_batch),
        device_kind=plan.offers[0].device_kind,
    )
    stages = tuple(
        ReplayedStage(
            stage=stage,
            peaks=tuple(
                ReplayedPeak(phase=phase, allocated_bytes=peak)
                for phase, peak in replay_stage(job, stage).items()
            ),
        )
        for stage in range(len(plan.stages))
    )
    return Replay(
        plan_digest=digest_of(plan),
        torch_version=str(torch.__version__),
        stages=stages,
    )


if __name__ == "__main__":
    sys.exit(main())
