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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from plimsoll_planner.memory.chain_bytes import ChainBytes
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.records.engine import EngineCapabilities
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.timing.chain_seconds import Floats


@dataclass(frozen=True, slots=True)
class Choice:
    """One use of a technique on a stage; this one changes nothing."""

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Bytes of the layers on a rank; what layers save and need at work stays.

        They do not fall if those of the chain rise: `family_bounds` asks for the least
        of all micro-batches at once.
        """
        return chain

    def flow(self, flow: Flow) -> Flow:
        """Flow of micro-batches through the stage.

        No number of it falls if one of `flow` rises, and k is the same for all M above
        it. The walk does not see it: a schedule with fewer in flight is one of its own.
        """
        return flow

    def end_s(self, exchange_s: Floats, optimizer_s: Floats) -> tuple[Floats, Floats]:
        """Exchange of gradients and optimizer step, seconds, of runs of layers."""
        return exchange_s, optimizer_s


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Choices of all techniques for one stage."""

    parts: tuple[Choice, ...] = ()

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Bytes of the layers on a rank."""
        for part in self.parts:
            chain = part.bytes(chain)
        return chain

    def flow(self, flow: Flow) -> Flow:
        """Flow of micro-batches through the stage."""
        for part in self.parts:
            flow = part.flow(flow)
        return flow

    def end_s(self, exchange_s: Floats, optimizer_s: Floats) -> Floats:
        """Seconds after the last backward pass, of runs of layers."""
        for part in self.parts:
            exchange_s, optimizer_s = part.end_s(exchange_s, optimizer_s)
        return exchange_s + optimizer_s


NO_CHOICE = StageChoice()
"""Choice of a stage if no technique offers any."""


class Technique(ABC):
    """A way to hold less; see the module's text."""

    name: ClassVar[str]
    """As certificates name it."""
    falls_with_replicas: ClassVar[bool] = False
    """Whether a rank may hold less if there are more replicas. If so, a bound for one
    replica does not hold for every number of them."""

    @abstractmethod
    def choices(self, strategy: Strategy, can: EngineCapabilities) -> Iterable[Choice]:
        """Choices of each stage, at least one.

        The pipeline degree of `strategy` is 1: choices are the same for all P, because
        bounds of one P serve the others (`tuple_bounds`, `family_bounds`).
        """
