"""`plimsoll compare`: what the usual ways to cut a model cost, beside the exact one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plimsoll_cli.options.problem import read_problem
from plimsoll_cli.options.question import question_options
from plimsoll_cli.options.types import COUNT
from plimsoll_cli.output.console import Output, at_work, output_option, print_json, say
from plimsoll_cli.output.tables import new_table, print_table
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.text.explain import device_noun
from plimsoll_planner.units import at_least
from plimsoll_planner.vocabulary import IN_OPTIONS

if TYPE_CHECKING:
    from rich.table import Table

    from plimsoll_planner.records.problem import Problem
    from plimsoll_planner.search.baselines import Row

LESS_IMPORTANT = ("MICRO-BATCH", "STEP", "REPLICAS", "PRICE/H", "STAGES")


@click.command()
@click.argument("profile", type=click.Path(path_type=Path))
@question_options(
    but=("--objective", "--whole-nodes", "--gpus", "--cuts", "--recompute")
)
@click.option("--gpus", required=True, type=COUNT, help="That the model is cut for.")
@click.option(
    "--recompute",
    type=click.Choice(["free", "none", "all"]),
    default="free",
    show_default=True,
    help="Which layers recompute; free: each rule chooses.",
)
@output_option
def compare(profile: Path, gpus: int, output: str, **options: Any) -> None:
    """Cut the model of PROFILE uniformly, by parameters, by time, and exactly.

    All of them may take as long for a step, so that their memory is compared at one
    speed.
    """
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner.search import baselines  # noqa: PLC0415 - see above

    check_counts(gpus, **options)
    options["max_gpus"] = options["max_gpus"] or gpus
    if options["recompute"] == "free":
        del options["recompute"]
    problem = read_problem(profile, options)
    with at_work("comparing"):
        found = baselines.compare(problem, gpus)
    if output == Output.JSON:
        print_json([row_json(row) for row in found.rows])
        return
    noun = device_noun(problem.offers)
    print_table(rows_table(found.rows, noun), less_important=LESS_IMPORTANT)
    say(
        "",
        *why_lines(found.rows),
        *([step_text(found.step_s, problem)] if found.step_s else []),
        baselines.ROUNDING_RULE,
        "parameters, time: the largest sum of a stage is least. Every rule may choose "
        "stages, replicas, micro-batch and recomputed layers where they are not fixed; "
        "only the cuts differ.",
    )


def check_counts(
    gpus: int,
    *,
    max_gpus: int | None,
    pipeline: int | None,
    data: int | None,
    **_: object,
) -> None:
    """Raise `InvalidInputError` unless the model can be cut for so many GPUs."""
    if max_gpus is not None and max_gpus < gpus:
        raise InvalidInputError(
            f"--max-gpus: got {max_gpus}, allowed is at least {gpus}, which is --gpus"
        )
    degrees = {"--pipeline": pipeline, "--data": data}
    fixed = {name: degree for name, degree in degrees.items() if degree}
    needed = math.prod(fixed.values())
    is_whole = len(fixed) == len(degrees)
    if gpus == needed or (not is_whole and gpus % needed == 0):
        return
    allowed = str(needed) if is_whole else f"a multiple of {needed}"
    names = " times ".join(f"{name} {degree}" for name, degree in fixed.items())
    raise InvalidInputError(f"--gpus: got {gpus}, allowed is {allowed}, for {names}")


def why_lines(rows: Sequence[Row]) -> list[str]:
    """Reasons why rows do not fit, each with its rows in one line."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            found.setdefault(row.why, []).append(row.rule)
    return [f"{', '.join(rules)}: {why}" for why, rules in found.items()]


def fits_text(row: Row) -> str:
    """Whether a row fits, in a cell; `too slow` if it has room."""
    if row.fits is None:
        return "?"
    if row.is_slow:
        return "too slow"
    return "yes" if row.fits else "no"


def step_text(step_s: float, problem: Problem) -> str:
    """The step that all rows are given."""
    return (
        f"all that fit have the least memory at a step of at most {step_s:.4g} s: "
        f"{problem.objective.throughput_tolerance:.0%} below the rate of the slowest "
        "rule's fastest plan (`objective.throughput_tolerance`), or the rate floor"
    )


def row_json(row: Row) -> dict[str, object]:
    """One row for machines."""
    found = row.found
    return {
        "rule": row.rule,
        "fits": row.fits,
        "why": IN_OPTIONS.text(row.why) or None,
        "peak_bytes": row.peak_bytes,
        "samples_per_s": row.samples_per_s,
        "step_s": None if found is None else found.step_s,
        "stages": None if found is None else found.candidate.num_stages,
        "replicas": None if found is None else found.candidate.mesh.data,
        "micro_batch": None if found is None else found.candidate.micro_batch,
        "cuts": None if found is None else list(found.cuts),
        "price_per_hour": None
        if row.price_per_hour is None
        else str(row.price_per_hour),
        "gpus_needed": row.gpus_needed,
    }


def rows_table(rows: Sequence[Row], noun: str) -> Table:
    """Draw the comparison; the noun is what the devices are called."""
    table = new_table(
        (
            ("CUTS", "left"),
            ("STAGES", "right"),
            ("REPLICAS", "right"),
            ("MICRO-BATCH", "right"),
            ("PEAK", "right"),
            ("FITS", "left"),
            ("STEP", "right"),
            ("SAMPLES/S", "right"),
            ("PRICE/H", "right"),
            (f"{noun.upper()}S NEEDED", "right"),
        )
    )
    for row in rows:
        found = row.found
        cells = ["-"] * 3 if found is None else mesh_cells(row)
        table.add_row(
            row.rule,
            *cells,
            at_least(row.peak_bytes) if found else "-",
            fits_text(row),
            f"{found.step_s:.4g} s" if found else "-",
            f"{row.samples_per_s:.4g}" if found else "-",
            "-" if row.price_per_hour is None else f"{row.price_per_hour:.2f}",
            str(row.gpus_needed or ("none" if row.fits is not None else "?")),
        )
    return table


def mesh_cells(row: Row) -> list[str]:
    """Stages, replicas and micro-batch of a row's plan."""
    if row.found is None:
        return []
    candidate = row.found.candidate
    numbers = (candidate.num_stages, candidate.mesh.data, candidate.micro_batch)
    return [str(number) for number in numbers]
