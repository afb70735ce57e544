"""The options that make a problem, as `plan` and `compare` have them.

In: a command of click. Out: the same with the options. What was typed becomes records
in `questions`; which field an option sets stands in `option_names`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from plimsoll_cli.options.types import COUNT, FiniteNumber
from plimsoll_planner.records.problem import BatchStatistics, Goal

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_BATCH = 32
DEFAULT_MAX_GPUS = 16

PATH = click.Path(path_type=Path)
OPTIONS = (
    click.option(
        "--offers", required=True, type=PATH, help="Machines: CSV, or JSON of Offer."
    ),
    click.option(
        "--overhead",
        "overheads",
        multiple=True,
        type=PATH,
        help="Calibrated DeviceOverhead, JSON; may be given several times.",
    ),
    click.option(
        "--engine",
        default="plimsoll",
        show_default=True,
        help="What will train; its bytes and abilities are planned with.",
    ),
    click.option(
        "--batch",
        type=COUNT,
        default=DEFAULT_BATCH,
        show_default=True,
        help="Samples in one step of all replicas.",
    ),
    click.option(
        "--max-gpus",
        type=COUNT,
        help=f"Search every count up to this.  [default: {DEFAULT_MAX_GPUS}]",
    ),
    click.option(
        "--rate-floor",
        type=FiniteNumber(0, 1),
        default=0.5,
        show_default=True,
        help="Least part of the best samples per second per GPU.",
    ),
    click.option(
        "--min-throughput",
        type=FiniteNumber(min=0, min_open=True),
        help="Samples per second; takes the place of --rate-floor.",
    ),
    click.option(
        "--tolerance",
        type=FiniteNumber(0, 1),
        default=0.05,
        show_default=True,
        help="How much throughput may go for less memory.",
    ),
    click.option("--steps", type=COUNT, help="Of the whole training; for its cost."),
    click.option(
        "--deadline",
        type=FiniteNumber(min=0, min_open=True),
        help="Seconds for the whole training; needs --steps.",
    ),
    click.option(
        "--headroom",
        type=FiniteNumber(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Part of the device memory to keep free.",
    ),
    click.option(
        "--max-micro-batch",
        type=COUNT,
        help="Search every micro-batch up to this.  [default: --batch]",
    ),
    click.option(
        "--max-tuples",
        type=COUNT,
        help="Work limit: how many combinations of offer, stages, replicas and "
        "micro-batch are searched.",
    ),
    click.option(
        "--batch-statistics",
        type=click.Choice([one.value for one in BatchStatistics], case_sensitive=False),
        default=BatchStatistics.FIXED_MICRO_BATCH.value,
        metavar=f"[{'|'.join(BatchStatistics)}]",
        help="Who chooses the micro-batch where BatchNorm makes it matter: you, by "
        "--micro-batch, or the search.",
    ),
)
GOAL = (
    click.option(
        "--objective",
        type=click.Choice([goal.value for goal in Goal], case_sensitive=False),
        default=Goal.MINIMIZE_GPUS.value,
        show_default=True,
        metavar=f"[{'|'.join(Goal)}]",
        help="What is made smallest or largest; MinimizeCost needs --steps and prices.",
    ),
    click.option(
        "--whole-nodes",
        is_flag=True,
        help="Count the devices of whole nodes, used or not, as they are paid for; "
        "with MinimizeGPUs.",
    ),
)
OVERRIDES = (
    click.option("--gpus", type=COUNT, help="Fix the number of GPUs."),
    click.option("--pipeline", type=COUNT, help="Fix the number of stages."),
    click.option("--data", type=COUNT, help="Fix the number of replicas."),
    click.option("--micro-batch", type=COUNT, help="Fix the micro-batch."),
    click.option("--cuts", help="Fix the first layer of each stage, as in 0,9,17."),
    click.option("--recompute", help="Fix what recomputes: 0-5, 2,4,7, all or none."),
)


def question_options(command: Command) -> Command:
    """Add the options that make a problem, but for goal and overrides."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def goal_options(command: Command) -> Command:
    """Add the options that say what is made least or most."""
    for option in reversed(GOAL):
        command = option(command)
    return command


def override_options(command: Command) -> Command:
    """Add the options that fix parts of the plan."""
    for option in reversed(OVERRIDES):
        command = option(command)
    return command
