"""An independent judge: every tuple of a small problem, every cut, every recompute set.

Written from the text of the memory formula and of the schedule alone; nothing of the
planner is used but the records. Slow and plain on purpose. One micro-batch at a time,
byte by byte: for each stage it lists all of its options, and a cut is as good as the
best option of each of its stages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.problem import Problem


@dataclass(frozen=True, order=True)
class Mesh:
    """One tuple: G, offer, P, D, b and M (0 where the batch does not divide)."""

    gpus: int
    offer: int
    stages: int
    replicas: int
    samples: int
    count: int


@dataclass(frozen=True)
class Option:
    """One stage with one recompute set."""

    peak: int
    extra_s: float


Tables = dict[tuple[int, int, int], list[Option]]
"""The options of each stage [A, B) at each place of the pipeline."""


def meshes(problem: Problem) -> Iterator[Mesh]:
    """Yield every tuple from one GPU to the limit."""
    batch, layers = problem.global_batch_size, len(problem.profile.layers.name)
    for gpus in range(1, problem.limits.max_gpus + 1):
        for offer in range(len(problem.offers)):
            for stages in range(1, min(gpus, layers) + 1):
                if gpus % stages:
                    continue
                replicas = gpus // stages
                if batch % replicas:
                    yield Mesh(gpus, offer, stages, replicas, 1, 0)
                    continue
                share = batch // replicas
                for samples in range(1, share + 1):
                    if share % samples == 0:
                        yield Mesh(
                            gpus, offer, stages, replicas, samples, share // samples
                        )


class Judge:
    """Answers about the tuples of one problem, for one bound of bytes and seconds."""

    def __init__(self, problem: Problem, which: str, seconds: str = "") -> None:
        """Take a bound: lower, expected or upper; of the seconds, if another."""
        self.problem, self.which = problem, which
        self.which_s = seconds or which
        self.costs = problem.profile.costs
        self.kinds = problem.profile.layers.kind
        self.size = len(self.kinds)

    def amount(self, columns: object, layer: int, samples: int, which: str = "") -> int:
        """Read one line of bytes."""
        row = self.costs.kind.index(self.kinds[layer])
        found = columns.at(row, samples)  # type: ignore[attr-defined]
        return int(getattr(found, f"{which or self.which}_bytes"))

    def pass_s(self, name: str, layer: int, samples: int) -> float:
        """Read one line of seconds."""
        row = self.costs.kind.index(self.kinds[layer])
        found = getattr(self.costs, name).at(row, samples)
        return float(getattr(found, f"{self.which_s}_s"))

    def step_s(self, layer: int) -> float:
        """Read the seconds of an optimizer step."""
        assert self.costs.optimizer_step_s is not None
        return self.costs.optimizer_step_s[self.costs.kind.index(self.kinds[layer])]

    def column(self, name: str, layer: int) -> int:
        """Read one column of bytes."""
        return int(getattr(self.costs, name)[self.costs.kind.index(self.kinds[layer])])

    # Memory.

    def peak(
        self, mesh: Mesh, stage: int, first: int, end: int, again: set[int]
    ) -> int:
        """Peak of one rank, from the text of the formula."""
        b, count = mesh.samples, mesh.count
        k = min(count, mesh.stages - stage)
        is_first, is_last = first == 0, end == self.size
        u_in = 0 if is_first else self.amount(self.costs.boundary, first - 1, b)
        u_out = 0 if is_last else self.amount(self.costs.boundary, end - 1, b)
        state = self.state(first, end)
        held = state
        if is_first:
            held += self.problem.profile.input_bytes_per_sample * b * count
        if is_last:
            held += self.problem.profile.target_bytes_per_sample * b * count
        for tie in self.problem.profile.tied:
            both = sum(first <= layer < end for layer in tie.layers) > 1
            held += tie.gradient_bytes * (both and self.which != "lower")

        def side(layer: int) -> object:
            return self.costs.recomputed if layer in again else self.costs.kept

        def of(layer: int, name: str) -> int:
            return self.amount(getattr(side(layer), name), layer, b)

        def keeps(layer: int, name: str) -> bool:
            row = self.costs.kind.index(self.kinds[layer])
            return bool(getattr(side(layer), name)[row])

        held_behind = {}
        for layer in range(first, end - 1):
            stays = keeps(layer, "keeps_output") or keeps(layer + 1, "keeps_input")
            u = self.amount(self.costs.boundary, layer, b)
            held_behind[layer] = u if stays else 0
        out_stays = keeps(end - 1, "keeps_output") and not is_last
        saved = sum(of(layer, "saved") for layer in range(first, end))
        one = saved + sum(held_behind.values()) + (u_out if out_stays else 0)
        start = (k - 1) * (u_in + one) + u_in + (u_in if count > k else 0)
        worst = 0
        live = 0
        for layer in range(first, end):
            u_before = (
                self.amount(self.costs.boundary, layer - 1, b) if layer > first else 0
            )
            w_before = held_behind.get(layer - 1, 0)
            worst = max(worst, live + u_before + of(layer, "forward_transient") + u_out)
            name, gradient_held = (
                ("backward_transient_at_end", 0)
                if layer == end - 1
                else ("backward_transient", u_out)
            )
            outlives = layer == first or keeps(layer - 1, "keeps_output")
            more = of(layer, "held_input") if outlives else 0
            turned = of(layer, name) + gradient_held + more
            worst = max(worst, live + w_before + turned)
            live += w_before + of(layer, "saved")
        if not is_last:
            worst = max(worst, one + u_out + (0 if out_stays else u_out))
        largest_step = max(
            self.column("optimizer_transient_bytes", layer)
            for layer in range(first, end)
        )
        return max(held + start + worst, state + largest_step)

    def state(self, first: int, end: int) -> int:
        """State of a stage, tied parts once."""
        names = ("parameter", "gradient", "buffer", "optimizer")
        total = sum(
            self.column(f"{name}_bytes", layer)
            for name in names
            for layer in range(first, end)
        )
        for tie in self.problem.profile.tied:
            inside = [layer for layer in tie.layers if first <= layer < end]
            if len(inside) > 1:
                shared = sum(getattr(tie, f"{name}_bytes") for name in names)
                total -= (len(inside) - 1) * shared
        return total

    def options(self, mesh: Mesh, stage: int, first: int, end: int) -> list[Option]:
        """List a stage with every recompute set."""
        free = [
            layer
            for layer in range(first, end)
            if self.costs.recomputable[self.costs.kind.index(self.kinds[layer])]
        ]
        return [
            Option(
                peak=self.peak(mesh, stage, first, end, set(again)),
                extra_s=sum(
                    self.pass_s("recompute", layer, mesh.samples) for layer in again
                ),
            )
            for size in range(len(free) + 1)
            for again in itertools.combinations(free, size)
        ]

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
        tables = self.tables(mesh)
        return min(
            max(
                min(option.peak for option in tables[stage, *run])
                for stage, run in enumerate(itertools.pairwise(cuts))
            )
            for cuts in self.cuts(mesh.stages)
        )

    # Time.

    def link(self, mesh: Mesh, one: int, other: int) -> Link | None:
        """Link between two ranks."""
        offer = self.problem.offers[mesh.offer]
        pod = pod_size(offer, mesh.gpus)
        if one // pod == other // pod:
            return offer.link_in_node
        return offer.link_between_nodes

    def hop_s(self, mesh: Mesh, stage: int, layer: int) -> float:
        """Seconds of one boundary from a stage to the next.

        The slowest replica: between pods where any replica's ranks lie in two.
        """
        links = [
            (
                self.link(
                    mesh,
                    stage * mesh.replicas + replica,
                    (stage + 1) * mesh.replicas + replica,
                ),
                is_split,
            )
            for replica in range(mesh.replicas)
            for is_split in [self.is_split(mesh, stage, replica)]
        ]
        chosen = next((link for link, split in links if split), links[0][0])
        sent = self.amount(self.costs.boundary, layer, mesh.samples, self.which_s)
        return over(chosen, sent)

    def is_split(self, mesh: Mesh, stage: int, replica: int) -> bool:
        """Whether a replica's two ranks lie in two pods."""
        pod = pod_size(self.problem.offers[mesh.offer], mesh.gpus)
        rank = stage * mesh.replicas + replica
        return rank // pod != (rank + mesh.replicas) // pod

    def closing_s(self, mesh: Mesh, stage: int, first: int, end: int) -> float:
        """Seconds of exchanging gradients and stepping the optimizer."""
        step = sum(self.step_s(layer) for layer in range(first, end))
        if mesh.replicas == 1:
            return step
        ranks = [stage * mesh.replicas, (stage + 1) * mesh.replicas - 1]
        gradients = sum(
            self.column("gradient_bytes", layer) for layer in range(first, end)
        )
        for tie in self.problem.profile.tied:
            inside = [layer for layer in tie.layers if first <= layer < end]
            gradients -= max(len(inside) - 1, 0) * tie.gradient_bytes
        layers_with_gradients = sum(
            self.column("gradient_bytes", layer) > 0 for layer in range(first, end)
        )
        link = self.link(mesh, *ranks)
        part = over(link, gradients / mesh.replicas)
        if link is not None:
            part += (layers_with_gradients - 1) * link.latency_s
        return step + 2 * (mesh.replicas - 1) * part

    def walk_s(self, mesh: Mesh, cuts: tuple[int, ...], extra: list[float]) -> float:
        """Seconds of a step: ops in order, each after its input."""
        b = mesh.samples
        runs = list(itertools.pairwise(cuts))
        forward = [sum(self.pass_s("forward", at, b) for at in range(*r)) for r in runs]
        backward = [
            sum(self.pass_s("backward", at, b) for at in range(*r)) + more
            for r, more in zip(runs, extra, strict=True)
        ]
        ends: dict[tuple[str, int, int], float] = {}
        orders = [one_f_one_b(stage, mesh) for stage in range(mesh.stages)]
        clocks = [0.0] * mesh.stages
        while any(orders):
            for stage, order in enumerate(orders):
                while order:
                    kind, number = order[0]
                    needs, delay = self.needed(mesh, cuts, kind, stage, number)
                    if needs is not None and needs not in ends:
                        break
                    arrival = 0.0 if needs is None else ends[needs] + delay
                    taken = (forward if kind == "F" else backward)[stage]
                    clocks[stage] = max(clocks[stage], arrival) + taken
                    ends[kind, stage, number] = clocks[stage]
                    order.pop(0)
        return max(
            clock + self.closing_s(mesh, stage, *run)
            for stage, (clock, run) in enumerate(zip(clocks, runs, strict=True))
        )

    def needed(
        self, mesh: Mesh, cuts: tuple[int, ...], kind: str, stage: int, number: int
    ) -> tuple[tuple[str, int, int] | None, float]:
        """Operation that an operation waits for, and the link's seconds."""
        if kind == "F":
            if stage == 0:
                return None, 0.0
            return (
                ("F", stage - 1, number),
                self.hop_s(mesh, stage - 1, cuts[stage] - 1),
            )
        if stage == mesh.stages - 1:
            return ("F", stage, number), 0.0
        return (
            ("B", stage + 1, number),
            self.hop_s(mesh, stage, cuts[stage + 1] - 1),
        )

    def least_walk_s(self, mesh: Mesh, capacity: int) -> float:
        """Shortest step of all plans that fit, infinite where none does.

        With given cuts a step is shortest where every stage recomputes least.
        """
        plans = self.quickest_plans(mesh, self.tables(mesh), capacity)
        return min((step_s for _, step_s in plans), default=math.inf)

    def quickest_plans(
        self, mesh: Mesh, tables: Tables, capacity: int
    ) -> Iterator[tuple[int, float]]:
        """Yield peak and step for each cut, every stage with its quickest option."""
        for cuts in self.cuts(mesh.stages):
            chosen = [
                min(
                    (o for o in tables[stage, *run] if o.peak <= capacity),
                    key=lambda o: (o.extra_s, o.peak),
                    default=None,
                )
                for stage, run in enumerate(itertools.pairwise(cuts))
            ]
            options = [option for option in chosen if option is not None]
            if len(options) == len(chosen):
                step_s = self.walk_s(mesh, cuts, [o.extra_s for o in options])
                yield max(o.peak for o in options), step_s

    def least_peak_at(self, mesh: Mesh, capacity: int, target_s: float) -> float:
        """Least peak of the plans that fit and whose step is short enough.

        Infinite where there is none. A shorter list of peaks is tried one by one: with
        a given largest peak a step is shortest where every stage recomputes least.
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


def one_f_one_b(stage: int, mesh: Mesh) -> list[tuple[str, int]]:
    """List the operations of a stage."""
    warm = min(mesh.count, mesh.stages - stage)
    order = [("F", number) for number in range(warm)]
    for number in range(mesh.count):
        order.append(("B", number))
        if number + warm < mesh.count:
            order.append(("F", number + warm))
    return order


def pod_size(offer: Offer, gpus: int) -> int:
    """Largest divisor of G that a node holds."""
    sizes = range(1, min(gpus, offer.devices_per_node) + 1)
    return max(size for size in sizes if gpus % size == 0)


def over(link: Link | None, num_bytes: float) -> float:
    """Seconds over a link; an unknown one takes none."""
    if link is None:
        return 0.0
    return link.latency_s + num_bytes / link.bandwidth_bytes_per_s
