"""The process that rehearses a rank, started by `plimsoll_profiler.start`.

Prints a `Rehearsal` as one line of JSON, or one line of what is wrong on stderr. It is
started as the device that the plan is for (`environment_on_device`).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import load, to_text
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_profiler.ranks.other_processes import other_process_bytes
from plimsoll_trainer.errors import exit_code_of
from plimsoll_trainer.reporting.console import say


def main() -> int:
    """Rehearse one rank."""
    options = parser().parse_args()
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        found = rehearse_here(options)
    except PlimsollError as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        say(None, str(error))
        return exit_code_of(error)
    # Python flushes what is `sys.stdout` at its end, and this is not any more.
    print(to_text(found), file=out, flush=True)
    return ExitCode.DONE


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    made = argparse.ArgumentParser(prog="plimsoll_profiler.start rehearser")
    made.add_argument("--plan", type=Path, required=True)
    made.add_argument("--profile", type=Path, required=True, help="it is made from")
    made.add_argument("--entrypoint", required=True)
    made.add_argument("--rank", type=int, help="the fullest, unless it is named")
    return made


def rehearse_here(options: argparse.Namespace) -> Rehearsal:
    """Rehearse on the device of this process.

    Raises:
        PlimsollError: in one line, what is wrong.
    """
    plan = load(options.plan, HybridPlan)
    profile = load(options.profile, ModelProfile)
    rank = plan.fullest_rank if options.rank is None else options.rank
    is_cuda = plan.offers[0].device_kind is DeviceKind.CUDA
    other_bytes = other_process_bytes() if is_cuda else 0
    # Torch takes seconds to load, and must not touch the GPU before that question.
    from plimsoll_profiler.ranks.rehearsal import beside_others, job_of, rehearse  # noqa: PLC0415
    from plimsoll_trainer.errors import DeviceFullError  # noqa: PLC0415
    from plimsoll_trainer.process.failures import explain  # noqa: PLC0415

    try:
        job = job_of(plan, profile, options.entrypoint, rank, other_bytes)
        return rehearse(job)
    except Exception as error:
        reason = explain(error, Phase.BUILD, None)
        if other_bytes and isinstance(reason, DeviceFullError):
            reason = beside_others(reason, other_bytes)
        raise reason from error
