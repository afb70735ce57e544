"""Everything that probes have found of one kind of layer, in one variant.

In: results of probes, several rounds of them where seconds were measured. Out: a
`Kind`. Called by `assemble`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plimsoll_planner.records.model_profile import ProbeOutcome, Variant
from plimsoll_profiler.errors import TooFewProbesError
from plimsoll_profiler.probing.messages import Frame, LayerState, PassCosts, ProbeResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """All that is known of one kind of layer."""

    micro_batches: tuple[int, ...]
    state: LayerState
    kept: tuple[PassCosts, ...]
    recomputed: tuple[PassCosts, ...]
    """Empty where the layer cannot be recomputed."""
    offloaded: tuple[PassCosts, ...]
    recomputed_from_host: tuple[PassCosts, ...]
    """Empty where the layer cannot be recomputed."""
    is_short: bool
    """A probe was lost."""


def kind_of(
    frame: Frame, case: int, variant: Variant, results: Sequence[ProbeResult]
) -> Kind:
    """Kind of one case in a variant, from its probes."""
    mine = [r for r in results if (r.case, r.variant) == (case, variant)]
    own = sorted(quickest(mine), key=lambda r: r.micro_batch)
    done = [r for r in own if r.state is not None and r.kept is not None]
    states = [r.state for r in done if r.state is not None]
    if not states:
        reason = own[0].said if own else "no probe was asked for"
        raise TooFewProbesError(
            f"layer {frame.layers[frame.cases[case].layer]!r} does not fit the device "
            f"at the smallest micro-batch: {reason}; use a device with more memory, or "
            "split the layer"
        )
    return Kind(
        micro_batches=tuple(r.micro_batch for r in done),
        state=min(states, key=lambda state: state.optimizer_step_s or 0.0),
        kept=given(r.kept for r in done),
        recomputed=given(r.recomputed for r in done),
        offloaded=given(r.offloaded for r in done),
        recomputed_from_host=given(r.recomputed_from_host for r in done),
        is_short=any(r.outcome is not ProbeOutcome.COMPLETED for r in own),
    )


def given(passes: Iterable[PassCosts | None]) -> tuple[PassCosts, ...]:
    """Those that are there."""
    return tuple(one for one in passes if one is not None)


def quickest(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """One result for each micro-batch and outcome, with the least seconds.

    Bytes are alike in all rounds; seconds are not, and what else a machine does only
    ever adds to them.
    """
    found: dict[tuple[int, ProbeOutcome], ProbeResult] = {}
    for result in results:
        key = (result.micro_batch, result.outcome)
        first = found.setdefault(key, result)
        found[key] = replace(
            first,
            state=min(
                (r.state for r in (first, result) if r.state is not None),
                key=lambda state: state.optimizer_step_s or 0.0,
                default=None,
            ),
            kept=quicker(first.kept, result.kept),
            recomputed=quicker(first.recomputed, result.recomputed),
        )
    return list(found.values())


def quicker(one: PassCosts | None, other: PassCosts | None) -> PassCosts | None:
    """First of two rounds with the least seconds of both."""
    if one is None or other is None:
        return one
    return replace(
        one,
        forward_s=least(one.forward_s, other.forward_s),
        backward_s=least(one.backward_s, other.backward_s),
    )


def least(one_s: float | None, other_s: float | None) -> float | None:
    """The smaller one, None where nothing was timed."""
    return None if one_s is None or other_s is None else min(one_s, other_s)
