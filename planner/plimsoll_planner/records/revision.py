"""A plan that takes the place of the one that runs, without a restart.

The world stays: P, D, T, the micro-batch, the groups, what is sharded and the memory of
optimizers. Layers move between neighbouring stages, and stages may recompute, offload
or have in flight something else. Source: vPipe (Zhao et al., TPDS 2022), whose layers
move while a model trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from plimsoll_planner.records.bounds import Bytes, Digest, Index, Range
from plimsoll_planner.records.document import Document, digest_of
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.records.record import Record

LEAST_PACE, MOST_PACE = 1 / 64, 64.0
"""Of a stage: what a report states beyond these is taken as one of them."""
Pace = Annotated[
    float, Range(minimum=LEAST_PACE, maximum=MOST_PACE, unit="of the profiled seconds")
]
StepSeconds = Annotated[float, Range(minimum=0, above=True, maximum=1e10, unit="s")]


class Cause(StrEnum):
    """Observation that a plan is revised for."""

    PACE = "Pace"
    """A stage computes more slowly, or faster, than was planned for."""
    PEAK = "Peak"
    """A rank held more than the upper bound of its stage."""
    CAPACITY = "Capacity"
    """A device is smaller than was planned for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move(Record):
    """One layer that goes to a neighbouring stage, in all replicas and parts."""

    layer: Index
    source: Index
    """Stage that holds it before."""
    destination: Index
    """Stage that holds it afterwards."""

    def check_rules(self) -> None:
        """Stages are neighbours."""
        if abs(self.destination - self.source) != 1:
            rule = f"a neighbour of stage {self.source}"
            raise self.refuse("destination", rule)


Cuts = tuple[int, ...]
"""First layer of each stage."""


def moved(cuts: Cuts, num_layers: int, move: Move) -> Cuts | None:
    """Cuts after a move; None if it is no move of them.

    The first layer of a stage goes to the one before, or the last to the one behind,
    and a layer is left.
    """
    ends = (*cuts[1:], num_layers)
    if max(move.source, move.destination) >= len(cuts):
        return None
    first, end = cuts[move.source], ends[move.source]
    is_back = move.destination < move.source
    if end - first < 2 or move.layer != (first if is_back else end - 1):  # noqa: PLR2004
        return None
    place = move.source if is_back else move.destination
    return (*cuts[:place], cuts[place] + (1 if is_back else -1), *cuts[place + 1 :])


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision(Document):
    """A plan, the one that it follows, and how one becomes the other."""

    plan: HybridPlan
    """Its revision is one more than that of the plan before."""
    follows: Digest
    """Of the plan before: no other one is revised."""
    moves: tuple[Move, ...] = ()
    """In this order; after each of them every stage is one run of layers."""
    cause: Cause
    paces: tuple[Pace, ...]
    """Of each stage: seconds of its passes over those profiled, that it is made for."""
    lacking_bytes: tuple[Bytes, ...] = ()
    """Of each stage: bytes that its devices lack beside those offered, or that a rank
    took beyond its upper bound, that it is made for; empty: none."""
    step_before_s: StepSeconds
    """Expected of the plan before, at these paces."""
    step_after_s: StepSeconds
    """Expected of this one."""

    def check_rules(self) -> None:
        """Every stage has a pace, and moves lead to the plan."""
        num_stages = len(self.plan.stages)
        if self.plan.revision == 1:
            raise self.refuse("plan.revision", "above 1, which nothing follows", 1)
        if len(self.paces) != num_stages:
            rule = f"one for each of {num_stages} stages"
            raise self.refuse("paces", rule)
        if self.lacking_bytes and len(self.lacking_bytes) != num_stages:
            rule = f"one for each of {num_stages} stages, or none"
            raise self.refuse("lacking_bytes", rule)
        self.cuts_before()

    def cuts_before(self) -> Cuts:
        """Cuts of the plan before: every move undone, the last one first.

        Raises:
            InvalidFieldError: a move does not lead to the plan.
        """
        cuts, num_layers = cuts_of(self.plan), num_layers_of(self.plan)
        for place in reversed(range(len(self.moves))):
            move = self.moves[place]
            back = Move(
                layer=move.layer, source=move.destination, destination=move.source
            )
            before = moved(cuts, num_layers, back)
            if before is None or moved(before, num_layers, move) != cuts:
                rule = "the first or last layer of a stage, to where the plan has it"
                raise self.refuse(f"moves[{place}]", rule, move.layer)
            cuts = before
        return cuts


def cuts_of(plan: HybridPlan) -> Cuts:
    """First layer of each stage of a plan with one run of layers on each."""
    return tuple(stage.chunks[0].first_layer for stage in plan.stages)


def num_layers_of(plan: HybridPlan) -> int:
    """L."""
    return max(chunk.end_layer for stage in plan.stages for chunk in stage.chunks)


def difference(revision: Revision, before: HybridPlan) -> str | None:
    """First reason why a revision cannot follow a plan; None if it can.

    Called by every rank before a move.
    """
    after = revision.plan
    if revision.follows != digest_of(before):
        return (
            f"revision {after.revision} follows another plan than revision "
            f"{before.revision}, which runs"
        )
    for name, old, new in (
        ("revision", before.revision + 1, after.revision),
        ("fingerprint", before.fingerprint, after.fingerprint),
        ("global_batch_size", before.global_batch_size, after.global_batch_size),
        ("micro_batch", before.micro_batch, after.micro_batch),
        ("num_micro_batches", before.num_micro_batches, after.num_micro_batches),
        ("schedule", before.schedule, after.schedule),
        ("engine", before.engine, after.engine),
        ("optimizer_mode", before.optimizer_mode, after.optimizer_mode),
        ("offers", before.offers, after.offers),
        ("pods", before.pods, after.pods),
        ("stages", len(before.stages), len(after.stages)),
        ("layers", num_layers_of(before), num_layers_of(after)),
        ("cuts", cuts_of(before), revision.cuts_before()),
        *(
            (f"stages[{place}]", world_of(old), world_of(new))
            for place, (old, new) in enumerate(
                zip(before.stages, after.stages, strict=False)
            )
        ),
    ):
        if old != new:
            return (
                f"revision {after.revision} has {name} {new}, and the plan that runs "
                f"leads to {old}: a revision keeps the world"
            )
    return None


def world_of(stage: Stage) -> tuple[object, ...]:
    """All of a stage that a revision keeps."""
    return (
        stage.ranks,
        stage.offer,
        stage.variant,
        stage.data_degree,
        stage.sharding,
        stage.optimizer_home,
    )
