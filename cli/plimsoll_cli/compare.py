"""`plimsoll compare`: what the usual ways to cut a model cost, beside the exact one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plimsoll_cli.option_types import COUNT
from plimsoll_cli.output import Output, new_table, output_option, print_table, say
from plimsoll_cli.question_options import question_options
from plimsoll_cli.questions import read_problem
from plimsoll_planner.explain import device_noun
from plimsoll_planner.units import at_least

if TYPE_CHECKING:
    from rich.table import Table

    from plimsoll_planner.baselines import Row

LESS_IMPORTANT = ("MICRO-BATCH", "STEP", "REPLICAS", "PRICE/H", "STAGES")


@click.command()
@click.argument("profile", type=click.Path(path_type=Path))
@question_options
@click.option("--gpus", required=True, type=COUNT, help="That the model is cut for.")
@output_option
def compare(profile: Path, gpus: int, output: str, **options: Any) -> None:
    """Cut the model of PROFILE uniformly, by parameters, by time, and exactly."""
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner import baselines  # noqa: PLC0415 - see above

    options["max_gpus"] = max(options["max_gpus"] or 0, gpus)
    problem = read_problem(profile, options)
    rows = baselines.compare(problem, gpus)
    if output == Output.JSON:
        click.echo(json.dumps([row_json(row) for row in rows], indent=2))
        return
    noun = device_noun(problem.offers)
    print_table(rows_table(rows, noun), less_important=LESS_IMPORTANT)
    say(
        "",
        baselines.ROUNDING_RULE,
        "parameters, time: the largest sum of a stage is least. Every rule may choose "
        "stages, replicas, micro-batch and recomputed layers; only the cuts differ.",
    )


def row_json(row: Row) -> dict[str, object]:
    """Return one row for machines."""
    found = row.found
    return {
        "rule": row.rule,
        "fits": row.fits,
        "peak_bytes": row.peak_bytes,
        "samples_per_s": row.samples_per_s,
        "step_s": None if found is None else found.step_s,
        "stages": None if found is None else found.candidate.num_stages,
        "replicas": None if found is None else found.candidate.data_degree,
        "micro_batch": None if found is None else found.candidate.micro_batch,
        "cuts": None if found is None else list(found.cuts),
        "price_per_hour": None
        if row.price_per_hour is None
        else str(row.price_per_hour),
        "gpus_needed": row.gpus_needed,
    }


def rows_table(rows: list[Row], noun: str) -> Table:
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
            "yes" if row.fits else "no",
            f"{found.step_s:.4g} s" if found else "-",
            f"{row.samples_per_s:.4g}" if found else "-",
            "-" if row.price_per_hour is None else f"{row.price_per_hour:.2f}",
            "none" if row.gpus_needed is None else str(row.gpus_needed),
        )
    return table


def mesh_cells(row: Row) -> list[str]:
    """Return stages, replicas and micro-batch of a row's plan."""
    if row.found is None:
        return []
    candidate = row.found.candidate
    numbers = (candidate.num_stages, candidate.data_degree, candidate.micro_batch)
    return [str(number) for number in numbers]
