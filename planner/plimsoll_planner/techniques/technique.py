"""A technique that holds less or takes longer, as the search asks for it.

A technique offers `Choice`s to every stage. Given a stage and its layers, the choices
of one stage are independent of those of another, so the search takes the elementwise
minimum over them of its matrices [A, B]; they multiply no tuples.

A choice rewrites the bytes of the layers, the flow of micro-batches, and the seconds
after the last backward pass. Every bound of the search is made from rewritten numbers,
its least over all choices, so no bound can overlook one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.chain_bytes import ChainBytes
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.host_memory import share
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.timing.stage_runs import EndSeconds

Chains = Sequence[ChainBytes]
"""Bytes of the layers, one for each bound; their state is that of every micro-batch."""
SCALARS_BYTES = 512
"""Of what an optimizer's step or a norm takes once, at most, whatever its numbers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One use of a technique on a stage; this one changes nothing."""

    @property
    def stated(self) -> dict[str, Any]:
        """Fields of the plan's `Stage` that state it."""
        return {}

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Bytes of the layers on a rank.

        What layers save and need at work is as `at_work` has it. Bytes do not fall if
        those of the chain rise: `family_bounds` asks for the least of all micro-batches
        at once.
        """
        return chain

    @property
    def at_work(self) -> Choice:
        """The part of it that changes what layers save and need at work.

        Options of runs are built for each such part, so it is alike for all meshes.
        """
        return UNCHANGED

    @property
    def other_way(self) -> Way:
        """Way of the layers that are not kept."""
        return Way.RECOMPUTED

    def flow(self, flow: Flow) -> Flow:
        """Flow of micro-batches through the stage.

        No number of it falls if one of `flow` rises, and k is the same for all M above
        it. The walk does not see it: fewer in flight are a cap (`StageChoice`).
        """
        return flow

    def end_s(self, end: EndSeconds, bound: Bound) -> EndSeconds:
        """Seconds after the last backward pass, of runs of layers."""
        del bound
        return end

    @property
    def uses_host(self) -> bool:
        """Whether bytes lie in the memory of the machine."""
        return False


UNCHANGED = Choice()


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Choices of all techniques for one stage, and a cap."""

    parts: tuple[Choice, ...] = ()
    in_flight_cap: int | None = None
    """Micro-batches in flight; None: as many as the schedule lets."""

    def capped(self, in_flight: int | None) -> StageChoice:
        """The same with another cap."""
        return StageChoice(self.parts, in_flight)

    @property
    def stated(self) -> dict[str, Any]:
        """Fields of the plan's `Stage` that state them."""
        return {name: it for part in self.parts for name, it in part.stated.items()}

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Bytes of the layers on a rank."""
        for part in self.parts:
            chain = part.bytes(chain)
        return chain

    @property
    def at_work(self) -> StageChoice:
        """The part of it that changes what layers save and need at work."""
        parts = (part.at_work for part in self.parts)
        return StageChoice(tuple(part for part in parts if part != UNCHANGED))

    @property
    def other_way(self) -> Way:
        """Way of the layers that are not kept; one technique at most has its own."""
        ways = (part.other_way for part in self.parts)
        return next((way for way in ways if way is not Way.RECOMPUTED), Way.RECOMPUTED)

    @property
    def without_way(self) -> StageChoice:
        """The same for layers that recompute if they are not kept."""
        usual = Way.RECOMPUTED
        parts = (p if p.other_way is usual else UNCHANGED for p in self.parts)
        return StageChoice(tuple(parts), self.in_flight_cap)

    def flow(self, flow: Flow) -> Flow:
        """Flow of micro-batches through the stage."""
        for part in self.parts:
            flow = part.flow(flow)
        if self.in_flight_cap is None:
            return flow
        return replace(flow, in_flight=min(self.in_flight_cap, flow.in_flight))

    @property
    def uses_host(self) -> bool:
        """Whether bytes lie in the memory of the machine."""
        return any(part.uses_host for part in self.parts)

    def end_s(self, end: EndSeconds, bound: Bound) -> Floats:
        """Seconds after the last backward pass, of runs of layers."""
        for part in self.parts:
            end = part.end_s(end, bound)
        return end.total


NO_CHOICE = StageChoice()
"""Choice of a stage if no technique offers any."""


def lack_of_host(problem: Problem) -> str:
    """Reason why nothing can be on a host; empty if an offer has one that is known."""
    if any(map(share, problem.offers)):
        return ""
    return (
        "no offer states the memory of its host and a link to it, `MemoryGiB` and "
        "`HostLinkGBps` in a table"
    )


class Technique(ABC):
    """A way to hold less; see the module's text."""

    name: ClassVar[str]
    """As certificates name it."""

    def unavailable(self, problem: Problem) -> str:
        """Why stages of a problem are not offered it; empty where they are."""
        del problem
        return ""

    def missing(self, problem: Problem) -> str:
        """Why what a problem demands of it cannot be had; empty where it can."""
        del problem
        return ""

    def falls_with_replicas(self, problem: Problem) -> bool:
        """Whether a rank may hold less if there are more replicas.

        If so, a bound for one replica does not hold for every number of them.
        """
        del problem
        return False

    @abstractmethod
    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> Iterable[Choice]:
        """Choices of each stage, at least one.

        The pipeline degree of `strategy` is 1: choices are the same for all P, because
        bounds of one P serve the others (`tuple_bounds`, `family_bounds`).
        """

    @abstractmethod
    def choice_of(self, stage: Stage, problem: Problem) -> Choice:
        """Choice that a stage of a plan states."""
