"""What the predicted peak of a stage consists of, kind by kind.

In: a problem, a plan and one of its stages. Out: the bytes of every kind, which add up
to the expected device bytes of the stage's largest phase. Called by the report.

The formula (`rank_peak`) is a maximum of sums, and it is not written a second time:

    1. one byte more for the layers A..l at work: the least l with which the peak rises
       is the layer whose sum decides. None does where what is exchanged decides;
    2. that sum is raised far above the others, so that it decides whatever is missing;
    3. the bytes of a kind are what the peak loses without them.

What lies outside of tensors is the plan's device bytes less its allocated ones. Where a
replay has narrowed the peak, formula and replay differ by a little: it is told as
working memory, and where that is too small, as less of the kinds before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from plimsoll_planner.memory.chain_bytes import (
    LARGEST_BYTES,
    Bound,
    ChainBytes,
    Ints,
    chain_bytes,
)
from plimsoll_planner.memory.engine_holdings import held_by
from plimsoll_planner.memory.rank_peak import StageLoad, phase_peaks
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan, Phase, Stage
from plimsoll_planner.records.problem import Problem


class MemoryKind(StrEnum):
    """What bytes of a device are for, from what stays to what goes soonest."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    """Copies for their exchange, and those that wait for tied layers, included."""
    OPTIMIZER = "optimizer state"
    BUFFERS = "buffers"
    """State that is not trained."""
    INPUTS = "inputs and targets"
    """Of the whole step, on the first and the last stage."""
    SAVED = "saved activations"
    """Of all micro-batches in flight; outputs between the stage's layers included."""
    BOUNDARIES = "boundaries"
    """What is received from other stages, for all micro-batches in flight, and sent to
    them; logits that are kept."""
    WORKING = "working memory"
    """Of the layer that decides: what its pass or its optimizer step needs at once,
    what it saves itself included."""
    OUTSIDE = "outside of tensors"
    """Context, communicators, workspaces, and what the allocator loses."""


WORK = (
    *("forward_transient", "backward_transient", "backward_transient_at_end"),
    "optimizer_transient",
)
"""What a layer needs while it is at work, in `ChainBytes`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPart:
    """Bytes of one kind."""

    kind: MemoryKind
    num_bytes: int


def breakdown(
    problem: Problem, plan: HybridPlan, stage: Stage
) -> tuple[MemoryPart, ...]:
    """Return every kind with its bytes; nothing for a stage without a prediction.

    Args:
        problem: that the plan answers.
        plan: has the batch.
        stage: of the plan.
    """
    peak = stage.peak()
    if peak is None:
        return ()
    found = tensor_parts(problem, plan, stage, peak.phase)
    excess = sum(found.values()) - peak.allocated.expected_bytes
    for kind in reversed(found):
        taken = min(excess, found[kind])
        found[kind] -= taken
        excess -= taken
    found[MemoryKind.OUTSIDE] = (
        peak.device.expected_bytes - peak.allocated.expected_bytes
    )
    return tuple(MemoryPart(kind=kind, num_bytes=found[kind]) for kind in found)


def tensor_parts(
    problem: Problem, plan: HybridPlan, stage: Stage, told: Phase
) -> dict[MemoryKind, int]:
    """Return the parts of the formula's peak, in the order of the kinds."""
    load = StageLoad(
        first=stage.chunks[0].first_layer,
        end=stage.chunks[-1].end_layer,
        recomputed=frozenset(stage.recomputed_layers),
        in_flight=stage.in_flight_cap,
        num_micro_batches=plan.num_micro_batches,
        micro_batch=plan.micro_batch,
        data_degree=stage.data_degree,
    )
    chain = chain_bytes(problem.profile, Bound.EXPECTED, plan.micro_batch)
    held = held_by(problem.engine.holds)
    phase = phase_in_formula(told, stage, phase_peaks(chain, load, held))

    def peak_of(some: ChainBytes) -> int:
        return phase_peaks(some, load, held)[phase]

    layer = deciding_layer(chain, load, peak_of)
    whole = peak_of(raised(chain, load, layer))
    return {
        kind: whole - peak_of(raised(rest, load, layer))
        for kind, rest in chains_without(problem.profile, chain, load).items()
    }


def phase_in_formula(told: Phase, stage: Stage, formula: dict[Phase, int]) -> Phase:
    """Return the phase of the formula that a plan's phase stands for.

    A replay does not tell forward from backward, and has a phase for the gradient norm.
    """
    if told not in formula:
        return Phase.OPTIMIZER_STEP
    passes = {Phase.FORWARD, Phase.BACKWARD}
    if told in passes and not passes <= {peak.phase for peak in stage.peaks}:
        return max(passes, key=lambda phase: formula[phase])
    return told


def deciding_layer(
    chain: ChainBytes, load: StageLoad, peak_of: Callable[[ChainBytes], int]
) -> int | None:
    """Return the first layer whose work decides the peak; None where none does."""
    peak = peak_of(chain)
    place = bisect_left(
        range(load.first + 1, load.end + 1),
        True,
        key=lambda end: peak_of(with_more_work(chain, load.first, end, 1)) > peak,
    )
    layer = load.first + place
    return layer if layer < load.end else None


def raised(chain: ChainBytes, load: StageLoad, layer: int | None) -> ChainBytes:
    """Return bytes with which the sum of one layer decides, or that of the exchange.

    The exchange has what the last layer saves once more than that layer's own pass.
    """
    if layer is not None:
        return with_more_work(chain, layer, layer + 1, LARGEST_BYTES)
    saved = with_more(chain.saved, load.end - 1, load.end, LARGEST_BYTES)
    return replace(chain, saved=saved)


def chains_without(
    profile: ModelProfile, chain: ChainBytes, load: StageLoad
) -> dict[MemoryKind, ChainBytes]:
    """Return the bytes without those of each kind."""

    def without_state(field: str) -> ChainBytes:
        """Take one of the columns away that `chain_bytes` sums up."""
        column: dict[str, Any] = {field: (0,) * len(profile.costs.kind)}
        shared: dict[str, Any] = {field: 0}
        less = replace(
            profile,
            costs=replace(profile.costs, **column),
            tied=tuple(replace(tie, **shared) for tie in profile.tied),
        )
        return chain_bytes(less, Bound.EXPECTED, load.micro_batch)

    inside, at_ends = chain.boundary.copy(), chain.boundary.copy()
    at_ends[load.first : load.end - 1] = 0
    inside[: load.first] = inside[load.end - 1 :] = 0
    working = (*WORK, "held_input")
    no_work: dict[str, Any] = {field: getattr(chain, field) * 0 for field in working}
    return {
        MemoryKind.PARAMETERS: without_state("parameter_bytes"),
        MemoryKind.GRADIENTS: without_state("gradient_bytes"),
        MemoryKind.OPTIMIZER: without_state("optimizer_bytes"),
        MemoryKind.BUFFERS: without_state("buffer_bytes"),
        MemoryKind.INPUTS: replace(chain, inputs_per_sample=0, targets_per_sample=0),
        MemoryKind.SAVED: replace(chain, saved=chain.saved * 0, boundary=at_ends),
        MemoryKind.BOUNDARIES: replace(chain, boundary=inside),
        MemoryKind.WORKING: replace(chain, **no_work),
    }


def with_more_work(
    chain: ChainBytes, first: int, end: int, num_bytes: int
) -> ChainBytes:
    """Return bytes with more for the work of the layers from `first` up to `end`."""
    changed: dict[str, Any] = {
        field: with_more(getattr(chain, field), first, end, num_bytes) for field in WORK
    }
    return replace(chain, **changed)


def with_more(values: Ints, first: int, end: int, num_bytes: int) -> Ints:
    """Return an array over the layers, shape [L] or [c, L], with more in a run."""
    more = values.copy()
    more[..., first:end] += num_bytes
    return more
