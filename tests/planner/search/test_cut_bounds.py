"""Bounds for given cuts against walks of all numbers in flight."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.search.cut_bounds import CutBounds
from plimsoll_planner.search.plan_caps import CapSearch, Row, Vector
from plimsoll_planner.search.stage_options import StageOption
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import walk
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_offer
from tests.support.in_flight import follow

Times = list[dict[int, StageTimes]]
"""Seconds of each stage by number in flight, of numbers that fit."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages of given cuts."""

    times: Times
    num_micro_batches: int

    @cached_property
    def walks(self) -> dict[Vector, float]:
        """Step with all numbers that fit and follow one another."""
        link = Link(bandwidth_bytes_per_s=1.0)
        offer = an_offer(devices_per_node=8, link_in_node=link)
        placed = topology(offer, Mesh(pipeline=len(self.times)))
        found: dict[Vector, float] = {}
        for vector in itertools.product(*self.times):
            if follow(vector):
                stages = [mine[k] for mine, k in zip(self.times, vector, strict=True)]
                count = self.num_micro_batches
                found[vector] = walk(OneFOneB(), stages, count, placed)
        return found

    @property
    def rows(self) -> list[Row]:
        """Nothing is known of any number that fits."""
        return [dict.fromkeys(sorted(mine, reverse=True), 0.0) for mine in self.times]

    def bounds(self) -> CutBounds:
        """Bounds of its steps."""
        return CutBounds(
            times=lambda stage, k: self.times[stage][k],
            links_s=[float(next(iter(x.values())).sent_bytes) for x in self.times[:-1]],
            schedule=OneFOneB(),
            num_micro_batches=self.num_micro_batches,
        )

    def option(self, stage: int, in_flight: int) -> StageOption:
        """Option that fits or not, of which no bound is known."""
        return StageOption(
            exceeds=in_flight not in self.times[stage],
            step_s=0.0,
            peak=in_flight,
            choice=0,
            option=0,
            added_s=(0.0, 0.0),
            least_passes_s=(0.0, 0.0),
            forward_s=0.0,
            backward_s=0.0,
            end_s=0.0,
            in_flight=in_flight,
            least_s=0.0,
        )


ADDED_S = st.sampled_from([0.0, 1.0, 4.0])
"""By a number in flight, as a stage recomputes or gathers more with some than others.
"""


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Draw up to four stages; each fits with one in flight, and up to some more."""
    size = draw(st.integers(1, 4))
    times: Times = []
    for left in range(size, 0, -1):
        bare = StageTimes(
            forward_s=float(draw(st.integers(1, 5))),
            backward_s=float(draw(st.integers(1, 9))),
            sent_bytes=draw(st.sampled_from([0, 1, 5])),
            end_s=float(draw(st.integers(0, 20))),
        )
        fit = range(1, draw(st.integers(1, left)) + 1)
        more = {k: (draw(ADDED_S), draw(ADDED_S)) for k in fit}
        times.append(
            {
                k: replace(
                    bare,
                    forward_s=bare.forward_s + forward_s,
                    backward_s=bare.backward_s + backward_s,
                    in_flight_cap=k,
                )
                for k, (forward_s, backward_s) in more.items()
            }
        )
    return Pipeline(times=times, num_micro_batches=size + draw(st.integers(0, 9)))


@given(pipelines())
def test_no_step_is_below_a_bound(drawn: Pipeline) -> None:
    """Of any stage with its number, and of any first stages with theirs.

    Every number that some plan has is kept.
    """
    bounds = drawn.bounds()
    rows = bounds.narrowed(drawn.rows)
    for vector, step_s in drawn.walks.items():
        assert all(row[k] <= step_s for row, k in zip(rows, vector, strict=True))
        for end in range(1, len(vector) + 1):
            assert bounds.cycle_s(vector[:end]) <= step_s


@given(pipelines(), st.floats(0.5, 1.5))
def test_the_shortest_step_is_found(drawn: Pipeline, part: float) -> None:
    """With bounds alone that know all stages, and if only short steps are wanted."""
    shortest_s = min(drawn.walks.values())
    for below_s in (float("inf"), shortest_s * part):
        search = CapSearch(
            caps=[range(1, len(drawn.times) - s + 1) for s in range(len(drawn.times))],
            option=drawn.option,
            step_s=drawn.walks.__getitem__,
            bounds=drawn.bounds(),
            below_s=below_s,
        )
        assert search.run() == min(shortest_s, below_s)
        if shortest_s < below_s:
            assert search.best[0] == drawn.walks[search.best[1]] == shortest_s
        else:
            assert search.best[1] == ()
