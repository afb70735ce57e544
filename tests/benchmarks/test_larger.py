"""The arithmetic of bench-larger: edges, ratios, rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from dataclasses import replace

from benchmarks.larger import (
    HEAD,
    MOST_BLOCKS,
    RUN_HEAD,
    Row,
    Size,
    deepest,
    deepest_of_all,
    ratio_text,
)
from benchmarks.support.capped_run import Run

RAN = Run(is_done=True, is_full=False)
FULL = Run(is_done=False, is_full=True)
ROW = Row(
    family="GPT",
    num_stages=4,
    way="cuts",
    cap_bytes=2**25,
    alone=Size(depth=10, parameters=2_000_000),
    same=Size(depth=12, parameters=2_400_000),
    recomputed=Size(depth=20, parameters=4_000_000),
    exact=Size(depth=15, parameters=3_000_000),
    runs=(RAN, RAN, FULL),
)


@pytest.mark.parametrize("edge", [3, 4, 37, 239, 240])
def test_bisection_finds_the_deepest_that_fits(edge: int) -> None:
    """The least and the most included."""
    assert deepest(lambda depth: depth <= edge, least=3, most=240) == edge


def test_uniform_cuts_that_fit_again_when_deeper_count() -> None:
    """Their peak does not always rise; the deepest that fits is theirs."""
    assert deepest_of_all({4, 5, 9}.__contains__, least=4, most=12) == 9


def test_a_row_is_judged_against_uniform_cuts_alone() -> None:
    """1.5 is below the claim, whatever the techniques bring to uniform cuts."""
    cells = ROW.cells()
    assert len(cells) == len(HEAD) + len(RUN_HEAD)
    assert cells[7:10] == ("1.50", "0.75", "**no**")
    assert "yes" in replace(ROW, exact=Size(depth=16, parameters=3_100_000)).cells()


def test_a_ratio_of_models_not_tried_is_a_bound() -> None:
    """And none where the other one is open too."""
    most = Size(depth=MOST_BLOCKS, parameters=8_000_000)
    assert ratio_text(most, ROW.alone) == ">= 4.00"
    assert ratio_text(most, most) == "-"


@pytest.mark.parametrize(
    ("runs", "is_as_shown"),
    [
        ((RAN, RAN, FULL), True),
        ((FULL, RAN, FULL), False),
        ((RAN, FULL, FULL), False),
        ((RAN, RAN, RAN), False),
    ],
)
def test_a_row_is_shown_by_three_runs(
    runs: tuple[Run, ...], *, is_as_shown: bool
) -> None:
    """Both largest models run; uniform cuts one block deeper die of memory."""
    assert replace(ROW, runs=runs).is_as_shown is is_as_shown
