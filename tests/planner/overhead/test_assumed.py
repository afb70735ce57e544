"""Assumptions on a GPU that nobody measured, against published numbers.

`python -m tests.planner.overhead.test_assumed` prints how many rows are inside,
engine by engine.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.allowance import Allowance, allowance, assumption_text
from plimsoll_planner.overhead.observed import ObservedRank, observed_overhead
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.limits import Limits
from tests.support.builders import MIB, an_engine, an_offer

GIB = 2**30
ROWS = Path(__file__).with_name("public_overheads.csv")
WHOLE, GATHERED, TUNED = "whole layers", "gathered layers", "fine-tuning"
OUTSIDE_GIB = {0: 1.79, 1: 3.58, 2: 7.3, 3: 7.3}
"""The most that was published outside torch's allocator, for as many groups.

vllm-project/vllm#10511 has 1.79 GiB on one GPU and 1.79 GiB more on two. Of the
7.3 GiB neither ranks nor groups are known: they count from two groups on.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One rank that somebody measured twice: tensors, and with what is beside them."""

    what: str
    """Kind of training; see `WHOLE` and the others."""
    groups: int
    allocated_bytes: int
    kind: str
    """`reserved` or `device`."""
    held_bytes: int

    @property
    def is_inside(self) -> bool:
        """Whether the assumed interval has it."""
        allowed = allowed_with(None, self.groups)
        measure = getattr(allowed, self.kind)
        low, high = (
            measure(bound, self.allocated_bytes) for bound in (Bound.LOWER, Bound.UPPER)
        )
        return bool(low <= self.held_bytes <= high)


def rows() -> Iterator[Row]:
    """Yield the published rows."""
    with ROWS.open(encoding="utf-8") as file:
        for cells in csv.DictReader(file):
            yield Row(
                what=cells["what"],
                groups=int(cells["groups"]),
                allocated_bytes=int(cells["allocated_mib"]) * MIB,
                kind=cells["kind"],
                held_bytes=int(cells["with_overhead_mib"]) * MIB,
            )


def coverage() -> dict[str, tuple[int, int]]:
    """For each kind of engine how many rows are inside, and of how many."""
    inside = Counter(row.what for row in rows() if row.is_inside)
    everything = Counter(row.what for row in rows())
    return {what: (inside[what], number) for what, number in everything.items()}


def allowed_with(overhead: DeviceOverhead | None, groups: int) -> Allowance:
    """Bytes of a rank on a GPU besides tensors."""
    return allowance(
        an_offer(),
        Limits(max_gpus=1),
        overhead,
        an_engine(verified=True, num_verified_plans=1),
        micro_batch=1,
        communicators=(groups, groups),
    )


def test_what_was_published_of_engines_like_ours_is_inside() -> None:
    """Every row of an engine that keeps whole layers; most of the others are not.

    Engines that gather layers again for each pass, and lengths that vary, have taken
    up to twice their tensors: bounds that cover those leave half of a GPU unused.
    """
    found = coverage()
    assert found[WHOLE] == (45, 45)
    assert found[TUNED] == (99, 130)
    assert found[GATHERED] == (2, 8)


@pytest.mark.parametrize(("groups", "most_gib"), OUTSIDE_GIB.items())
def test_what_was_published_outside_the_allocator_is_inside(
    groups: int, most_gib: float
) -> None:
    """The largest figure for each number of groups; the lower bound is nothing."""
    outside = allowed_with(None, groups).outside
    assert outside.lower_bytes == 0
    assert most_gib * GIB <= outside.upper_bytes <= (most_gib + 2.5) * GIB
    assert outside.expected_bytes == (1 + groups) * GIB


def test_the_first_measured_rank_narrows_what_is_assumed() -> None:
    """1.2 GiB outside and 0.3 GiB of fragments: with half of that on top for certainty.

    Tensors beyond those that it had keep the assumed share.
    """
    held = 60 * GIB
    rank = ObservedRank(
        attempt="1",
        micro_batch=1,
        num_communicators=2,
        predicted_allocated_bytes=held,
        allocated_bytes=held,
        reserved_bytes=held + 300 * MIB,
        device_bytes=held + 1500 * MIB,
    )
    key = OverheadKey(device_product="H100-80GB", torch_version="2.15.0")
    measured = allowed_with(observed_overhead(key, [rank], ()), 2)
    before = allowed_with(None, 2)
    assert not measured.is_assumed
    assert before.device(Bound.UPPER, held) - held > 14 * GIB
    assert measured.device(Bound.UPPER, held) == held + 1500 * MIB * 3 // 2
    more = measured.device(Bound.UPPER, held + 100 * GIB) - measured.device(
        Bound.UPPER, held
    )
    assert more == (100 + 12) * GIB


def test_the_warning_says_what_is_assumed() -> None:
    """In words that need no other page."""
    text = assumption_text(allowed_with(None, 3))
    assert text == "between nothing and 10.50 GiB + 12 % of the tensors"


if __name__ == "__main__":
    for engines, (inside, number) in coverage().items():
        print(f"{engines}: {inside} of {number} rows inside")  # noqa: T201
