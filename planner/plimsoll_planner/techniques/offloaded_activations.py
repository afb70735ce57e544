"""Activations of layers in the memory of the machine, between forward and backward.

Each layer of a stage is kept, or run in the other way that the stage has: recomputed as
a rule, and with this technique offloaded, or recomputed from an input that is offloaded
(`Way`). Bytes of the device are as they were profiled. On the host lie the bytes h of
each micro-batch in flight. They go out beside the forward pass of their layer and come
back beside its backward pass, so with f, b and r the seconds of forward, backward and
recomputing, and c those of h over the link,

    added to        lower bound              expected, upper bound
    forward         max(f, c) - f            c
    backward        max(b + r, c) - b        r + c

where the lower bound overlaps all of a copy, and the others nothing. The search takes
all layers of a stage to be on the host where it compares with the memory that is there,
and none where it proves that no plan fits.

Source: Zhao et al., vPipe, TPDS 2022; measured to the byte on real ranks,
docs/decisions/0032.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from plimsoll_planner.memory.chain_bytes import can_be
from plimsoll_planner.records.engine import Way, way_of
from plimsoll_planner.records.layer_costs import LayerCosts
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.techniques.technique import (
    Chains,
    Choice,
    Technique,
    lack_of_host,
)


@dataclass(frozen=True, slots=True)
class OtherWay(Choice):
    """Another way for layers that are not kept."""

    way: Way

    @property
    def at_work(self) -> Choice:
        """See the base."""
        return self

    @property
    def other_way(self) -> Way:
        """See the base."""
        return self.way

    @property
    def uses_host(self) -> bool:
        """See the base."""
        return True


class OffloadedActivations(Technique):
    """See the module's text."""

    name: ClassVar[str] = "offloaded activations"

    def unavailable(self, problem: Problem) -> str:
        """See the base."""
        if not problem.limits.offload:
            return "the limits leave it out"
        if problem.override.offloaded_layers == ():
            return "`override.offloaded_layers` is empty"
        if not problem.engine.can.offload:
            return f"{problem.engine.engine} cannot run it"
        if not profiled(problem.profile.costs):
            return "the profile is of before it was asked; profile the model again"
        return lack_of_host(problem)

    def missing(self, problem: Problem) -> str:
        """See the base."""
        reason = self.unavailable(problem)
        if reason and problem.override.offloaded_layers:
            return f"layers are to be offloaded, but {reason}"
        return ""

    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> Iterable[Choice]:
        """See the base."""
        del strategy, chains
        if self.unavailable(problem):
            return [Choice()]
        return [Choice(), *map(OtherWay, profiled(problem.profile.costs))]

    def choice_of(self, stage: Stage, problem: Problem) -> Choice:
        """See the base."""
        del problem
        if not stage.offloaded_layers:
            return Choice()
        recomputes = bool(stage.recomputed_layers)
        return OtherWay(way_of(recomputes=recomputes, offloads=True))


def profiled(costs: LayerCosts) -> list[Way]:
    """Ways of offloading that a profile has and that some layer can take."""
    return [way for way in costs.ways if way.offloads and any(can_be(costs, way))]


TECHNIQUE = OffloadedActivations()
