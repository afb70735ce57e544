"""Quantities that `solve` looks for, and the question about one value.

In: what was typed. Out: `Range`, and a function that makes a `Problem` of a value.
Called by the verb `solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from plimsoll_cli.options.model import Training, profile_in, profile_of
from plimsoll_cli.options.problem import read_problem
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.problem import Problem
from plimsoll_profiler.profiling.request import ProfileRequest


class Unknown(StrEnum):
    """Quantities that may be looked for."""

    SEQUENCE = "sequence"
    MICRO_BATCH = "micro-batch"
    DEPTH = "depth"
    DEVICES = "devices"


class End(StrEnum):
    """End of a search."""

    FITS = "fits"
    """The fewest devices were found."""
    FAILS = "fails"
    """A value fails for sure."""
    AT_MOST = "at-most"
    MAX_MICRO_BATCH = "max-micro-batch"
    MAX_GPUS = "max-gpus"
    USUAL = "usual-limit"
    """Nobody gave a limit."""
    MODEL = "model"
    """The model takes no larger value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Values that an unknown may have."""

    grain: int
    limit: int
    """Where nobody gives one."""
    unit: str
    place: str = ""
    """Of the units: `in a sample`."""
    fixed_by: str
    """The option that fixes the value."""

    def text(self, value: int) -> str:
        """A value in words."""
        return f"{value:,} {self.unit}{'' if value == 1 else 's'}{self.place}"


SCALES = {
    Unknown.SEQUENCE: Scale(
        grain=256,
        limit=2**20,
        unit="token",
        place=" in a sample",
        fixed_by="--sequence",
    ),
    Unknown.MICRO_BATCH: Scale(
        grain=1,
        limit=2**12,
        unit="sample",
        place=" in a micro-batch",
        fixed_by="--micro-batch",
    ),
    Unknown.DEPTH: Scale(grain=1, limit=1024, unit="block", fixed_by="--blocks"),
    Unknown.DEVICES: Scale(grain=1, limit=1, unit="device", fixed_by="--gpus"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Values that are tried: multiples of the grain up to a limit."""

    grain: int
    limit: int
    end: End
    """Who gave the limit."""


def range_of(
    unknown: Unknown,
    grain: int | None,
    at_most: int | None,
    max_micro_batch: int | None,
) -> Range:
    """The values to try; the smaller one of two limits counts.

    Raises:
        InvalidInputError: there are none.
    """
    scale = SCALES[unknown]
    if unknown is not Unknown.MICRO_BATCH:
        max_micro_batch = None
    limits = ((at_most, End.AT_MOST), (max_micro_batch, End.MAX_MICRO_BATCH))
    given = [(limit, end) for limit, end in limits if limit is not None]
    limit, end = min(given, default=(scale.limit, End.USUAL))
    step = grain or scale.grain
    if limit < step:
        raise InvalidInputError(
            f"--{end}: got {limit}, allowed is at least {step}, which is --grain"
        )
    return Range(grain=step, limit=limit, end=end)


def check_free(
    unknown: Unknown, model: str, training: Training, options: Mapping[str, Any]
) -> None:
    """Refuse to look for what is fixed.

    Raises:
        InvalidInputError: an option fixes it, or a profile does.
    """
    fixed = {
        Unknown.SEQUENCE: training.sequence_length,
        Unknown.MICRO_BATCH: options["micro_batch"],
        Unknown.DEPTH: training.num_blocks,
        Unknown.DEVICES: options["gpus"],
    }
    if fixed[unknown] is not None:
        option = SCALES[unknown].fixed_by
        raise InvalidInputError(f"--for {unknown}: {option} fixes it; leave that away")
    is_profiled = unknown in (Unknown.SEQUENCE, Unknown.DEPTH)
    if is_profiled and profile_in(model) is not None:
        raise InvalidInputError(
            f"--for {unknown}: {model} is a profile, which has it already; name the "
            "model"
        )


def asking(
    unknown: Unknown,
    model: str,
    training: Training,
    options: Mapping[str, Any],
    run: Callable[[ProfileRequest], ModelProfile],
) -> Callable[[int], Problem]:
    """A function that asks about one value; `run` makes the profiles.

    Of a micro-batch below all that were profiled nothing is known: the least is asked
    about in its place.
    """

    @cache
    def profile(asked: Training) -> ModelProfile:
        return profile_of(model, asked, run)

    def ask(value: int) -> Problem:
        asked, given = training, dict(options)
        if unknown is Unknown.SEQUENCE:
            asked = replace(training, sequence_length=value)
        elif unknown is Unknown.DEPTH:
            asked = replace(training, num_blocks=value)
        elif unknown is Unknown.MICRO_BATCH:
            value = max(value, profile(asked).least_micro_batch)
            given["micro_batch"] = value
            given["batch"] = value * (given["data"] or 1)
        problem = read_problem(profile(asked), given)
        if unknown is not Unknown.MICRO_BATCH:
            return problem
        least = options["batch"] or value * problem.limits.max_gpus
        return in_whole_micro_batches(problem, least)

    return ask


def least_profiled(values: Range, problem: Problem) -> int:
    """The least micro-batch that anything is known of.

    Raises:
        InvalidInputError: all values are below it.
    """
    least = problem.profile.least_micro_batch
    if values.limit < least:
        raise InvalidInputError(
            f"--{values.end}: got {values.limit}, allowed is at least {least}, the "
            "least micro-batch that was profiled"
        )
    return least


def in_whole_micro_batches(problem: Problem, least: int) -> Problem:
    """The problem with the least batch of so many samples that its parts divide."""
    share = problem.global_batch_size
    return replace(problem, global_batch_size=-(-least // share) * share)
