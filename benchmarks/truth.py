"""How well peaks and step times are predicted: formula, replay and upper bound.

Ten models times thirty-one plans, and up to eight for each tensor degree of models that
can be split, each run twice by 1 to 8 real gloo processes; see `support.truth_run`.
Figures are over all ranks of all plans.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.progress import track

from benchmarks.frame import RESULTS, Goal, Measurement, run
from benchmarks.support.truth_models import (
    LAYER_LEVELS,
    MODELS,
    arrangements,
    offloaded_arrangements,
    sharded_arrangements,
    split_arrangements,
)
from benchmarks.support.truth_run import (
    Comparison,
    compare,
    measure_link,
    profile_of,
    run_plans,
)
from plimsoll_planner.records.model_profile import Sequences

ROWS = RESULTS / "truth.csv"


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    rows = list(all_rows())
    write_rows(rows, ROWS)
    yield from against_truth(rows)
    for name in MODELS:
        own = [row for row in rows if row.model == name]
        predicted, true = [r.predicted_s for r in own], [r.true_s for r in own]
        yield Measurement(
            name=f"step time, rank correlation, {name}",
            runs=(rank_correlation(predicted, true),),
            unit="",
            goal=Goal(at_least=0.9),
        )
    gaps = [100 * abs(row.predicted_s / row.true_s - 1) for row in rows]
    yield Measurement(name="step time against truth", runs=tuple(gaps), unit="%")


def all_rows() -> Iterator[Comparison]:
    """Yield a comparison of every plan of every model."""
    link = measure_link()
    for name in track(MODELS, description="models"):
        made = profile_of(name)
        num_layers = len(made.layers.name)
        hows = [*arrangements(num_layers), *offloaded_arrangements(num_layers)]
        for level in LAYER_LEVELS:
            hows += sharded_arrangements(num_layers, level)
        for sequences in Sequences:
            for degree in made.tensor_degrees_of(sequences):
                if degree > 1:
                    hows += split_arrangements(num_layers, degree, sequences)
                    if sequences is Sequences.WHOLE:
                        hows += offloaded_arrangements(num_layers, degree)
        for how, truth in zip(hows, run_plans(name, hows), strict=True):
            yield compare(name, made, how, link, truth)


def against_truth(rows: Sequence[Comparison]) -> Iterator[Measurement]:
    """Yield what predicted bytes are off by, over all ranks."""
    formula = [100 * abs(gap) for row in rows for gap in row.formula]
    replayed = [100 * abs(gap) for row in rows for gap in row.replayed]
    upper = [bound for row in rows for bound in row.upper]
    life = [100 * gap for row in rows for gap in row.whole_life]
    yield from spread("formula against truth", formula, "%", median=1, most=3)
    yield from spread("replay against truth", replayed, "%", median=0.5, most=0.5)
    yield from spread("upper bound / truth", upper, "x", median=1.02, most=1.06)
    yield Measurement(
        name="upper bound / truth, least",
        runs=(min(upper),),
        unit="x",
        goal=Goal(at_least=1.0),
    )
    yield Measurement(name="whole life above steady step", runs=tuple(life), unit="%")


def spread(
    name: str, values: Sequence[float], unit: str, *, median: float, most: float
) -> Iterator[Measurement]:
    """Yield median and maximum of a figure, each with its bar."""
    yield Measurement(
        name=f"{name}, median",
        runs=tuple(values),
        unit=unit,
        goal=Goal(at_most=median),
    )
    yield Measurement(
        name=f"{name}, maximum",
        runs=(max(values),),
        unit=unit,
        goal=Goal(at_most=most),
    )


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's correlation; there are no ties among measured seconds."""
    one, other = (np.argsort(np.argsort(values)) for values in (left, right))
    return float(np.corrcoef(one, other)[0, 1])


def write_rows(rows: Sequence[Comparison], path: Path) -> None:
    """Write every plan as a line, to look at what lies behind a figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            "model plan formula_% replay_% upper_x predicted_s true_s".split()  # noqa: SIM905
        )
        for row in rows:
            out.writerow(
                (
                    row.model,
                    row.how,
                    *(
                        " ".join(f"{scale * value:.3f}" for value in values)
                        for values, scale in (
                            (row.formula, 100),
                            (row.replayed, 100),
                            (row.upper, 1),
                        )
                    ),
                    f"{row.predicted_s:.4f}",
                    f"{row.true_s:.4f}",
                )
            )


if __name__ == "__main__":
    sys.exit(run("truth", measure))
