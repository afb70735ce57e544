"""The cuts of the shortest walked step: branch and bound over all cuts.

In: for every stage its step bound [A, B], and a walk of any cuts. Out: the best cuts
that were found, and a bound that no cuts go below. Called for one tuple and capacity.

The step of a plan is not the largest of its stages' bounds, so the cuts of the least
bound need not have the shortest step; the difference is a few per cent. Cuts are tried
in the order of their bound, ties in favour of what is cut further and of what is left
most even, until no bound that is left is below the shortest step, a step is short
enough, or the limit of walks is reached. `least_s` says how much is open then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from plimsoll_planner.memory.bounds import Floats
from plimsoll_planner.search.partition import suffix_values

EXPANSIONS_A_WALK = 4
"""Partial cuts that are extended for each stage and walk, on average, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkedCuts:
    """Cuts with their step, and how short the step of any cuts may be."""

    cuts: tuple[int, ...]
    """None where no step is below the limit."""
    step_s: float
    least_s: float
    """Lower bound over all cuts; equal to `step_s` where these are proven the best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """The walk of cuts, and when to stop looking for a shorter one."""

    step_s: Callable[[tuple[int, ...]], float]
    """Seconds of the step of given cuts, never below the bound of any of their stages;
    infinite if it is not below `below_s`."""
    least_s: Callable[[tuple[int, ...]], float]
    """Lower bound of the step of cuts that were walked, over all choices."""
    enough_s: float = 0.0
    """A step of at most this ends the search."""
    below_s: float = np.inf
    """Only shorter steps are looked for."""
    most_walks: int
    """Limit of work, at least 1."""

    def only(self, cuts: tuple[int, ...], bound_s: float) -> WalkedCuts:
        """Walk of the only cuts that there are, whose step bound is `bound_s`."""
        step_s = self.step_s(cuts)
        least_s = min(step_s, max(self.least_s(cuts), bound_s))
        return WalkedCuts(cuts=cuts, step_s=step_s, least_s=least_s)


@dataclass(frozen=True, order=True, slots=True)
class Node:
    """Cuts of the first stages; the order is that in which they are extended."""

    bound_s: float
    """Lower bound of the step of all cuts that begin like this."""
    num_open: int
    """Stages that are not cut yet."""
    evenness_s: float
    """Largest bound of the last stage and those behind it, at best."""
    cuts: tuple[int, ...]
    """First layers of the stages; the last one is of the first stage that is open."""


@dataclass(kw_only=True, slots=True)
class CutSearch:
    """One branch and bound."""

    values: Sequence[Floats]
    walk: Walk
    left_walks: int
    nodes: list[Node] = field(default_factory=list[Node])
    best: tuple[float, tuple[int, ...]] = (np.inf, ())
    least_walked_s: float = np.inf
    """Least bound of cuts that were walked, where another choice may be shorter."""

    def run(self) -> WalkedCuts | None:
        """Extend and walk until nothing better is left, or the limit is reached."""
        num_stages = len(self.values)
        suffix = suffix_values(self.values)
        if suffix[0][0] == np.inf:
            return None
        start = float(suffix[0][0])
        self.nodes = [Node(start, num_stages, start, (0,))]
        expansions = self.left_walks * EXPANSIONS_A_WALK * num_stages
        while self.nodes and not self.is_over() and self.left_walks > 0:
            node = heapq.heappop(self.nodes)
            if node.num_open == 0:
                self.reach(node)
                self.left_walks -= 1
            elif expansions > 0 or self.left_walks == self.walk.most_walks:
                self.extend(node, suffix[num_stages - node.num_open + 1])
                expansions -= 1
            else:
                heapq.heappush(self.nodes, node)
                break
        step_s, cuts = self.best
        left_s = self.nodes[0].bound_s if self.nodes else np.inf
        least_s = min(step_s, left_s, self.least_walked_s)
        return WalkedCuts(cuts=cuts, step_s=step_s, least_s=least_s)

    def is_over(self) -> bool:
        """Whether the best step is short enough, or nothing shorter can be left."""
        is_enough = self.best[0] <= self.walk.enough_s
        return is_enough or self.nodes[0].bound_s >= self.limit_s

    @property
    def limit_s(self) -> float:
        """Step that a better one is below."""
        return min(self.walk.below_s, self.best[0])

    def reach(self, node: Node) -> None:
        """Walk cuts that are complete."""
        cuts = node.cuts[:-1]
        step_s = self.walk.step_s(cuts)
        self.best = min(self.best, (step_s, cuts))
        least_s = max(self.walk.least_s(cuts), node.bound_s)
        self.least_walked_s = min(self.least_walked_s, least_s)

    def extend(self, node: Node, behind: Floats) -> None:
        """Cut one stage more, in all ways that may be better than the best step."""
        stage = len(node.cuts) - 1
        evenness = np.maximum(self.values[stage][node.cuts[-1]], behind)
        bounds = np.maximum(evenness, node.bound_s)
        for end in np.flatnonzero(bounds < self.limit_s):
            heapq.heappush(
                self.nodes,
                Node(
                    float(bounds[end]),
                    node.num_open - 1,
                    float(evenness[end]),
                    (*node.cuts, int(end)),
                ),
            )


def shortest_walk(values: Sequence[Floats], walk: Walk) -> WalkedCuts | None:
    """Cuts of the shortest walked step; see `Placement.shortest_walk`."""
    return CutSearch(values=values, walk=walk, left_walks=walk.most_walks).run()
