"""Cost and quality of placing operator graphs: seconds, peaks, steps against bounds.

Bars: 1e5 nodes on 16 devices within 30 s of CPU and 3e5 within 120 s, no device above
115 % of the mean peak. Writes docs/benchmarks/placement.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.pages import HERE, markdown, write_page
from benchmarks.support.towers import towers
from plimsoll_planner.graph.place import place
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.placement_plan import PlacementPlan
from tests.support.every_placement import in_list_order
from tests.support.operator_graphs import LINK, random_graph

NVLINK = Link(bandwidth_bytes_per_s=140e9, latency_s=25e-6)
NO_LIMIT = 2**40
"""Bytes of a device."""
TIGHT, MOST = 1.02, 1.15
"""Parts of the mean peak: what the timed placement may take, and the bar."""
SMALL_GRAPHS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A graph and its devices."""

    num_nodes: int
    num_towers: int
    num_devices: int
    most_s: float
    """Of CPU: the planner is one process, and waits for nothing but its turn."""

    @property
    def name(self) -> str:
        """Its size in words."""
        return (
            f"{self.num_nodes:.0e} nodes, {self.num_towers} towers, "
            f"K = {self.num_devices}"
        ).replace("e+0", "e")


CASES = (
    Case(num_nodes=10_000, num_towers=8, num_devices=8, most_s=30),
    Case(num_nodes=100_000, num_towers=16, num_devices=16, most_s=30),
    Case(num_nodes=100_000, num_towers=4, num_devices=16, most_s=30),
    Case(num_nodes=300_000, num_towers=16, num_devices=16, most_s=120),
    Case(num_nodes=300_000, num_towers=32, num_devices=16, most_s=120),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One case, placed."""

    case: Case
    plan: PlacementPlan
    mean_bytes: float
    """Mean peak of the devices without a limit."""
    work_s: float
    wall_s: float
    cpu_s: float

    @property
    def of_mean(self) -> float:
        """Largest peak, as a part of that mean."""
        return self.plan.peak_bytes / self.mean_bytes

    @property
    def of_bound(self) -> float:
        """Seconds of a step, as a multiple of the bound."""
        return self.plan.makespan_s / self.plan.bounds.makespan_s

    def cells(self) -> list[str]:
        """Row of the page."""
        plan = self.plan
        return [
            self.case.name,
            f"{self.wall_s:.1f}",
            f"{self.cpu_s:.1f}",
            f"{100 * self.of_mean:.1f} %",
            f"{100 * plan.bounds.peak_bytes / plan.peak_bytes:.1f} %",
            f"{plan.makespan_s:.3f} s",
            f"{self.of_bound:.3f}",
            f"{self.work_s:.2f} s",
            f"{len(plan.sends.node):,}",
            f"{plan.verdict}, {plan.method}",
        ]


HEAD = (
    *("graph", "wall s", "CPU s", "largest peak of mean", "least of it"),
    *("step", "of bound", "one device", "sends", "verdict"),
)


def placed(case: Case) -> Row:
    """Place a graph without a limit, then in little more than the mean peak."""
    profile = towers(case.num_nodes, case.num_towers)
    free = place(profile, case.num_devices, capacity_bytes=NO_LIMIT, link=NVLINK)
    mean_bytes = statistics.mean(peak.peak_bytes for peak in free.peaks)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    plan = place(
        profile,
        case.num_devices,
        capacity_bytes=int(TIGHT * mean_bytes),
        link=NVLINK,
    )
    return Row(
        case=case,
        plan=plan,
        mean_bytes=mean_bytes,
        work_s=sum(one or 0.0 for one in profile.nodes.seconds),
        wall_s=time.perf_counter() - wall_s,
        cpu_s=time.process_time() - cpu_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaps:
    """Small graphs against all of their placements."""

    gaps: tuple[float, ...]
    """Seconds of a step, as a multiple of the fastest."""
    fits: int
    """Graphs that fit within the least peak of all."""

    @property
    def num_best(self) -> int:
        """Graphs of which the fastest placement was found."""
        return sum(gap < 1 + 1e-9 for gap in self.gaps)


def gaps() -> Gaps:
    """Place small graphs, with all memory and with the least that there is."""
    found: list[float] = []
    fits = 0
    for seed in track(range(SMALL_GRAPHS), description="small graphs"):
        profile = random_graph(9, seed)
        plan = place(profile, 2, capacity_bytes=NO_LIMIT, link=LINK)
        every = list(in_list_order(profile, 2, plan.send_window, LINK))
        fastest_s = min(one.makespan_s for one in every)
        found.append(plan.makespan_s / fastest_s if fastest_s else 1.0)
        least = min(one.peak_bytes for one in every)
        tight = place(profile, 2, capacity_bytes=least, link=LINK)
        fits += tight.verdict is Verdict.FITS
    return Gaps(gaps=tuple(found), fits=fits)


def measure() -> Iterator[Measurement]:
    """Yield the figures of every case, then the gaps of small graphs."""
    rows = [placed(case) for case in track(CASES, description="towers")]
    small = gaps()
    write_page(
        "placement",
        (HERE / "placement.txt").read_text().format(small=SMALL_GRAPHS),
        [
            ("Towers", markdown(HEAD, (row.cells() for row in rows))),
            ("Small graphs", markdown(("figure", "value"), small_rows(small))),
        ],
    )
    for row in rows:
        name = row.case.name
        goal = Goal(at_most=row.case.most_s)
        yield Measurement(name=f"{name}: CPU", runs=(row.cpu_s,), unit="s", goal=goal)
        yield Measurement(name=f"{name}: wall", runs=(row.wall_s,), unit="s")
        yield Measurement(
            name=f"{name}: largest peak of the mean",
            runs=(100 * row.of_mean,),
            unit="%",
            goal=Goal(at_most=100 * MOST),
        )
        yield Measurement(
            name=f"{name}: step of its bound", runs=(row.of_bound,), unit=""
        )
    yield Measurement(
        name="small graphs: largest gap", runs=(max(small.gaps),), unit=""
    )


def small_rows(small: Gaps) -> list[tuple[str, str]]:
    """Rows of the page on small graphs."""
    return [
        ("fastest found", f"{small.num_best} of {len(small.gaps)}"),
        ("gap, median", f"{statistics.median(small.gaps):.3f}"),
        ("gap, largest", f"{max(small.gaps):.3f}"),
        ("fits within the least peak", f"{small.fits} of {len(small.gaps)}"),
    ]


if __name__ == "__main__":
    sys.exit(run("placement", measure))
