"""How well peaks are predicted whatever a model trains in, and steps with.

Optimizers, precisions and frozen parameters times four to six plans, each run twice by
1 to 4 real gloo processes, as `truth` does for models; see `support.truth_run`. Figures
are over all ranks of all plans.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.progress import track

from benchmarks.frame import RESULTS, Goal, Measurement, run
from benchmarks.support.truth_models import RECIPES, recipe_arrangements
from benchmarks.support.truth_run import (
    Comparison,
    compare,
    measure_link,
    profile_of,
    run_plans,
)
from benchmarks.truth import against_truth, write_rows

ROWS = RESULTS / "recipes.csv"
MOST_ERROR = 0.5
"""Per cent, of the formula on any rank of a recipe."""


def measure() -> Iterator[Measurement]:
    """Yield the figures, then the largest error of each recipe."""
    rows = list(all_rows())
    write_rows(rows, ROWS)
    yield Measurement(
        name="ranks", runs=(float(sum(len(row.formula) for row in rows)),), unit=""
    )
    yield from against_truth(rows)
    for name in RECIPES:
        off = [abs(gap) for row in rows if row.model == name for gap in row.formula]
        yield Measurement(
            name=f"formula against truth, maximum, {name}",
            runs=(100 * max(off),),
            unit="%",
            goal=Goal(at_most=MOST_ERROR),
        )


def all_rows() -> Iterator[Comparison]:
    """Yield a comparison of every plan of every recipe."""
    link = measure_link()
    for name in track(RECIPES, description="recipes"):
        made = profile_of(name, degrees=(1,))
        hows = list(
            recipe_arrangements(
                len(made.layers.name), is_divisible=made.recipe.elementwise is True
            )
        )
        for how, truth in zip(hows, run_plans(name, hows), strict=True):
            yield compare(name, made, how, link, truth)


if __name__ == "__main__":
    sys.exit(run("recipes", measure))
