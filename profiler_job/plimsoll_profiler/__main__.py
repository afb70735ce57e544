"""`python -m plimsoll_profiler VERB`: what the loop starts as a process.

    profile    profiles a workload: lines of progress on stdout, the profile in --out
    replay     replays ranks of a plan: lines of progress and the `Replay` on stdout
    rehearse   runs the fullest rank of a plan on one device: the `Rehearsal` on stdout

Exit codes are those of training (`plimsoll_planner.exit_codes`); the last line on
stderr says why. A line of progress is `{"done": 3, "total": 20, "what": "block, .."}`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from plimsoll_planner.engines import GRAPH_MICRO_BATCHES, TENSOR_DEGREES
from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_profiler.process_environment import (
    command_of,
    environment_of,
    environment_on_device,
)
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.errors import exit_code_of
from plimsoll_trainer.process.requirements import require_supported
from plimsoll_trainer.reporting.console import say


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    options = parser().parse_args(words)
    try:
        options.run(options)
    except PlimsollError as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        say(None, str(error))
        return exit_code_of(error)
    return ExitCode.DONE


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m plimsoll_profiler")
    verbs = made.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("profile", help="what the layers of a workload cost")
    verb.set_defaults(run=run_profile)
    verb.add_argument("--entrypoint", required=True, metavar="module:function")
    verb.add_argument("--args", default="{}", help="a JSON object")
    kinds = [kind.value for kind in DeviceKind]
    verb.add_argument("--device", choices=kinds, required=True)
    sources = [Source.TRACED.value, Source.MEASURED.value]
    verb.add_argument("--source", choices=sources, required=True)
    degrees = ",".join(map(str, TENSOR_DEGREES))
    verb.add_argument("--tensor-degrees", type=counts, default=degrees, help=DEGREES)
    verb.add_argument("--graph-micro-batches", type=counts, default=(), help=GRAPHS)
    verb.add_argument("--request-key", default="", help="that the profile is kept by")
    verb.add_argument("--out", type=Path, required=True, metavar="profile.json")
    verb = verbs.add_parser("replay", help="what the ranks of a plan hold")
    verb.set_defaults(run=replay)
    add_plan(verb)
    verb = verbs.add_parser("rehearse", help="run one rank alone on a device")
    verb.set_defaults(run=rehearse)
    add_plan(verb)
    verb.add_argument("--rank", type=int, help="the fullest, unless it is named")
    verb.add_argument(
        "--device-memory", type=num_bytes, default=0, metavar="BYTES", help=MEMORY_HELP
    )
    return made


DEGREES = "by which layers that can be split are probed, as in 1,2"
GRAPHS = (
    "of which operators are measured as well, for engine graph, as in "
    f"{','.join(map(str, GRAPH_MICRO_BATCHES))}; none: no"
)
MEMORY_HELP = "of an emulated device, where it is not what the plan says"


def add_plan(verb: argparse.ArgumentParser) -> None:
    """Add the options that name a plan and what it is of."""
    verb.add_argument("--entrypoint", required=True, metavar="module:function")
    verb.add_argument("--plan", type=Path, required=True)
    verb.add_argument("--profile", type=Path, required=True, help="it is made from")


def run_profile(options: argparse.Namespace) -> None:
    """Profile, with a line for every probe."""
    request = ProfileRequest(
        entrypoint=options.entrypoint,
        arguments=options.args,
        device_kind=DeviceKind(options.device),
        source=Source(options.source),
        tensor_degrees=options.tensor_degrees,
        graph_micro_batches=options.graph_micro_batches,
        known_as=options.request_key,
    )
    save(options.out, profile(request, print_progress))


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(map(int, text.split(",")))


def num_bytes(text: str) -> int:
    """Bytes as an option has them: a whole number, not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of bytes")
    return int(text)


def print_progress(done: int, total: int, what: str) -> None:
    """Print a line of progress."""
    print(json.dumps({"done": done, "total": total, "what": what}), flush=True)


def replay(options: argparse.Namespace) -> NoReturn:
    """Become the replayer, as the device that the plan is for."""
    plan = load(options.plan, HybridPlan)
    become("replayer", options, environment_of(plan.offers[0].device_kind))


def rehearse(options: argparse.Namespace) -> NoReturn:
    """Become the rehearser, as the device that the plan is for."""
    plan = load(options.plan, HybridPlan)
    rank = () if options.rank is None else ("--rank", str(options.rank))
    extra = environment_on_device(plan, options.device_memory)
    become("rehearser", options, extra, rank)


def become(
    name: str,
    options: argparse.Namespace,
    extra: Mapping[str, str],
    more: Sequence[str] = (),
) -> NoReturn:
    """This process, replaced by another of ours with the same plan and entry point.

    Raises:
        IncompatibleError: torch or numpy are missing or too old.
    """
    require_supported()
    words = (
        *command_of(name),
        *("--plan", str(options.plan), "--profile", str(options.profile)),
        *("--entrypoint", options.entrypoint, *more),
    )
    os.execve(sys.executable, words, os.environ | dict(extra))  # noqa: S606 - ourselves


if __name__ == "__main__":
    sys.exit(main())
