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

import numpy as np

from plimsoll_planner.memory.chain_bytes import (
    LARGEST_BYTES,
    Bound,
    ChainBytes,
    chain_bytes,
)
from plimsoll_planner.memory.engine_holdings import held_by
from plimsoll_planner.memory.rank_peak import StageLoad, phase_peaks
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan, Phase, PhasePeak, Stage
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
    """What is received from and sent to other stages, and logits that are kept."""
    WORKING = "working memory"
    """Of the layer that decides: what its pass or its optimizer step needs at once,
    what it saves itself included."""
    OUTSIDE = "outside of tensors"
    """Context, communicators, workspaces, and what the allocator loses."""


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
    found = tensor_parts(problem, plan, stage, peak)
    excess = sum(found.values()) - peak.allocated.expected_bytes
    for kind in reversed(found):
        taken = min(excess, found[kind])
        found[kind] -= taken
        excess -= taken
    found[MemoryKind.OUTSIDE] = (
        peak.device.expected_bytes - peak.allocated.expected_bytes
    )
    return tuple(MemoryPart(kind=kind, num_bytes=found[kind]) for kind in MemoryKind)


def tensor_parts(
    problem: Problem, plan: HybridPlan, stage: Stage, peak: PhasePeak
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
    held = held_by(problem.engine.holds)

    def chain_of(profile: ModelProfile) -> ChainBytes:
        return chain_bytes(profile, Bound.EXPECTED, plan.micro_batch)

    profile = problem.profile
    chain = chain_of(profile)
    phase = phase_in_formula(peak.phase, stage, phase_peaks(chain, load, held))

    def peak_of(some: ChainBytes) -> int:
        return phase_peaks(some, load, held)[phase]

    decides = deciding_layer(chain, load, peak_of)

    def raised_peak(some: ChainBytes) -> int:
        if decides is None:
            last = (load.end - 1, load.end)
            return peak_of(replace(some, saved=more(some.saved, *last, LARGEST_BYTES)))
        return peak_of(with_work(some, decides, decides + 1, LARGEST_BYTES))

    inner = slice(load.first, load.end - 1)
    ends = [at for at in (load.first - 1, load.end - 1) if at >= 0]
    without = {
        MemoryKind.PARAMETERS: chain_of(without_state(profile, "parameter_bytes")),
        MemoryKind.GRADIENTS: chain_of(without_state(profile, "gradient_bytes")),
        MemoryKind.OPTIMIZER: chain_of(without_state(profile, "optimizer_bytes")),
        MemoryKind.BUFFERS: chain_of(without_state(profile, "buffer_bytes")),
        MemoryKind.INPUTS: replace(chain, inputs_per_sample=0, targets_per_sample=0),
        MemoryKind.SAVED: replace(
            chain,
            saved=np.zeros_like(chain.saved),
            boundary=emptied(chain.boundary, inner),
        ),
        MemoryKind.BOUNDARIES: replace(chain, boundary=emptied(chain.boundary, ends)),
        MemoryKind.WORKING: without_work(chain),
    }
    total = raised_peak(chain)
    return {kind: total - raised_peak(some) for kind, some in without.items()}
