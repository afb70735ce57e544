"""Predictions beside measurements, as rows of results.

In: profiles, plans, rehearsals. Out: `RankRow` and `ProfileRow`. Called by `measuring`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.gpu.plans import busy_s
from benchmarks.gpu.results import Interval, ProfileRow, RankRow
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import ByteColumns
from plimsoll_planner.records.model_profile import NUMBER_BYTES, ModelProfile
from plimsoll_planner.records.plan import HybridPlan, PhasePeak, Stage
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_profiler.profiling.request import MICRO_BATCHES

BOUNDS = (Bound.LOWER, Bound.EXPECTED, Bound.UPPER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """All that is predicted of the ranks of one plan."""

    label: str
    plan: HybridPlan
    """From the traced profile."""
    by_measured: HybridPlan
    """The same plan, from the measured profile."""
    replay: Replay
    timed: ModelProfile
    """The measured profile."""

    def beside(self, found: Rehearsal) -> RankRow:
        """A rehearsed rank beside what was predicted of it."""
        seen, full, plan = found.observation, found.full_device, self.plan
        stage, again = plan.stage_of(seen.rank), self.by_measured.stage_of(seen.rank)
        lower_s, expected_s, upper_s = (
            busy_s(self.timed, plan, stage, bound) for bound in BOUNDS
        )
        return RankRow(
            plan=self.label,
            rank=seen.rank,
            micro_batch=plan.micro_batch,
            allocated=three(over_phases(stage, lambda peak: peak.allocated)),
            allocated_by_measured=three(
                over_phases(again, lambda peak: peak.allocated)
            ),
            device=three(over_phases(stage, lambda peak: peak.device)),
            replayed_bytes=self.replay.stages[seen.rank].peak_bytes,
            phases={
                one.phase: (one.allocated_bytes, one.reserved_bytes, one.device_bytes)
                for one in seen.peaks
            },
            busy_s=(lower_s, expected_s, upper_s),
            step_s=seen.step_s,
            other_bytes=found.other_bytes,
            full_phase="" if full is None else str(full.phase),
        )


def over_phases(
    stage: Stage, which: Callable[[PhasePeak], ByteInterval]
) -> ByteInterval:
    """Largest bytes of a stage over its phases, in each bound."""
    found = [which(peak) for peak in stage.peaks]
    return ByteInterval(
        lower_bytes=max(one.lower_bytes for one in found),
        expected_bytes=max(one.expected_bytes for one in found),
        upper_bytes=max(one.upper_bytes for one in found),
    )


def three(interval: ByteInterval) -> Interval:
    """Lower, expected, upper."""
    return interval.lower_bytes, interval.expected_bytes, interval.upper_bytes


def num_parameters(traced: ModelProfile) -> int:
    """Numbers of the model, shared ones once."""
    costs, size = traced.costs, NUMBER_BYTES[traced.recipe.precision]
    row_of = {kind: row for row, kind in enumerate(costs.kind)}
    rows = [row_of[kind] for kind in traced.layers.kind]
    total = sum(costs.parameter_bytes[row] for row in rows)
    total -= sum(tie.parameter_bytes * (len(tie.layers) - 1) for tie in traced.tied)
    return total // size


def compared(traced: ModelProfile, timed: ModelProfile) -> Iterator[ProfileRow]:
    """Bytes of the traced profile beside those of the measured one."""
    a, b = traced.costs, timed.costs
    pairs = {
        "boundary": (a.boundary, b.boundary),
        "saved": (a.kept.saved, b.kept.saved),
        "forward transient": (a.kept.forward_transient, b.kept.forward_transient),
        "backward transient": (a.kept.backward_transient, b.kept.backward_transient),
        "saved, recomputed": (a.recomputed.saved, b.recomputed.saved),
        "backward transient, recomputed": (
            a.recomputed.backward_transient,
            b.recomputed.backward_transient,
        ),
    }
    for quantity, (one, other) in pairs.items():
        yield compared_columns(quantity, traced, one, other)
    for quantity, left, right in (
        ("parameters", a.parameter_bytes, b.parameter_bytes),
        ("gradients", a.gradient_bytes, b.gradient_bytes),
        ("optimizer", a.optimizer_bytes, b.optimizer_bytes),
        (
            "optimizer transient",
            a.optimizer_transient_bytes,
            b.optimizer_transient_bytes,
        ),
    ):
        found = [
            (traced.kinds[kind], x, y)
            for kind, x, y in zip(a.kind, left, right, strict=True)
        ]
        yield worst(quantity, found)


def compared_columns(
    quantity: str, traced: ModelProfile, one: ByteColumns, other: ByteColumns
) -> ProfileRow:
    """A quantity that grows with the micro-batch, where it was probed."""
    found = [
        (
            f"{traced.kinds[kind]}, b={micro_batch}",
            one.at(row, micro_batch).expected_bytes,
            other.at(row, micro_batch).expected_bytes,
        )
        for row, kind in enumerate(traced.costs.kind)
        for micro_batch in MICRO_BATCHES
    ]
    return worst(quantity, found)


def worst(quantity: str, found: list[tuple[str, int, int]]) -> ProfileRow:
    """The pair that differs most in bytes; what is 0 in both differs by nothing."""
    where, left, right = max(found, key=lambda row: abs(row[1] - row[2]))
    return ProfileRow(
        quantity=quantity,
        largest_error=(left - right) / max(right, 1),
        where=where,
        num_compared=len(found),
        largest_error_bytes=left - right,
    )
