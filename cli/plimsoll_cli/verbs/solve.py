"""`plimsoll solve`: the longest sequence, or the like, that fits on given machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options.model import (
    Training,
    is_profile,
    model_options,
    profile_of,
    training_of,
)
from plimsoll_cli.options.problem import read_problem
from plimsoll_cli.options.question import question_options
from plimsoll_cli.options.types import COUNT
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.profiling import quietly
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.revising.observed import fits


class Unknown(StrEnum):
    """Quantities that may be looked for."""

    SEQUENCE = "sequence"
    MICRO_BATCH = "micro-batch"
    DEPTH = "depth"
    DEVICES = "devices"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Values that an unknown may have."""

    grain: int
    limit: int
    noun: str


SCALES = {
    Unknown.SEQUENCE: Scale(grain=256, limit=2**20, noun="tokens in a sample"),
    Unknown.MICRO_BATCH: Scale(grain=1, limit=2**12, noun="samples in a micro-batch"),
    Unknown.DEPTH: Scale(grain=1, limit=1024, noun="blocks"),
}


@click.command()
@click.argument("model")
@click.option(
    "--for",
    "unknown",
    type=click.Choice([one.value for one in Unknown]),
    required=True,
    help="What is to be as large as fits; devices: as few as do, as `plan` has it.",
)
@click.option("--at-most", type=COUNT, help="The largest value that is tried.")
@click.option("--grain", type=COUNT, help="Values are multiples of this.")
@model_options
@question_options()
@output_option
def solve(
    model: str,
    unknown: str,
    at_most: int | None,
    grain: int | None,
    output: str,
    **options: Any,
) -> None:
    """Find the largest value with which the training of MODEL fits, and proves it.

    Between the largest value that fits for sure and the least that fails for sure lie
    those that are undecided, as with `plimsoll plan`.
    """
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner.search.largest import largest  # noqa: PLC0415 - see above

    wanted = Unknown(unknown)
    if wanted is Unknown.DEVICES:
        raise click.UsageError(
            "--for devices: `plimsoll plan` finds the fewest, with the same options"
        )
    scale = SCALES[wanted]
    step, limit = grain or scale.grain, at_most or scale.limit
    if limit < step:
        raise InvalidInputError(
            f"--at-most: got {limit}, allowed is at least {step}, which is --grain"
        )
    ask = asking(wanted, model, training_of(options), options)
    with Console(stderr=True).status("searching") as status:

        def judge(value: int) -> Verdict:
            status.update(f"{value:,} {scale.noun}")
            return verdict_on(ask(value))

        found = largest(judge, step, limit)
    if output == Output.JSON:
        print_json(
            {"for": unknown, "fits": found.fits, "fails": found.fails, "grain": step}
        )
    else:
        say(*lines_of(found.fits, found.fails, limit, scale.noun))
    if found.fits is None:
        click.get_current_context().exit(ExitCode.NO_PLAN)


def asking(
    unknown: Unknown, model: str, training: Training, options: dict[str, Any]
) -> Callable[[int], Problem]:
    """A function that asks about one value.

    Raises:
        InvalidInputError: an option fixes what is looked for, or a profile does.
    """
    fixed = {
        Unknown.SEQUENCE: training.sequence_length,
        Unknown.MICRO_BATCH: options["micro_batch"],
        Unknown.DEPTH: training.num_blocks,
    }
    if fixed[unknown] is not None:
        raise InvalidInputError(
            f"--for {unknown}: it is fixed by another option; leave that away"
        )
    if unknown is not Unknown.MICRO_BATCH and is_profile(Path(model)):
        raise InvalidInputError(
            f"--for {unknown}: {model} is a profile, which has it already; name the "
            "model"
        )

    @cache
    def profile(asked: Training) -> ModelProfile:
        return profile_of(model, asked, quietly)

    def ask(value: int) -> Problem:
        asked, given = training, dict(options)
        if unknown is Unknown.SEQUENCE:
            asked = replace(training, sequence_length=value)
        elif unknown is Unknown.DEPTH:
            asked = replace(training, num_blocks=value)
        else:
            given["micro_batch"] = value
            batch = given["batch"] or 1
            given["batch"] = -(-batch // value) * value
        return read_problem(profile(asked), given)

    return ask


def verdict_on(problem: Problem) -> Verdict:
    """Whether the job fits on its machines, at a speed that will do.

    A plan that is fixed by hand may not.
    """
    from plimsoll_planner.search.answer import solve as answer_to  # noqa: PLC0415

    answer = answer_to(problem)
    if isinstance(answer, Solution):
        plan, limits = answer.plan, problem.limits
        if all(fits(plan, limits, stage, 0) for stage in plan.stages):
            return Verdict.FITS
    verdicts = {one.verdict for one in answer.certificate.counts}
    return Verdict.FAILS if verdicts == {Verdict.FAILS} else Verdict.UNDECIDED


def lines_of(fits: int | None, fails: int | None, limit: int, noun: str) -> list[str]:
    """The answer for people."""
    largest = "none fits for sure" if fits is None else f"{fits:,} {noun} fit"
    if fails is None:
        least = f"up to {limit:,} none fails for sure (--at-most)"
    else:
        least = f"{fails:,} fail"
    return [f"{largest}; {least}; between them nothing is proven"]
