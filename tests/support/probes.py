"""Messages of a prober, built by hand."""

from __future__ import annotations

from typing import Any

from plimsoll_planner.records.model_profile import ProbeOutcome
from plimsoll_profiler.probing.messages import LayerState, PassCosts, ProbeResult

STATE = LayerState(
    parameter_bytes=8,
    gradient_bytes=8,
    buffer_bytes=0,
    optimizer_bytes=16,
    optimizer_transient_bytes=0,
    optimizer_traffic_bytes=1.0,
    optimizer_step_s=1.0,
)


def a_result(forward_s: float, backward_s: float, **fields: Any) -> ProbeResult:
    """Build a probe that completed, with its seconds."""
    passes = PassCosts(
        boundary_bytes=8,
        saved_bytes=0,
        keeps_input=True,
        keeps_output=False,
        forward_transient_bytes=8,
        backward_transient_bytes=16,
        backward_transient_at_end_bytes=16,
        held_input_bytes=0,
        forward_flop=1.0,
        forward_traffic_bytes=1.0,
        backward_flop=1.0,
        backward_traffic_bytes=1.0,
        forward_s=forward_s,
        backward_s=backward_s,
    )
    defaults: dict[str, Any] = {
        "case": 0,
        "micro_batch": 1,
        "outcome": ProbeOutcome.COMPLETED,
        "state": STATE,
        "kept": passes,
    }
    return ProbeResult(**(defaults | fields))
