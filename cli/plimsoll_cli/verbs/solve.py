"""`plimsoll solve`: the longest sequence, or the like, that fits on given machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options.model import (
    Training,
    model_options,
    profile_of,
    require_measured,
    training_of,
)
from plimsoll_cli.options.problem import read_problem
from plimsoll_cli.options.question import question_options
from plimsoll_cli.options.types import COUNT, MODEL
from plimsoll_cli.options.unknown import (
    SCALES,
    End,
    Range,
    Unknown,
    asking,
    check_free,
    least_profiled,
    range_of,
)
from plimsoll_cli.output.console import (
    Output,
    at_work,
    line_by_line,
    output_option,
    print_json,
    say,
)
from plimsoll_cli.output.largest_lines import Found, lines_of
from plimsoll_cli.output.profiling import quietly, with_progress
from plimsoll_planner.engines import GRAPH
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.text.explain import certificate_lines, infeasible_lines
from plimsoll_profiler.errors import BadWorkloadError


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "--for",
    "unknown",
    type=click.Choice([one.value for one in Unknown]),
    required=True,
    help="What is to be as large as fits; devices: as few as fit.",
)
@click.option(
    "--at-most",
    type=COUNT,
    help="The largest value that is tried; for devices it is --max-gpus.",
)
@click.option("--grain", type=COUNT, help="Values are multiples of this.")
@model_options
@question_options(but=("--batch",))
@click.option(
    "--batch",
    type=COUNT,
    help="How many samples a step takes, over all replicas together; for micro-batch, "
    "rounded up to whole micro-batches.  [default: 32; for micro-batch, as many "
    "micro-batches as there may be GPUs]",
)
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
    those that are undecided, as with `plimsoll plan`. With --min-throughput or
    --deadline, it is the largest of those that fit which reaches that rate as well.
    """
    wanted, training = Unknown(unknown), training_of(options)
    require_measured(model, options["engine"])
    if options["engine"] == GRAPH.engine and wanted is not Unknown.DEVICES:
        raise click.UsageError(
            f"--for {wanted}: engine {GRAPH.engine} plans what was profiled, and other "
            "values have other graphs; ask about one with `plimsoll plan`"
        )
    check_free(wanted, model, training, options)
    if wanted is Unknown.DEVICES:
        if at_most or grain:
            raise click.UsageError(
                "--for devices: the limit is --max-gpus, in steps of 1"
            )
        found, lines = fewest_devices(model, training, options)
    else:
        values = range_of(wanted, grain, at_most, options["max_micro_batch"])
        ask = asking(wanted, model, training, options, quietly)
        found = largest_value(wanted, ask, values)
        lines = lines_of(found)
    if output == Output.JSON:
        print_json(found.to_json())
    else:
        say(*lines)
    if found.fits is None:
        click.get_current_context().exit(ExitCode.NO_PLAN)


def largest_value(
    unknown: Unknown, ask: Callable[[int], Problem], values: Range
) -> Found:
    """Search at any speed, then for the rate that was asked for.

    Raises:
        BadWorkloadError: the model does not take even the least value.
    """
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner.search.largest import largest, largest_of  # noqa: PLC0415

    refusals: dict[int, str] = {}
    with line_by_line() as show:

        def judge(value: int) -> Verdict | None:
            show(f"trying {SCALES[unknown].text(value)}")
            try:
                return verdict_on(at_any_speed(ask(value)))
            except BadWorkloadError as error:
                if value == values.grain:
                    raise
                refusals[value] = str(error)
                return None

        def is_fast(value: int) -> bool:
            show(f"trying the rate of {SCALES[unknown].text(value)}")
            return verdict_on(ask(value)) is Verdict.FITS

        is_micro_batch = unknown is Unknown.MICRO_BATCH
        least = least_profiled(values, ask(values.grain)) if is_micro_batch else 1
        edges = largest(judge, values.grain, values.limit)
        problem = ask(edges.fits or values.grain)
        has_floor = at_any_speed(problem).objective != problem.objective
        fits = edges.fits
        if fits and has_floor:
            fits = largest_of(
                is_fast, values.grain, fits, is_falling=not is_micro_batch
            )
    refusal = refusals.get(edges.limit + values.grain, "")  # none, if a value fails
    end = End.MODEL if refusal else values.end
    return Found(
        unknown=unknown,
        fits=fits,
        fits_at_any_speed=edges.fits,
        fails=edges.fails and max(edges.fails, least),
        grain=values.grain,
        limit=edges.limit,
        end=End.FAILS if edges.fails else end,
        refusal=refusal,
        has_floor=has_floor,
        batch=ask(fits or values.grain).global_batch_size,
        machines=tuple(offer.name for offer in problem.offers),
    )


def at_any_speed(problem: Problem) -> Problem:
    """The problem without the rates that were given by hand."""
    objective = replace(problem.objective, min_samples_per_s=None, deadline_s=None)
    return replace(problem, objective=objective)


def verdict_on(problem: Problem) -> Verdict:
    """Whether the job fits on its machines, at the rates that were given.

    A plan that is fixed by hand may not.
    """
    # Its own imports take long; the answer without what is fixed is not needed.
    from plimsoll_planner.search.answer import solve_as_fixed  # noqa: PLC0415

    answer = solve_as_fixed(problem, time.perf_counter)
    if isinstance(answer, Solution) and answer.termination is not Termination.FIXED:
        return Verdict.FITS
    verdicts = {one.verdict for one in answer.certificate.counts}
    return Verdict.FAILS if verdicts == {Verdict.FAILS} else Verdict.UNDECIDED


def fewest_devices(
    model: str, training: Training, options: dict[str, Any]
) -> tuple[Found, list[str]]:
    """The search of `plimsoll plan`: the fewest, and its lines about them."""
    from plimsoll_planner.search.answer import solve_as_fixed  # noqa: PLC0415

    problem = read_problem(profile_of(model, training, with_progress), options)
    with at_work("searching"):
        answer = solve_as_fixed(problem, time.perf_counter)
    certificate = answer.certificate
    fits, slow = certificate.fewest_at_floor, certificate.fewest_at_any_speed
    failing = [
        one.num_gpus
        for one in certificate.counts[: fits and fits - 1]
        if one.verdict is Verdict.FAILS
    ]
    found = Found(
        unknown=Unknown.DEVICES,
        fits=fits,
        fits_at_any_speed=slow,
        fails=max(failing, default=None),
        grain=1,
        limit=problem.limits.max_gpus,
        end=End.FITS if fits else End.MAX_GPUS,
        batch=problem.global_batch_size,
        machines=tuple(offer.name for offer in problem.offers),
    )
    if isinstance(answer, Infeasible):
        return found, infeasible_lines(answer)
    if answer.termination is Termination.FIXED:
        return found, ["none fits for sure", *answer.warnings]
    return found, certificate_lines(certificate)
