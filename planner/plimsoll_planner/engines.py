"""The engines that Plimsoll plans for, and what is known about each.

In: a name. Out: `EngineTraits`. Called by the CLI and the operator, which put the
record into the problem; the search reads the record only.
"""

from __future__ import annotations

import difflib

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.engine import (
    EngineCapabilities,
    EngineHoldings,
    EngineTraits,
    Granularity,
    ReceiveBuffers,
    Schedule,
    Sharding,
)

PLIMSOLL = EngineTraits(
    engine="plimsoll",
    version="torch 2.15",
    holds=EngineHoldings(
        receive_buffers=ReceiveBuffers.JUST_IN_TIME,
        stage_outputs_kept=False,
        # The loss is part of the last layer, so no logits outlive it.
        logits_kept=False,
        sends_waited_at_step_end=False,
        gradient_bucket_copies=0.0,
    ),
    can=EngineCapabilities(
        schedules=(Schedule.ONE_F_ONE_B,),
        fewer_micro_batches_than_stages=False,
        in_flight_caps=False,
        uneven_stages=True,
        recompute=Granularity.LAYER,
        shardings=(Sharding.NONE,),
        shardings_with_pipeline=(Sharding.NONE,),
        tensor_parallel=False,
    ),
    verified=True,
    num_verified_plans=1,
)
"""Plimsoll's own trainer on torch 2.15's Schedule1F1B."""

ENGINES = {engine.engine: engine for engine in (PLIMSOLL,)}


def engine_named(name: str) -> EngineTraits:
    """Return the traits of an engine.

    Raises:
        CannotPlanError: there is none of that name; lists those there are.
    """
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        advice = (
            f"did you mean {close[0]}?" if close else f"known: {', '.join(ENGINES)}"
        )
        raise CannotPlanError(f"no engine {name}; {advice}")
    return ENGINES[name]
