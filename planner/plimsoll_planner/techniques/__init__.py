"""Techniques that hold less: a file for each, with everything that holds for it alone.

technique    what a technique states of itself

A new technique is a file here whose `TECHNIQUE` is a `Technique`. Certificates then no
longer list it as left out.
"""

from __future__ import annotations

from itertools import product

from plimsoll_planner.records.engine import EngineCapabilities
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.registry import registered
from plimsoll_planner.techniques.technique import StageChoice, Technique

TECHNIQUES: tuple[Technique, ...] = tuple(
    one
    for one in registered(__name__, __path__, "TECHNIQUE")
    if isinstance(one, Technique)
)
"""Techniques that are searched, in the order in which they rewrite a layer."""
PUBLISHED = ("offload", "tensor parallelism", "sharding", "in-flight caps")
"""Techniques that planners know. A certificate names those it was searched without."""


def stage_choices(
    strategy: Strategy, can: EngineCapabilities
) -> tuple[StageChoice, ...]:
    """Every choice of a stage: one of each technique; the same for all P."""
    alike = strategy.without_stages
    parts = (technique.choices(alike, can) for technique in TECHNIQUES)
    return tuple(map(StageChoice, product(*parts)))


def falls_with_replicas() -> bool:
    """Whether a rank may hold less if there are more replicas."""
    return any(technique.falls_with_replicas for technique in TECHNIQUES)


def absent() -> tuple[str, ...]:
    """Published techniques that are not searched."""
    searched = {technique.name for technique in TECHNIQUES}
    return tuple(name for name in PUBLISHED if name not in searched)
