"""Turns files and options of a command line into a `Problem`.

In: what a person typed (`question_options`). Out: records; everything is checked on the
way, and told in options. Called by `plan` and `compare`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from plimsoll_cli.options.files import read
from plimsoll_cli.options.question import DEFAULT_MAX_GPUS
from plimsoll_cli.options.translate_errors import told_in_options
from plimsoll_cli.verbs.offers import read_table
from plimsoll_planner.engines import engine_named
from plimsoll_planner.errors import InvalidFieldError, UnreadableError
from plimsoll_planner.overheads import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import from_text, read_whole
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import (
    BatchStatistics,
    Goal,
    Limits,
    Objective,
    Override,
    Problem,
)

FIXED = ("gpus", "pipeline", "data", "micro_batch", "cuts", "recompute")
"""Options that fix a part of the plan."""
OFFERS_ADVICE = "plimsoll offers --output json > offers.json lists this machine"
LAYERS = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


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
    whole_nodes: bool
    batch_statistics: str


def read_problem(path: Path, options: dict[str, Any]) -> Problem:
    """Read the profile and everything that the options name.

    Raises:
        InvalidInputError: a file cannot be read, or parts do not fit together.
    """
    profile = read(path, ModelProfile)
    fixed = {name: options.pop(name, None) for name in FIXED}
    with told_in_options():
        override = override_of(profile, **fixed)
        return problem_of(profile, Question(**options), override)


def problem_of(
    profile: ModelProfile, question: Question, override: Override
) -> Problem:
    """Build the problem; see `read_problem`."""
    offers = offers_for(profile, question.offers)
    return Problem(
        profile=profile,
        overheads=with_built_in(
            (read(path, DeviceOverhead) for path in question.overheads), offers
        ),
        offers=offers,
        engine=engine_named(question.engine, profile.fingerprint.torch_version),
        global_batch_size=question.batch,
        num_steps=question.steps,
        limits=Limits(
            max_gpus=question.max_gpus or max(DEFAULT_MAX_GPUS, override.least_gpus),
            headroom=question.headroom,
            max_micro_batch=question.max_micro_batch,
            max_tuples=question.max_tuples,
            whole_nodes=question.whole_nodes,
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
        batch_statistics=next(
            choice
            for choice in BatchStatistics
            if choice.value.casefold() == question.batch_statistics.casefold()
        ),
    )


def offers_for(profile: ModelProfile, path: Path) -> tuple[Offer, ...]:
    """Return the offers of the profile's kind of device.

    Raises:
        InvalidInputError: the file cannot be read, or has no such device.
    """
    try:
        found = read_offers(path)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {OFFERS_ADVICE}") from None
    mine = tuple(offer for offer in found if offer.device_kind is profile.device_kind)
    if not mine:
        kinds = " and ".join(sorted({offer.device_kind for offer in found})) or "no"
        raise UnreadableError(
            f"{path}: lists {kinds} devices, and the profile is for "
            f"{profile.device_kind} ones; profile with another --device, or name other "
            "--offers"
        )
    return mine


def read_offers(path: Path) -> tuple[Offer, ...]:
    """Read offers from JSON (one Offer, or a list) or from a CSV table."""
    if path.suffix.casefold() != ".json":
        return read_table(path)
    try:
        text = read_whole(path).decode("utf-8-sig")
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(value, list):
        return (from_text(text, Offer, str(path)),)
    entries = cast("list[object]", value)
    return tuple(
        Offer.from_json(entry, f"{path}: Offer[{place}]")
        for place, entry in enumerate(entries)
    )


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
        run = range(int(first), int(last or first) + 1)
        if not run:
            raise InvalidFieldError("--recompute", part, f"{last}-{first}")
        layers.extend(run)
    return tuple(layers)
