"""The command line of a training process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.units import bytes_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a rank; alike on every rank."""

    plan: Path
    entrypoint: str
    steps: int
    """Of the whole job, those before a resume included."""
    checkpoint_dir: Path | None = None
    checkpoint_every: int = 0
    """Steps; 0 saves at the end and when asked to stop."""
    keep: int = 2
    resume_from: Path | None = None
    accept_other_data: bool = False
    export_weights: bool = False
    """Whether trained weights are written beside the checkpoints at the end."""
    attempt: int = 1
    report_file: str | None = None
    report_every_s: float = 60.0
    fingerprint_from: tuple[Path, ...] = ()
    timeout_s: float = 60.0
    store_file: Path | None = None
    """Meeting of the ranks of one machine, if not by torchrun's address."""
    meet_at: tuple[str, int] | None = None
    """Host and port of rank 0, where ranks of several machines find each other."""
    meet_timeout_s: float = 600.0
    """For the last rank to come there: machines are ready one after the other."""
    device_memory: int = 0
    """Bytes of an emulated device; 0 is what the plan says."""
    revision_file: Path | None = None
    """In which a revision of the plan may appear; None: the plan stays."""
    revision_wait_s: float = 10.0
    """For one, before the first step on a device that is smaller than planned."""
    debug: bool = False


MOST_SECONDS = 1e9
MOST_PORT = 65_535
STORE_HELP = "new for each attempt: ranks of one machine meet here, without torchrun"
MEET_HELP = "of rank 0: ranks of several machines meet here, without torchrun"
REVISION_HELP = "in which a revision of the plan may appear while it runs"
WAIT_HELP = "for one, if a device is smaller than planned (10)"
EXPORT_HELP = "at the end, in the model's own format, to weights/ in that folder"
MEMORY_HELP = "of an emulated device, where it is not what the plan says"


def parse(words: Sequence[str] | None = None) -> Options:
    """Read the command line; argparse ends the process with 2 where it is wrong."""
    found = parser().parse_args(words)
    values = vars(found)
    values["fingerprint_from"] = tuple(values["fingerprint_from"])
    return Options(**values)


def parser() -> argparse.ArgumentParser:
    """Parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m plimsoll_trainer",
        description="Train by a plan, as one rank of many; started by torchrun.",
        epilog=f"Exit codes: {', '.join(map(code_in_words, ExitCode))}.",
    )
    add = made.add_argument
    add("--plan", type=Path, required=True, metavar="plan.json")
    add("--entrypoint", required=True, metavar="module:function")
    add("--steps", type=positive, required=True, help="of the whole job")
    add("--fingerprint-from", type=Path, nargs="+", default=[], metavar="profile.json")
    add("--timeout-s", type=seconds, default=60.0, help="for another rank (60)")
    add("--store-file", type=Path, metavar="FILE", help=STORE_HELP)
    add("--meet-at", type=meeting_point, metavar="HOST:PORT", help=MEET_HELP)
    add("--meet-timeout-s", type=seconds, default=600.0, help="for the last one (600)")
    add("--device-memory", type=memory, default=0, metavar="4GiB", help=MEMORY_HELP)
    add("--debug", action="store_true", help="show tracebacks")
    group = made.add_argument_group("checkpoints")
    add = group.add_argument
    add("--checkpoint-dir", type=Path, metavar="DIR", help="shared by all ranks")
    add("--checkpoint-every", type=count, default=0, metavar="STEPS")
    add("--keep", type=positive, default=2, metavar="K", help="checkpoints (2)")
    add("--resume-from", type=Path, metavar="DIR", help="default: the newest there is")
    add("--accept-other-data", action="store_true", help="resume with another seed, ..")
    add("--export-weights", action="store_true", help=EXPORT_HELP)
    add("--attempt", type=positive, default=1, help="of the job; later ones take over")
    group = made.add_argument_group("reports")
    add = group.add_argument
    add("--report-file", metavar="FILE", help="lines of JSON; {rank} is replaced")
    add("--report-every-s", type=seconds, default=60.0, help="without news (60)")
    group = made.add_argument_group("revisions")
    add = group.add_argument
    add("--revision-file", type=Path, metavar="FILE", help=REVISION_HELP)
    add("--revision-wait-s", type=seconds_or_none, default=10.0, help=WAIT_HELP)
    return made


def code_in_words(code: ExitCode) -> str:
    """Text of an exit code, as in `83 device out of memory`."""
    return f"{code.value} {code.name.lower().replace('_', ' ')}"


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 is allowed")
    return value


def count(text: str) -> int:
    """Read a whole number from 0 on."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text}: at least 0 is allowed")
    return value


def memory(text: str) -> int:
    """Read an amount of memory."""
    found = bytes_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: an amount such as 4GiB is allowed")
    return found


def meeting_point(text: str) -> tuple[str, int]:
    """Read a host and a port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text}: HOST:PORT is allowed")
    return host, int(port)


def seconds_or_none(text: str) -> float:
    """Read a span of time, which may be none."""
    return 0.0 if text == "0" else seconds(text)


def seconds(text: str) -> float:
    """Read a span of time."""
    value = float(text)
    if not 0 < value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text}: above 0 and up to 1e9 is allowed")
    return value
