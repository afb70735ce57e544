"""The input of a step of a decision, and its result for a condition."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

from plimsoll_operator.api.spec import PlanOverride, TrainingPlanSpec
from plimsoll_operator.api.status import TRUE, Truth
from plimsoll_operator.rules.actions import Action
from plimsoll_operator.rules.observed_state import Attempt, ObservedState, ObservedTask
from plimsoll_planner.records.problem import BatchStatistics


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInput:
    """Input of a step."""

    spec: TrainingPlanSpec
    state: ObservedState
    generation: int
    """Of the spec."""
    now_s: float
    was_launched: bool = False
    """The ranks were reported to run: from then on no edit changes what they train."""
    fewest_unfixed: int | None = None
    """Certified fewest GPUs without what the spec fixes, as it was reported."""

    @property
    def latest(self) -> Attempt | None:
        """The newest attempt."""
        return self.state.attempts[-1] if self.state.attempts else None

    @property
    def counted(self) -> tuple[Attempt, ...]:
        """The attempts whose ends count: those of this generation."""
        attempts = self.state.attempts
        return tuple(one for one in attempts if one.generation == self.generation)

    @property
    def is_fixed_by_hand(self) -> bool:
        """Whether a person fixed more of the plan than it needs.

        While no profile is seen, a micro-batch counts as needed, because giving up is
        final and going on looks for the profile first.
        """
        profile = self.state.profile
        is_needed = profile is None or profile.has_batch_statistics
        return is_fixed_by_hand(self.spec, is_needed)

    def is_late(self, task: ObservedTask) -> bool:
        """Whether a task that is pending has waited for longer than it may."""
        return self.now_s >= self.late_s(task)

    def late_s(self, task: ObservedTask) -> float:
        """Time at which a pending task will have waited for too long."""
        return task.since_s + self.spec.run_policy.pending_seconds


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step for its condition."""

    truth: Truth
    reason: str
    message: str = ""
    _: KW_ONLY
    actions: tuple[Action, ...] = ()
    is_final: bool = False
    """Nothing more is tried: the plan ends here."""
    is_success: bool = False
    """And that is what was asked for."""
    goes_on: bool = False
    """The next step is taken, also if this one is not True."""

    @property
    def may_go_on(self) -> bool:
        """Whether the next step is taken."""
        return self.truth is TRUE or self.goes_on

    def after(self, *actions: Action) -> Self:
        """The result with actions before its own."""
        return replace(self, actions=(*actions, *self.actions))


def is_fixed_by_hand(spec: TrainingPlanSpec, has_batch_statistics: bool) -> bool:
    """Whether a person fixed more of a plan than it needs.

    With batch statistics, layers such as BatchNorm need a micro-batch.
    """
    fixed, chosen_by = spec.override, spec.training.batch_statistics
    if has_batch_statistics and chosen_by is BatchStatistics.FIXED_MICRO_BATCH:
        untyped: Any = fixed  # its fields are rows, of which no type checker knows
        fixed = replace(untyped, micro_batch=None)
    return fixed != PlanOverride()


def joined(*messages: str) -> str:
    """Messages in one line, without the empty ones."""
    return "; ".join(filter(None, messages))
