"""Seconds of one step, from walking the schedule operation by operation.

In: seconds of every stage and the topology. Out: seconds. Called for the plans that the
search compares; `step_bound` is what the exact programmes minimise instead, and the
difference is reported.

A rank computes one operation at a time, in the order of its schedule. An operation
starts when its rank is free and its input has arrived: a forward pass needs the output
of the stage before, a backward pass the gradient from the stage behind, and both travel
over their link meanwhile. After its last backward pass a stage exchanges gradients with
its replicas, then steps its optimizer; the step ends with the last rank.

Where a node computes for a limited number of ranks at a time (emulated devices share
cores), operations wait for a free core in the order in which they could have started,
all replicas walked together. There nothing travels meanwhile, for it is the same cores
that copy and add: a message holds a core while it is sent and once more while it is
received, and the exchange of gradients holds one as well. While more ranks have work
than there are cores, all of it takes longer (`Offer.crowded_slowdown`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from plimsoll_planner.timing.schedule import Operation, Pass, PipelineSchedule
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.ticks import up
from plimsoll_planner.timing.topology import Topology


def walk(
    schedule: PipelineSchedule,
    stages: list[StageTimes],
    num_micro_batches: int,
    placed: Topology,
) -> float:
    """Seconds of one step.

    Args:
        schedule: the order of passes.
        stages: first to last.
        num_micro_batches: M.
        placed: machines of the ranks.
    """
    if not are_shared(stages, placed):
        ends = schedule.last_backwards(stages, num_micro_batches, placed)
        if ends is None:
            ends = last_backwards(schedule, stages, num_micro_batches, placed)
        pairs = zip(ends, stages, strict=True)
        return max(end + stage.end_s for end, stage in pairs)
    return SharedWalk(schedule, stages, num_micro_batches, placed).run()


def are_shared(stages: list[StageTimes], placed: Topology) -> bool:
    """Tell whether ranks ever wait for a core, or for one to copy."""
    if placed.concurrent_per_node is None:
        return False
    ranks_per_node = placed.pods_per_node * placed.gpus_per_pod
    num_ranks = placed.mesh.num_gpus
    return min(ranks_per_node, num_ranks) > placed.concurrent_per_node or any(
        hop.seconds(stage.sent_bytes) > 0
        for hop, stage in zip(placed.hops, stages, strict=False)
    )


def last_backwards(
    schedule: PipelineSchedule,
    stages: list[StageTimes],
    num_micro_batches: int,
    placed: Topology,
) -> list[float]:
    """Ends of each stage's last backward pass; the replicas are alike."""
    ends = pass_ends(schedule, stages, num_micro_batches, placed)
    return [mine[-1] for mine in ends]


def pass_ends(
    schedule: PipelineSchedule,
    stages: list[StageTimes],
    num_micro_batches: int,
    placed: Topology,
) -> list[list[float]]:
    """Ends of each stage's passes, in the order of its schedule.

    Every stage goes on as far as its inputs allow, until all are done.
    """
    num_stages = len(stages)
    delays = [
        placed.hops[s].seconds(stages[s].sent_bytes) for s in range(num_stages - 1)
    ]
    orders = [
        list(schedule.operations(s, num_stages, num_micro_batches))
        for s in range(num_stages)
    ]
    # Arrival of inputs and of gradients at each stage, in the order of micro-batches.
    inputs: list[list[float]] = [[] for _ in stages]
    gradients: list[list[float]] = [[] for _ in stages]
    inputs[0] = [0.0] * num_micro_batches
    ends: list[list[float]] = [[] for _ in stages]
    waiting = True
    while waiting:
        waiting = False
        for s, (order, stage) in enumerate(zip(orders, stages, strict=True)):
            mine = ends[s]
            now = mine[-1] if mine else 0.0
            arrived, returned = inputs[s], gradients[s]
            is_last = s == num_stages - 1
            while len(mine) < len(order):
                operation = order[len(mine)]
                micro_batch = operation.micro_batch
                if operation.kind is Pass.FORWARD:
                    if micro_batch >= len(arrived):
                        break
                    now = max(now, arrived[micro_batch]) + stage.forward_s
                    if is_last:
                        returned.append(now)
                    else:
                        inputs[s + 1].append(now + delays[s])
                else:
                    if micro_batch >= len(returned):
                        break
                    now = max(now, returned[micro_batch]) + stage.backward_s
                    if s > 0:
                        gradients[s - 1].append(now + delays[s - 1])
                mine.append(now)
            waiting = waiting or len(mine) < len(order)
    return ends


@dataclass(slots=True)
class Rank:
    """One rank of the walk with shared cores."""

    stage: int
    replica: int
    node: int
    order: list[Operation]
    place: int = 0
    free_s: float = 0.0
    is_running: bool = False
    begins_s: list[float] = field(default_factory=list[float])
    """Of its operations so far; at last of the exchange and the optimizer step."""
    ends_s: list[float] = field(default_factory=list[float])


class SharedWalk:
    """List scheduling: a free core takes the operation that could start first."""

    def __init__(
        self,
        schedule: PipelineSchedule,
        stages: list[StageTimes],
        num_micro_batches: int,
        placed: Topology,
    ) -> None:
        """Put every rank in front of its first operation."""
        self.stages, self.placed = stages, placed
        num_stages = len(stages)
        self.ranks = [
            Rank(
                stage=s,
                replica=d,
                node=placed.node_of(rank),
                order=list(schedule.operations(s, num_stages, num_micro_batches)),
            )
            for s in range(num_stages)
            for d, rank in enumerate(placed.mesh.ranks(s))
        ]
        hops = [
            hop.seconds(stage.sent_bytes)
            for hop, stage in zip(placed.hops, stages, strict=False)
        ]
        self.messages_s = [
            before + behind
            for before, behind in zip([0.0, *hops], [*hops, 0.0], strict=True)
        ]
        """Of each stage: one message in and one out, in either direction."""
        self.arrivals: dict[tuple[int, int, Operation], float] = {}
        self.cores = [placed.concurrent_per_node or 1] * placed.num_nodes
        self.events: list[tuple[float, int]] = []
        """Ends of operations: when, and which rank."""

    def run(self) -> float:
        """Return when the last rank ends its optimizer step."""
        self.start_ready(0.0)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                self.finish(*heapq.heappop(self.events))
            self.start_ready(now)
        return max(rank.free_s for rank in self.ranks)

    def ready_s(self, rank: Rank) -> float | None:
        """Return since when the next operation could run, None where it cannot yet.

        After its passes a rank exchanges gradients, then steps its optimizer.
        """
        if rank.is_running or rank.place > len(rank.order):
            return None
        if rank.place == len(rank.order):
            return rank.free_s
        operation = rank.order[rank.place]
        if operation.kind is Pass.FORWARD and rank.stage == 0:
            return rank.free_s
        arrival = self.arrivals.get((rank.stage, rank.replica, operation))
        return None if arrival is None else max(rank.free_s, arrival)

    def start_ready(self, now: float) -> None:
        """Give free cores to what could have started first, ties by rank."""
        ready = sorted(
            (since, place, self.taken_s(rank))
            for place, rank in enumerate(self.ranks)
            if (since := self.ready_s(rank)) is not None
        )
        waiting = Counter(
            self.ranks[place].node for _, place, taken_s in ready if taken_s > 0
        )
        crowded = {node for node, num in waiting.items() if num > self.cores[node]}
        for _, place, taken_s in ready:
            rank = self.ranks[place]
            if self.cores[rank.node] > 0:
                self.cores[rank.node] -= 1
                rank.is_running = True
                rank.begins_s.append(now)
                slowdown = self.placed.crowded_slowdown if rank.node in crowded else 1
                end = now + up(slowdown * taken_s)
                heapq.heappush(self.events, (end, place))

    def taken_s(self, rank: Rank) -> float:
        """Return the seconds of a rank's next operation."""
        stage = self.stages[rank.stage]
        if rank.place == len(rank.order):
            return stage.end_s
        is_forward = rank.order[rank.place].kind is Pass.FORWARD
        pass_s = stage.forward_s if is_forward else stage.backward_s
        return pass_s + self.messages_s[rank.stage]

    def finish(self, now: float, place: int) -> None:
        """End an operation: free its core and hand on what it made."""
        rank = self.ranks[place]
        self.cores[rank.node] += 1
        rank.is_running, rank.free_s = False, now
        rank.ends_s.append(now)
        rank.place += 1
        if rank.place <= len(rank.order):
            self.hand_on(rank, rank.order[rank.place - 1], now)

    def hand_on(self, rank: Rank, operation: Operation, now: float) -> None:
        """Give what a pass made to the rank that waits for it."""
        target, kind = rank.stage - 1, Pass.BACKWARD
        if operation.kind is Pass.FORWARD:
            is_last = rank.stage == len(self.stages) - 1
            target = rank.stage if is_last else rank.stage + 1
            kind = Pass.BACKWARD if is_last else Pass.FORWARD
        key = (target, rank.replica, Operation(kind, operation.micro_batch))
        self.arrivals[key] = now
