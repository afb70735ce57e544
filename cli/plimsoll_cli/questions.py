"""Turns files and options of a command line into a `Problem`, and answers from files.

In: what a person typed. Out: records; everything is checked on the way. Called by
`plan`, `explain` and `compare`, whose common options are `question_options`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from plimsoll_cli.offers import read_table
from plimsoll_planner.engines import engine_named
from plimsoll_planner.errors import InvalidFieldError, UnreadableError, shorten
from plimsoll_planner.overheads import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import from_text, load
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import (
    Goal,
    Limits,
    Objective,
    Override,
    Problem,
)
from plimsoll_planner.records.solution import Infeasible, Solution

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_BATCH = 32
DEFAULT_MAX_GPUS = 16
LAYERS = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")

PATH = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
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
    click.option("--engine", default="plimsoll", show_default=True),
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
        "--objective",
        type=click.Choice([goal.value for goal in Goal], case_sensitive=False),
        default=Goal.MINIMIZE_GPUS.value,
        show_default=True,
    ),
    click.option(
        "--rate-floor",
        type=click.FloatRange(0, 1),
        default=0.5,
        show_default=True,
        help="Least part of the best samples per second per GPU.",
    ),
    click.option(
        "--min-throughput",
        type=click.FloatRange(min=0, min_open=True),
        help="Samples per second; takes the place of --rate-floor.",
    ),
    click.option(
        "--tolerance",
        type=click.FloatRange(0, 1),
        default=0.05,
        show_default=True,
        help="How much throughput may go for less memory.",
    ),
    click.option("--steps", type=COUNT, help="Of the whole training; for its cost."),
    click.option(
        "--deadline",
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds for the whole training.",
    ),
    click.option(
        "--headroom",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Part of the device memory to keep free.",
    ),
    click.option("--max-micro-batch", type=COUNT),
    click.option(
        "--max-tuples", type=COUNT, help="Work limit: how many tuples are searched."
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
    """Add the options that make a problem, but for overrides."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def override_options(command: Command) -> Command:
    """Add the options that fix parts of the plan."""
    for option in reversed(OVERRIDES):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The options of `question_options`, as they were typed."""

    offers: Path
    overheads: tuple[Path, ...]
    engine: str
    batch: int
    max_gpus: int | None
    objective: str
    rate_floor: float
    min_throughput: float | None
    tolerance: float
    steps: int | None
    deadline: float | None
    headroom: float
    max_micro_batch: int | None
    max_tuples: int | None


def problem_of(
    profile: ModelProfile, question: Question, override: Override
) -> Problem:
    """Build the problem.

    Raises:
        InvalidInputError: a file cannot be read, or parts do not fit together.
    """
    needed = override.num_gpus or (len(override.cuts) or override.num_stages or 1) * (
        override.data_degree or 1
    )
    offers = offers_for(profile, read_offers(question.offers))
    return Problem(
        profile=profile,
        overheads=with_built_in(
            (load(path, DeviceOverhead) for path in question.overheads), offers
        ),
        offers=offers,
        engine=engine_named(question.engine),
        global_batch_size=question.batch,
        num_steps=question.steps,
        limits=Limits(
            max_gpus=question.max_gpus or max(DEFAULT_MAX_GPUS, needed),
            headroom=question.headroom,
            max_micro_batch=question.max_micro_batch,
            max_tuples=question.max_tuples,
        ),
        objective=Objective(
            goal=next(
                goal
                for goal in Goal
                if goal.value.casefold() == question.objective.casefold()
            ),
            rate_floor=question.rate_floor,
            min_samples_per_s=question.min_throughput,
            throughput_tolerance=question.tolerance,
            deadline_s=question.deadline,
        ),
        override=override,
    )


def read_offers(path: Path) -> tuple[Offer, ...]:
    """Read offers from JSON (one Offer, or a list) or from a CSV table."""
    if path.suffix.casefold() != ".json":
        return read_table(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        value: object = json.loads(text)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(value, list):
        return (from_text(text, Offer, str(path)),)
    entries = cast("list[object]", value)
    return tuple(
        Offer.from_json(entry, f"{path}: Offer[{place}]")
        for place, entry in enumerate(entries)
    )


def offers_for(profile: ModelProfile, found: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Return the offers of the profile's kind of device, or all for the error."""
    mine = tuple(offer for offer in found if offer.device_kind is profile.device_kind)
    return mine or found


def override_of(
    profile: ModelProfile,
    *,
    gpus: int | None,
    pipeline: int | None,
    data: int | None,
    micro_batch: int | None,
    cuts: str | None,
    recompute: str | None,
) -> Override:
    """Build the override from its options."""
    return Override(
        num_gpus=gpus,
        num_stages=pipeline,
        data_degree=data,
        micro_batch=micro_batch,
        cuts=() if cuts is None else parse_cuts(cuts),
        recomputed_layers=(
            None if recompute is None else parse_recompute(recompute, profile)
        ),
    )


def parse_cuts(text: str) -> tuple[int, ...]:
    """Read the first layers of stages."""
    if not NUMBERS.fullmatch(text):
        raise InvalidFieldError("--cuts", text, "first layers such as 0,9,17")
    return tuple(int(number) for number in text.split(","))


def parse_recompute(text: str, profile: ModelProfile) -> tuple[int, ...]:
    """Read layers; `all` are those that can recompute."""
    if text == "none":
        return ()
    if text == "all":
        costs = profile.costs
        can = dict(zip(costs.kind, costs.recomputable, strict=True))
        return tuple(at for at, kind in enumerate(profile.layers.kind) if can[kind])
    if not LAYERS.fullmatch(text):
        rule = "all, none, or layers such as 0-5,8"
        raise InvalidFieldError("--recompute", text, rule)
    layers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        layers.extend(range(int(first), int(last or first) + 1))
    return tuple(layers)


def read_answer(path: Path) -> Solution | Infeasible:
    """Read what `plimsoll plan --solution` wrote.

    Raises:
        UnreadableError: no such file, no JSON, or neither of the two kinds.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value: object = json.loads(text)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not readable as JSON: {error}") from None
    kind: object = None
    if isinstance(value, dict):
        kind = cast("dict[str, object]", value).get("kind")
    if kind == Infeasible.__name__:
        return from_text(text, Infeasible, str(path))
    if kind == Solution.__name__:
        return from_text(text, Solution, str(path))
    raise UnreadableError(
        f"{path}: kind is {shorten(kind)}, needs Solution or Infeasible; "
        "plimsoll plan --solution writes one"
    )
