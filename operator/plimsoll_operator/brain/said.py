"""What a step of a decision looks at, and what it says of its condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Truth
from plimsoll_operator.brain.actions import Action
from plimsoll_operator.brain.seen import Attempt, Child, Seen

DRY_RUN: Final = "PlanOnly"
"""Reason of a plan that is there, and is not to be launched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a step looks at."""

    spec: TrainingPlanSpec
    seen: Seen
    generation: int
    """Of the spec."""
    now_s: float
    was_launched: bool = False
    """The ranks were said to run: from then on no edit changes what they train."""
    fewest_unfixed: int | None = None
    """Certified fewest GPUs without what the spec fixes, as it was said."""

    @property
    def latest(self) -> Attempt | None:
        """The newest attempt."""
        return self.seen.attempts[-1] if self.seen.attempts else None

    @property
    def counted(self) -> tuple[Attempt, ...]:
        """The attempts whose ends count: those of this generation."""
        attempts = self.seen.attempts
        return tuple(one for one in attempts if one.generation == self.generation)

    def is_late(self, child: Child) -> bool:
        """Tell whether a child that is pending has waited for longer than it may."""
        return self.now_s >= self.late_s(child)

    def late_s(self, child: Child) -> float:
        """Return when a child that is pending will have waited for too long."""
        return child.since_s + self.spec.run_policy.pending_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a step says of its condition."""

    truth: Truth
    reason: str
    message: str = ""
    actions: tuple[Action, ...] = ()
    is_final: bool = False
    """Nothing more is tried: the plan ends here."""
    is_success: bool = False
    """And that is what was asked for."""
    goes_on: bool = False
    """The next step is looked at, also where this one is not True."""
