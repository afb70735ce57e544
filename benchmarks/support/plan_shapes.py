"""Shapes of plans: blocks of each stage, and which part of them recomputes.

In: a plan, or the published plans of vPipe. Out: a `PlanShape`. Called by `vpipe`. The
published ones are those that vPipe's public repository runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from plimsoll_planner.records.plan import HybridPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanShape:
    """Numbers of a plan, stage by stage."""

    name: str
    blocks: tuple[int, ...]
    ratios: tuple[float, ...]
    """Part of the blocks that recompute."""

    @property
    def falling_percent(self) -> float:
        """Pairs of stages of which the later one has no higher ratio, per cent."""
        return share_percent(self.ratios, lambda one, later: later <= one)

    @property
    def rising_percent(self) -> float:
        """Pairs of stages of which the later one has no fewer blocks, per cent.

        Without the last stage, which has the loss.
        """
        return share_percent(self.blocks[:-1], lambda one, later: later >= one)

    def cells(self) -> tuple[str, ...]:
        """The row of the page."""
        return (
            self.name,
            ", ".join(map(str, self.blocks)),
            ", ".join(f"{ratio:.2f}".rstrip("0").rstrip(".") for ratio in self.ratios),
            f"{self.falling_percent:.0f} %",
            f"{self.rising_percent:.0f} %",
        )


HEAD = (
    *("plan", "blocks of each stage", "part that recomputes"),
    *("pairs of stages in which it falls or stays", "in which blocks rise or stay"),
)
PUBLISHED = (
    PlanShape(
        name="vPipe, BERT, 8 GPUs, 97 blocks",
        blocks=(11, 11, 12, 12, 13, 13, 14, 11),
        ratios=(1, 0.85, 0.8, 0.6, 0.5, 0.2, 0, 0),
    ),
    PlanShape(
        name="vPipe, BERT, 4 GPUs, 49 blocks",
        blocks=(12, 13, 13, 11),
        ratios=(0.3, 0, 0, 0),
    ),
    PlanShape(
        name="vPipe, Transformer, 8 GPUs",
        blocks=(8, 7, 8, 8, 8, 9, 10, 5),
        ratios=(0.9, 0.7, 0.7, 0.6, 0.5, 0.3, 0, 0),
    ),
    PlanShape(
        name="vPipe, CPM-large, 8 stages",
        blocks=(8, 8, 8, 8, 8, 9, 9, 8),
        ratios=(0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0, 0),
    ),
)


def share_percent(
    numbers: Sequence[float], holds: Callable[[float, float], bool]
) -> float:
    """Part of all pairs of numbers, in their order, of which something holds."""
    pairs = list(combinations(numbers, 2))
    return 100 * sum(holds(*pair) for pair in pairs) / len(pairs)


def shape_of(name: str, plan: HybridPlan) -> PlanShape:
    """Shape of a plan."""
    blocks = [
        sum(chunk.end_layer - chunk.first_layer for chunk in stage.chunks)
        for stage in plan.stages
    ]
    return PlanShape(
        name=name,
        blocks=tuple(blocks),
        ratios=tuple(
            len(stage.recomputed_layers) / number
            for stage, number in zip(plan.stages, blocks, strict=True)
        ),
    )
