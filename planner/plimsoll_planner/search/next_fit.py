"""Cuts and numbers in flight for a period: next-fit groups from the last stage on.

In: seconds of every run of layers for each number in flight, links, a period. Out: cuts
and numbers, None if there are none. Called by `tuple_search`.

Neighbours with as many in flight take turns: all passes of such a group, and its links
both ways, lie one after the other in a period. So a stage joins the group behind it if
that still fits the period, else it opens one with one more in flight. Next-fit gives
the least numbers that any periodic order has, for each stage (Beaumont, Eyraud-Dubois
and Shilova, Pipelined Model Parallelism: Complexity Results and Memory Considerations,
2020). A micro-batch stays g - 1 periods and the load of its group at a stage and those
behind it. Over all cuts one label for each first layer is enough, the least group and
in it the least load, as more stages in front keep their order:

    link    load + links > period          ->  (g + n, what is left of n periods)
    join    load + u(A, B; k = g)          <= period    ->  (g, their sum)
    open    u(A, B; k = g + 1)             <= period    ->  (g + 1, u)

No stage has more in flight than there are stages from it to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints

NO_GROUP = 2**31
"""Above every number of a group; there are no stages from that layer on."""
CLOSE = 1e-3
"""Relative; the least period is found to within this part of itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grouped:
    """Cuts and numbers in flight that keep a period."""

    period_s: float
    cuts: tuple[int, ...]
    in_flight: tuple[int, ...]
    least_period_s: float = 0.0
    """No cuts and numbers keep a shorter one."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Labels:
    """Best label of so many stages from each first layer on, over 0 to L."""

    group: Ints
    load_s: Floats
    end: Ints
    """Layer behind the first of the stages."""


def least_period(
    loads: Floats, links: Sequence[Floats], most_s: float = np.inf
) -> Grouped | None:
    """Cuts and numbers of the least period.

    None if no stage cuts fit at all, or none keeps the longest period that is of use.

    Args:
        loads: [k, A, B], both passes of a run with k + 1 in flight; infinite where it
            does not fit.
        links: for each stage but the last, [B]: both ways over the link behind it.
        most_s: the longest period that is of use.
    """
    finite = np.where(np.isfinite(loads[0]), loads[0], 0.0)
    high_s = float(finite.max()) * (len(links) + 1) + sum(float(x.max()) for x in links)
    best = grouped(loads, links, min(high_s, most_s))
    if best is None:
        return None
    low_s, high_s = 0.0, slowest_s(best, loads, links)
    best = replace(best, period_s=high_s)
    while high_s - low_s > CLOSE * high_s:
        middle_s = (low_s + high_s) / 2
        found = grouped(loads, links, middle_s)
        if found is None:
            low_s = middle_s
        else:
            best, high_s = found, middle_s
    return replace(best, least_period_s=low_s)


def slowest_s(found: Grouped, loads: Floats, links: Sequence[Floats]) -> float:
    """Period of a strict order: the longest of its cycles.

    From stage s to stage t and back, k_s - k_t + 1 micro-batches take all work between.
    """
    cuts, numbers = found.cuts, found.in_flight
    longest_s = 0.0
    for last, fewest in enumerate(numbers):
        work_s = 0.0
        for stage in range(last, -1, -1):
            k, end = numbers[stage], (*cuts, loads.shape[1])[stage + 1]
            link_s = float(links[stage][end]) if stage < last else 0.0
            work_s += float(loads[k - 1, cuts[stage], end]) + link_s
            longest_s = max(longest_s, work_s / (k - fewest + 1))
    return longest_s


def grouped(loads: Floats, links: Sequence[Floats], period_s: float) -> Grouped | None:
    """Cuts and numbers of least groups that keep a period, None without any."""
    size = loads.shape[1]
    nothing = np.zeros(size + 1, dtype=np.int64)
    group = nothing + NO_GROUP
    group[size] = 0
    labels = [Labels(group=group, load_s=nothing.astype(np.float64), end=nothing)]
    for stage in range(len(links), -1, -1):
        link = links[stage] if stage < len(links) else np.full(size + 1, np.inf)
        behind = over(labels[-1], link, period_s)
        labels.append(in_front(loads[: len(labels)], behind, period_s))
    if labels[-1].group[0] >= NO_GROUP:
        return None
    cuts: list[int] = []
    in_flight: list[int] = []
    layer = 0
    for one in reversed(labels[1:]):
        cuts.append(layer)
        in_flight.append(int(one.group[layer]))
        layer = int(one.end[layer])
    return Grouped(period_s=period_s, cuts=tuple(cuts), in_flight=tuple(in_flight))


def over(behind: Labels, link: Floats, period_s: float) -> Labels:
    """Labels with the link before their stages, both ways."""
    has_link = (behind.group >= 1) & (behind.group < NO_GROUP) & np.isfinite(link)
    load_s = np.where(has_link, behind.load_s + link, np.inf)
    is_longer = has_link & (load_s > period_s)
    whole = np.ceil(load_s[is_longer] / period_s) - 1
    load_s[is_longer] -= whole * period_s
    group = behind.group.copy()
    group[is_longer] += whole.astype(np.int64)
    return replace(behind, group=group, load_s=load_s)


def in_front(loads: Floats, behind: Labels, period_s: float) -> Labels:
    """Best labels with one stage in front of those behind it and their link."""
    most = len(loads)
    can_join = (behind.group >= 1) & (behind.group <= most)
    joined = runs_of(loads, behind.group - 1, can_join) + behind.load_s[:, None]
    opened = runs_of(loads, behind.group, behind.group < most)
    joins = joined <= period_s
    group = np.where(joins, behind.group[:, None], behind.group[:, None] + 1)
    group[~joins & ~(opened <= period_s)] = NO_GROUP
    load_s = np.where(joins, joined, opened)
    least = group.min(axis=0)
    end = np.where(group == least, load_s, np.inf).argmin(axis=0)
    is_none = least >= NO_GROUP
    found_s = np.where(is_none, 0.0, np.take_along_axis(load_s, end[None], axis=0)[0])
    return Labels(
        group=np.append(least, NO_GROUP),
        load_s=np.append(found_s, 0.0),
        end=np.append(end, 0),
    )


def runs_of(loads: Floats, number: Ints, possible: Flags) -> Floats:
    """[B, A]: seconds of runs that end at each layer, with a number for that layer."""
    found = np.full((loads.shape[2], loads.shape[1]), np.inf)
    ends = np.flatnonzero(possible)
    found[ends] = loads[number[ends], :, ends]
    return found
