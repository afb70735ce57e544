"""A plan of a tuple, as the search finds and compares it; made by `plans_within`."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.search.space import Candidate
from plimsoll_planner.techniques.technique import StageChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One plan of a tuple."""

    candidate: Candidate
    cuts: tuple[int, ...]
    recomputed: tuple[tuple[int, ...], ...]
    """Layers that recompute, or what a stage does in its place, stage by stage."""
    choices: tuple[StageChoice, ...]
    """Choices of techniques and caps, stage by stage."""
    bound_s: float
    """Lower bound of the step of all plans within the same capacity: those of the same
    cuts, or of the tuple once all cuts were searched."""
    step_s: float
    """Of the walked schedule, expected seconds."""
    peaks: tuple[int, ...]
    """Upper bounds of tensor bytes, stage by stage."""
