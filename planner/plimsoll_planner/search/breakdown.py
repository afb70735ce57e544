"""Kinds of bytes that the predicted peak of a stage consists of.

In: a problem, a plan and one of its stages. Out: the bytes of every kind, which add up
to the expected device bytes of the stage's largest phase. Called by the report.

The bytes of tensors are those of the formula (`rank_peak`). Bytes outside of tensors
are the plan's device bytes less its allocated ones. When a replay has narrowed the
peak, formula and replay differ by a little: the difference counts as working memory,
and if that is too small, as less of the kinds before it.

Where operators are placed, stage k is device k of the placement, whose peak has its
parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.rank_peak import MemoryKind, Peak, StageLoad, phase_peaks
from plimsoll_planner.records.placement_plan import DevicePeak
from plimsoll_planner.records.plan import HybridPlan, Phase, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.techniques import choice_of

TENSORS = tuple(kind for kind in MemoryKind if kind is not MemoryKind.OUTSIDE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPart:
    """Bytes of one kind."""

    kind: MemoryKind
    num_bytes: int


def breakdown(
    problem: Problem, plan: HybridPlan, stage: Stage
) -> tuple[MemoryPart, ...]:
    """Every kind with its bytes; nothing for a stage without a prediction."""
    peak = stage.peak()
    if peak is None:
        return ()
    found = tensor_parts(problem, plan, stage, peak.phase)
    excess = found.total() - peak.allocated.expected_bytes
    for kind in reversed(TENSORS):
        taken = min(excess, found[kind])
        found[kind] -= taken
        excess -= taken
    found[MemoryKind.OUTSIDE] = (
        peak.device.expected_bytes - peak.allocated.expected_bytes
    )
    return tuple(MemoryPart(kind=kind, num_bytes=found[kind]) for kind in MemoryKind)


def tensor_parts(
    problem: Problem, plan: HybridPlan, stage: Stage, reported: Phase
) -> Peak:
    """The formula's peak of the phase that the plan reports."""
    if plan.placement is not None:
        return placed_parts(plan.placement.peaks[plan.stages.index(stage)])
    load = StageLoad(
        first=stage.chunks[0].first_layer,
        end=stage.chunks[-1].end_layer,
        recomputed=frozenset(stage.not_kept),
        flow=Flow(
            in_flight=stage.in_flight_cap,
            num_micro_batches=plan.num_micro_batches,
            micro_batch=plan.micro_batch,
            data_degree=stage.data_degree,
        ),
    )
    choice = choice_of(stage, problem)
    asked = Bound.EXPECTED, plan.micro_batch, stage.variant, choice.other_way
    chain = choice.bytes(chain_bytes(problem.profile, *asked))
    peaks = phase_peaks(chain, load, holding_factors(problem.engine.holds))
    return peaks[phase_in_formula(reported, stage, peaks)]


def placed_parts(peak: DevicePeak) -> Peak:
    """The exact peak of a device on which operators are placed."""
    return Peak(
        {
            MemoryKind.PARAMETERS: peak.parameter_bytes,
            MemoryKind.GRADIENTS: peak.gradient_bytes,
            MemoryKind.OPTIMIZER: peak.optimizer_bytes,
            MemoryKind.VALUES: peak.value_bytes,
            MemoryKind.RECEIVED: peak.received_bytes,
            MemoryKind.WORKING: peak.transient_bytes,
        }
    )


def phase_in_formula(
    reported: Phase, stage: Stage, formula: dict[Phase, Peak]
) -> Phase:
    """Phase of the formula that a plan's phase stands for.

    A replay does not tell forward from backward, and has a phase for the gradient norm.
    """
    if reported not in formula:
        return Phase.OPTIMIZER_STEP
    passes = {Phase.FORWARD, Phase.BACKWARD}
    if reported in passes and not passes <= {peak.phase for peak in stage.peaks}:
        return max(passes, key=lambda phase: formula[phase].total())
    return reported
