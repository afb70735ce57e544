"""`plimsoll compare`: cost of the usual cuts and plans, beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from plimsoll_cli.options.model import model_options, profile_of, training_of
from plimsoll_cli.options.problem import read_problem
from plimsoll_cli.options.question import question_options
from plimsoll_cli.options.types import COUNT, MODEL
from plimsoll_cli.output import usual_table
from plimsoll_cli.output.console import Output, at_work, output_option, print_json, say
from plimsoll_cli.output.profiling import with_progress
from plimsoll_cli.output.tables import print_table, table_of, telling_columns
from plimsoll_cli.output.usual_table import (
    figures_json,
    speed_cells,
    usual_cells,
    usual_json,
)
from plimsoll_planner.engines import GRAPH
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.search_fields import USUAL_MAX_GPUS
from plimsoll_planner.text.counts import device_noun
from plimsoll_planner.units import at_least, number_text
from plimsoll_planner.vocabulary import IN_OPTIONS

if TYPE_CHECKING:
    from plimsoll_planner.records.problem import Problem
    from plimsoll_planner.search.baselines import Row

LESS_IMPORTANT = ("MICRO-BATCH", "STEP", "REPLICAS", "PRICE/H", "STAGES")


@click.command()
@click.argument("model", type=MODEL)
@model_options
@question_options(
    but=("--objective", "--whole-nodes", "--gpus", "--cuts", "--recompute")
)
@click.option(
    "--gpus", required=True, type=COUNT, help="GPUs that the model is cut for."
)
@click.option(
    "--recompute",
    type=click.Choice(["free", "none", "all"]),
    default="free",
    show_default=True,
    help="Which layers recompute; free: each rule chooses.",
)
@output_option
def compare(model: str, gpus: int, output: str, **options: Any) -> None:
    """Cut MODEL uniformly, by parameters, by time, and exactly.

    All of them may take as long for a step, so that their memory is compared at one
    speed. Then plans that people use, each on the fewest GPUs that it fits on, beside
    ours.
    """
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner.search import baselines, usual_plans  # noqa: PLC0415 - see above

    check_counts(gpus, options)
    options["max_gpus"] = options["max_gpus"] or max(gpus, USUAL_MAX_GPUS)
    if options["recompute"] == "free":
        del options["recompute"]
    if options["engine"] == GRAPH.engine:
        raise click.UsageError(
            f"engine {GRAPH.engine} places operators, and layers are compared: "
            "--engine plimsoll"
        )
    profile = profile_of(model, training_of(options), with_progress)
    problem = read_problem(profile, options)
    with at_work("comparing"):
        found = baselines.compare(problem, gpus)
        usual = usual_plans.usual_plans(problem)
    if output == Output.JSON:
        cuts = [row_json(row) for row in found.rows]
        print_json({"cuts": cuts, "plans": [usual_json(row) for row in usual]})
        return
    noun = device_noun(problem.offers)
    rows = [row_cells(row, noun) for row in found.rows]
    table = table_of(telling_columns(rows), left=("CUTS", "FITS"))
    print_table(table, less_important=LESS_IMPORTANT)
    say(
        "",
        *why_lines(found.rows),
        *([step_text(found.step_s, problem)] if found.step_s else []),
        baselines.ROUNDING_RULE,
        "parameters, time: the largest sum of a stage is least. Every rule may choose "
        "stages, replicas, micro-batch and recomputed layers where they are not fixed; "
        f"only the cuts differ. {shared_text(problem)}",
        "",
    )
    plans = telling_columns([usual_cells(row, problem) for row in usual])
    print_table(
        table_of(plans, left=("PLAN", "OFFER", "SHARDED", "OPTIMIZER")),
        less_important=usual_table.LESS_IMPORTANT,
    )
    say("", usual_table.MEANINGS)


def shared_text(problem: Problem) -> str:
    """By how many devices layers are shared in all of these."""
    degree = min(problem.tensor_degrees)
    if degree == 1:
        return "No devices share layers here (--tensor 1)."
    return f"{degree} devices share each layer (--tensor {degree})."


def check_counts(gpus: int, options: Mapping[str, Any]) -> None:
    """Refuse a number of GPUs that the model cannot be cut for.

    Raises:
        InvalidInputError: the other options allow less, or other numbers.
    """
    max_gpus = options["max_gpus"]
    if max_gpus is not None and max_gpus < gpus:
        raise InvalidInputError(
            f"--max-gpus: got {max_gpus}, allowed is at least {gpus}, which is --gpus"
        )
    names = ("pipeline", "data", "tensor")
    fixed = {f"--{name}": degree for name in names if (degree := options[name])}
    needed = math.prod(fixed.values())
    is_whole = {"--pipeline", "--data"} <= set(fixed)
    if gpus == needed or (not is_whole and gpus % needed == 0):
        return
    allowed = str(needed) if is_whole else f"a multiple of {needed}"
    of = " times ".join(f"{name} {degree}" for name, degree in fixed.items())
    raise InvalidInputError(f"--gpus: got {gpus}, allowed is {allowed}, for {of}")


def why_lines(rows: Sequence[Row]) -> list[str]:
    """Reasons why rows do not fit, each with its rows in one line."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            found.setdefault(row.why, []).append(row.rule)
    return [f"{', '.join(rules)}: {why}" for why, rules in found.items()]


def fits_text(row: Row) -> str:
    """The cell that says whether a row fits; `too slow` if it has room."""
    if row.is_slow:
        return "too slow"
    return {None: "?", True: "yes", False: "no"}[row.fits]


def step_text(step_s: float, problem: Problem) -> str:
    """The step that all rows are given."""
    return (
        "all that fit have the least memory at a step of at most "
        f"{number_text(step_s)} s: "
        f"{problem.objective.throughput_tolerance:.0%} below the rate of the slowest "
        "rule's fastest plan (`objective.throughput_tolerance`), or the rate floor"
    )


def row_json(row: Row) -> dict[str, object]:
    """One row for machines."""
    return {
        "rule": row.rule,
        "fits": row.fits,
        "why": IN_OPTIONS.text(row.why) or None,
        **figures_json(row),
        "gpus_needed": row.gpus_needed,
    }


def row_cells(row: Row, noun: str) -> dict[str, str]:
    """The cells of a row, with a dash if its rule found no plan; devices are `noun`."""
    found = row.found
    candidate = found and found.candidate
    needed = row.gpus_needed or ("none" if row.fits is not None else "?")
    return {
        "CUTS": row.rule,
        "STAGES": str(candidate.num_stages) if candidate else "-",
        "REPLICAS": str(candidate.mesh.data) if candidate else "-",
        "TENSOR": str(candidate.mesh.tensor) if candidate else "-",
        "MICRO-BATCH": str(candidate.micro_batch) if candidate else "-",
        "PEAK": at_least(row.peak_bytes) if found else "-",
        "FITS": fits_text(row),
        **speed_cells(row),
        "PRICE/H": "-" if row.price_per_hour is None else f"{row.price_per_hour:.2f}",
        f"{noun.upper()}S NEEDED": str(needed),
    }
