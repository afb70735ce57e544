"""An independent judge: every tuple of a small problem, every cut, every recompute set.

Written from the text of the memory formula and of the schedule alone; nothing of the
planner is used but the records. Slow and plain on purpose. One micro-batch at a time,
byte by byte: for each stage it lists all of its options (layers that recompute or are
offloaded, sharding, home of the optimizer, micro-batches in flight), and walks all
plans of those that no other one beats.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

from plimsoll_planner.records.problem import Problem
from tests.support.enumerated_carried import crossing, end_of_pass, gradients_held
from tests.support.enumerated_costs import Mesh
from tests.support.enumerated_host import (
    OFFLOAD,
    RECOMPUTE,
    copied_s,
    machine_bytes,
    offloaded_bytes,
    share,
    side_of,
    ways_of,
)
from tests.support.enumerated_sharding import (
    GRADIENTS,
    NONE,
    OPTIMIZER,
    PARAMETERS,
    at_work,
    divided_step,
    stage_parts,
)
from tests.support.enumerated_time import Clock, Option
from tests.support.in_flight import follow

NOWHERE = 2**60
"""Bytes that no device has."""
Tables = dict[tuple[int, int, int], list[Option]]
"""The options of each stage [A, B) at each place of the pipeline."""


def meshes(problem: Problem) -> Iterator[Mesh]:
    """Yield every tuple from one GPU to the limit."""
    batch, layers = problem.global_batch_size, len(problem.profile.layers.name)
    offers = range(len(problem.offers))
    for gpus, split in itertools.product(
        range(1, problem.limits.max_gpus + 1), splits(problem)
    ):
        groups, rest = divmod(gpus, split[0])
        if rest:
            continue
        for offer, stages in itertools.product(offers, range(1, layers + 1)):
            replicas, rest = divmod(groups, stages)
            if rest or not replicas:
                continue
            if batch % replicas:
                yield Mesh(gpus, offer, stages, replicas, 1, 0, *split)
                continue
            share = batch // replicas
            for b in range(1, share + 1):
                if share % b == 0:
                    yield Mesh(gpus, offer, stages, replicas, b, share // b, *split)


def splits(problem: Problem) -> list[tuple[int, bool]]:
    """List the ways in which tensor groups split layers."""
    if not problem.engine.can.tensor_parallel:
        return [(1, False)]
    variants = problem.profile.variants
    return [(one.tensor_degree, one.sequence_parallel) for one in variants]


class Judge(Clock):
    """Answers about the tuples of one problem, for one bound of bytes and seconds."""

    def peak(
        self,
        mesh: Mesh,
        run: tuple[int, int],
        again: set[int],
        in_flight: int,
        *,
        level: str,
        on_host: bool,
        way: str,
    ) -> int:
        """Peak of one rank with so many micro-batches in flight, by the formula's text.

        The replicas may split state up to a level, and it may be on the host. Layers in
        `again` are run in a way. What takes more than its share of the machine fits
        nowhere.
        """
        (first, end), k = run, in_flight
        b, count = mesh.samples, mesh.count
        is_first, is_last = first == 0, end == self.size
        u_in = 0 if is_first else self.amount(mesh, self.costs.boundary, first - 1)
        parts = stage_parts(self, mesh, run, level=level)
        step = self.step(mesh, run, level)
        state = parts.state
        if (on_host or way != RECOMPUTE) and not self.is_within(
            *(mesh, run, machine_bytes(self, parts, on_host=on_host)), way, k
        ):
            return NOWHERE
        if on_host:
            state -= parts.optimizer
            step = 0 if self.which == "lower" else min(step, 512)
        held = state
        if is_first:
            held += self.problem.profile.input_bytes_per_sample * b * count
        if is_last:
            held += self.problem.profile.target_bytes_per_sample * b * count
        for tie in self.ties(mesh):
            both = sum(first <= layer < end for layer in tie.layers) > 1
            held += tie.gradient_bytes * (both and self.which != "lower")
        one, worst = self.passes(mesh, run, frozenset(again), level, way)
        values = self.values(mesh)
        back = u_in + crossing(values, first, gradients=True)
        u_in += 0 if is_first else crossing(values, first)
        start = (k - 1) * (u_in + one) + u_in + (back if count > k else 0)
        return max(held + start + worst, state + step)

    @lru_cache(maxsize=2**10)  # noqa: B019 - of the latest stages alone
    def passes(
        self,
        mesh: Mesh,
        run: tuple[int, int],
        again: frozenset[int],
        level: str,
        way: str,
    ) -> tuple[int, int]:
        """Bytes that a micro-batch in flight holds, and the most that a pass needs."""
        first, end = run
        is_last = end == self.size
        u_out = 0 if is_last else self.amount(mesh, self.costs.boundary, end - 1)

        other = side_of(self, way)

        def of(layer: int, name: str) -> int:
            side = other if layer in again else self.costs.kept
            return self.amount(mesh, getattr(side, name), layer)

        def keeps(layer: int, name: str) -> bool:
            side = other if layer in again else self.costs.kept
            return bool(getattr(side, name)[self.row(mesh, layer)])

        held_behind = {}
        for layer in range(first, end - 1):
            stays = keeps(layer, "keeps_output") or keeps(layer + 1, "keeps_input")
            u = self.amount(mesh, self.costs.boundary, layer)
            held_behind[layer] = u if stays else 0
        out_stays = keeps(end - 1, "keeps_output") and not is_last
        saved = sum(of(layer, "saved") for layer in range(first, end))
        one = saved + sum(held_behind.values()) + (u_out if out_stays else 0)
        values = self.values(mesh)
        one += sum(v.num_bytes for v in values if first <= v.giver < end)
        worst = live = 0
        gradients = {one.layer: one for one in gradients_held(values, run, self.which)}
        for layer in range(first, end):
            u_before = 0
            if layer > first:
                u_before = self.amount(mesh, self.costs.boundary, layer - 1)
            w_before = held_behind.get(layer - 1, 0)
            forward, backward = at_work(self, mesh, layer, level)
            if self.which == "upper" and self.costs.held_messages is not None:
                late = self.amount(mesh, self.costs.held_messages, layer)
                forward, backward = forward + late, backward + late
            forward += of(layer, "forward_transient")
            unsent = 0 if self.which == "lower" else u_out
            worst = max(worst, live + u_before + forward + unsent)
            name, gradient_held = (
                ("backward_transient_at_end", 0)
                if layer == end - 1
                else ("backward_transient", u_out)
            )
            outlives = layer == first or keeps(layer - 1, "keeps_output")
            more = of(layer, "held_input") if outlives else 0
            passing = of(layer, name)
            carried = gradients[layer]
            if carried.own and layer < end - 1 and self.which != "lower":
                at_end = of(layer, "backward_transient_at_end")
                passing = min(passing + carried.own, max(passing, at_end))
            turned = passing + carried.others + backward + gradient_held + more
            worst = max(worst, live + w_before + turned)
            live += w_before + of(layer, "saved")
            live += sum(v.num_bytes for v in values if v.giver == layer)
        if not is_last:
            back = u_out + crossing(values, end, gradients=True)
            worst = max(worst, one + back + (0 if out_stays else u_out))
        at_the_end = end_of_pass(values, run, self.which)
        if at_the_end:
            u_in = self.amount(mesh, self.costs.boundary, first - 1)
            worst = max(worst, at_the_end + u_in + u_out)
        return one, worst

    def step(self, mesh: Mesh, run: tuple[int, int], level: str) -> int:
        """Largest transient of a stage's optimizer."""
        if level != NONE:
            return max(divided_step(self, mesh, layer) for layer in range(*run))
        name = "optimizer_transient_bytes"
        return max(self.column(mesh, name, at) for at in range(*run))

    def options(self, mesh: Mesh, stage: int, first: int, end: int) -> list[Option]:
        """List a stage with every recompute set."""
        free = {way: self.free(mesh, (first, end), way) for way in ways_of(self, mesh)}
        added = {
            (way, layer): self.added_s(mesh, layer, way)
            for way, layers in free.items()
            for layer in layers
        }
        levels = [NONE]
        if mesh.replicas > 1 and self.costs.divided is not None:
            levels += [OPTIMIZER, GRADIENTS, PARAMETERS]
        passes_s = {
            level: self.passes_s(mesh, stage, (first, end), level) for level in levels
        }
        homes = [False]
        if share(self, mesh) > 0:
            homes.append(True)
        closing_s = {
            (level, on_host): self.closing_s(
                *(mesh, stage, (first, end)), level=level, on_host=on_host
            )
            for level, on_host in itertools.product(levels, homes)
        }
        most = min(mesh.count, mesh.stages - stage)
        least = 1 if self.problem.has_in_flight_caps else most
        return [
            Option(
                peak=self.peak(
                    *(mesh, (first, end), set(again), k),
                    level=level,
                    on_host=on_host,
                    way=way,
                ),
                extra_s=sum(added[way, layer][1] for layer in again)
                + passes_s[level][1],
                forward_s=sum(added[way, layer][0] for layer in again)
                + passes_s[level][0],
                closing_s=closing_s[level, on_host],
                cap=k,
                offloads=way != RECOMPUTE,
                on_host=on_host,
            )
            for k in range(least, most + 1)
            for level in levels
            for on_host in homes
            for way, layers in free.items()
            for size in range(way != RECOMPUTE, len(layers) + 1)
            for again in itertools.combinations(layers, size)
        ]

    def may_offload(self, mesh: Mesh, tables: Tables, capacity: int) -> bool:
        """Whether plans within a capacity that offload count.

        In proofs that nothing fits they do. Else if it pays, or if nothing fits
        without.
        """
        ways = ways_of(self, mesh)
        if self.which == "lower" or len(ways) == 1:
            return True
        if any(self.pays(mesh, layer, ways) for layer in range(self.size)):
            return True
        return self.least_of(mesh, without_offloading(tables)) > capacity

    def pays(self, mesh: Mesh, layer: int, ways: list[str]) -> bool:
        """Whether a layer spares a saved byte sooner if it is offloaded."""
        expected = Judge(self.problem, "expected")
        before, boundary = max(layer - 1, 0), self.costs.boundary
        received = self.amount(mesh, boundary, before, "upper") * (layer > 0)
        prices = {}
        for way in ways:
            kept, other = (
                self.amount(mesh, side.saved, layer, "upper")
                + received * side.keeps_input[self.row(mesh, layer)]
                for side in (self.costs.kept, side_of(self, way))
            )
            spared = (kept - other) * (
                layer in self.free(mesh, (layer, layer + 1), way)
            )
            added_s = sum(expected.added_s(mesh, layer, way))
            prices[way] = added_s / spared if spared > 0 else math.inf
        return any(prices[way] < prices[RECOMPUTE] for way in ways[1:])

    def free(self, mesh: Mesh, run: tuple[int, int], way: str) -> list[int]:
        """List the layers that can be run in a way."""
        can = self.costs.recomputable
        is_any = way == OFFLOAD
        return [at for at in range(*run) if is_any or can[self.row(mesh, at)]]

    def added_s(self, mesh: Mesh, layer: int, way: str) -> tuple[float, float]:
        """Seconds that a way adds to both passes of a layer."""
        forward, backward, again = (
            self.pass_s(mesh, name, layer)
            for name in ("forward", "backward", "recompute")
        )
        return copied_s(self, mesh, layer, way, (forward, backward, again))

    def is_within(
        self, mesh: Mesh, run: tuple[int, int], num_bytes: int, way: str, in_flight: int
    ) -> bool:
        """Whether a rank's share of its machine holds some bytes and activations."""
        taken = num_bytes + offloaded_bytes(self, mesh, run, way, in_flight)
        return taken <= share(self, mesh)

    def cuts(self, stages: int) -> Iterator[tuple[int, ...]]:
        """Yield all cuts, first layers and the end."""
        for inner in itertools.combinations(range(1, self.size), stages - 1):
            yield (0, *inner, self.size)

    def tables(self, mesh: Mesh) -> Tables:
        """List the options of every stage there could be."""
        return {
            (stage, first, end): self.options(mesh, stage, first, end)
            for stage in range(mesh.stages)
            for first, end in itertools.combinations(range(self.size + 1), 2)
            if (first == 0) == (stage == 0)
            and (end == self.size) == (stage == mesh.stages - 1)
        }

    def least_peak(self, mesh: Mesh) -> int:
        """Least peak at any speed."""
        return self.least_of(mesh, self.tables(mesh))

    def least_of(self, mesh: Mesh, tables: Tables) -> int:
        """Least peak of some options."""
        return min(
            max(
                min(option.peak for option in tables[stage, *run])
                for stage, run in enumerate(itertools.pairwise(cuts))
            )
            for cuts in self.cuts(mesh.stages)
        )

    def least_walk_s(self, mesh: Mesh, capacity: int) -> float:
        """Shortest step of all plans that fit, infinite where none does."""
        plans = self.quickest_plans(mesh, self.tables(mesh), capacity)
        return min((step_s for _, step_s in plans), default=math.inf)

    def quickest_plans(
        self, mesh: Mesh, tables: Tables, capacity: int
    ) -> Iterator[tuple[int, float]]:
        """Yield peak and step for each cut with options that no other ones beat."""
        if not self.may_offload(mesh, tables, capacity):
            tables = without_offloading(tables)
        for cuts in self.cuts(mesh.stages):
            runs = enumerate(itertools.pairwise(cuts))
            chosen = [quickest(tables[stage, *run], capacity) for stage, run in runs]
            for options in itertools.product(*chosen):
                if follow(one.cap for one in options):
                    step_s = self.walk_s(mesh, cuts, options)
                    yield max(option.peak for option in options), step_s

    def least_peak_at(self, mesh: Mesh, capacity: int, target_s: float) -> float:
        """Least peak of the plans that fit and whose step is short enough.

        Infinite where there is none. Peaks of stages are tried one by one.
        """
        tables = self.tables(mesh)
        peaks = {o.peak for options in tables.values() for o in options}
        for peak in sorted(peaks):
            if peak > capacity:
                break
            steps = (step_s for _, step_s in self.quickest_plans(mesh, tables, peak))
            if min(steps, default=math.inf) <= target_s:
                return peak
        return math.inf


def without_offloading(tables: Tables) -> Tables:
    """The options that offload nothing."""
    return {
        run: [one for one in options if not one.offloads]
        for run, options in tables.items()
    }


def quickest(options: list[Option], capacity: int) -> list[Option]:
    """Options that fit, without those that take longer than one of the same cap."""
    fitting = sorted(
        (one for one in options if one.peak <= capacity),
        key=lambda one: (one.cap, one.extra_s, one.forward_s, one.closing_s, one.peak),
    )
    found: list[Option] = []
    for one in fitting:
        if not any(
            other.cap == one.cap
            and other.forward_s <= one.forward_s
            and other.closing_s <= one.closing_s
            for other in found
        ):
            found.append(one)
    return found
