"""The engines that Plimsoll plans for, and what is known about each.

In: a name, and the version of torch that the profile was made with. Out:
`EngineTraits`. Called by the CLI and the operator, which put the record into the
problem; the search reads the record only.

Plimsoll's own trainer runs torch's Schedule1F1B, which holds more in older releases:

    torch           receive buffers               output of a stage
    2.11 to 2.14    all, from the first step on   held until its backward is over
    2.15            one, just before each receive held until it is sent

Read in the source of 2.11.0, 2.12.1, 2.13.0, 2.14.1 and 2.15.0; docs/decisions/0018
says what was measured on which.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.engine import (
    EngineCapabilities,
    EngineHoldings,
    EngineTraits,
    Granularity,
    OptimizerHome,
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
        in_flight_caps=True,
        uneven_stages=True,
        recompute=Granularity.LAYER,
        shardings=tuple(Sharding),
        shardings_with_pipeline=tuple(Sharding),
        tensor_parallel=True,
        optimizer_homes=tuple(OptimizerHome),
        offload=True,
    ),
    verified=True,
    num_verified_plans=1,
)
"""Plimsoll's own trainer on torch 2.15's Schedule1F1B."""

GRAPH = replace(
    PLIMSOLL,
    engine="graph",
    can=EngineCapabilities(
        schedules=(Schedule.PLACED,),
        fewer_micro_batches_than_stages=True,
        in_flight_caps=False,
        uneven_stages=True,
        recompute=Granularity.JOB,
        shardings=(Sharding.NONE,),
        shardings_with_pipeline=(Sharding.NONE,),
        tensor_parallel=False,
    ),
)
"""The same trainer where it places operators one by one (`plimsoll_trainer.placed`)."""

TENSOR_DEGREES = (1, 2, 4, 8)
"""By which layers that can be split are profiled, unless something else is asked for:
up to the devices of most nodes, which a tensor group does not leave."""

GRAPH_MICRO_BATCHES = (1, 2, 4, 8)
"""Samples of the micro-batches whose operators are measured for an engine that places
them, unless something else is asked for. A graph has its micro-batch in it, so no plan
has another."""

PLIMSOLL_ON_TORCH_2_11 = replace(
    PLIMSOLL,
    version="torch 2.11",
    holds=replace(
        PLIMSOLL.holds,
        receive_buffers=ReceiveBuffers.ALL_MICRO_BATCHES,
        stage_outputs_kept=True,
    ),
)
"""The same on torch 2.11 to 2.14."""

Release = tuple[int, int]
"""Major and minor number of a release of torch."""

BY_TORCH: dict[Release, EngineTraits] = {
    (2, 11): PLIMSOLL_ON_TORCH_2_11,
    (2, 15): PLIMSOLL,
}
"""Plimsoll's trainer, by the first release of torch that it holds as much on."""
OLDEST_TORCH: Release = min(BY_TORCH)
NEWEST_TORCH: Release = max(BY_TORCH)
RELEASE = re.compile(
    r"(\d+)\.(\d+)(?:\.(?P<patch>\d+))?(?:\.\d+)*(?P<early>(a|b|rc|\.dev)\d+)?"
)

ENGINES = {engine.engine: engine for engine in (PLIMSOLL, GRAPH)}


def release_of(version: str) -> Release | None:
    """Major and minor of a version such as 2.15.0+cu132, None if it has none."""
    found = RELEASE.match(version)
    return found and (int(found[1]), int(found[2]))


def engine_named(name: str, torch_version: str) -> EngineTraits:
    """Traits of an engine on a release of torch.

    A release that nobody has looked at yet, and one that is not out yet, count as what
    is known of the newest before it, unverified; one before the oldest as the oldest.

    Args:
        name: of the engine.
        torch_version: as the profile states it, such as 2.15.0+cu132.

    Raises:
        CannotPlanError: there is no engine of that name, or not for that torch.
    """
    require_engine(name)
    found = RELEASE.match(torch_version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if found is None or release < OLDEST_TORCH:
        raise CannotPlanError(
            f"the profile was made with torch {torch_version}, and {name} trains with "
            f"{dotted(OLDEST_TORCH)} or newer: profile again with such a torch"
        )
    before = [first for first in BY_TORCH if first < release] or [OLDEST_TORCH]
    is_out = not found["early"] or int(found["patch"] or 0) > 0  # as 2.15.1rc1
    traits = BY_TORCH[release if is_out and release in BY_TORCH else max(before)]
    is_known = release <= NEWEST_TORCH and not found["early"]
    version = f"torch {dotted(release)}{found['early'] or ''}"
    return replace(
        traits,
        engine=name,
        can=ENGINES[name].can,
        version=version,
        verified=is_known,
        num_verified_plans=traits.num_verified_plans if is_known else 0,
    )


def places_operators(name: str) -> bool:
    """Whether an engine needs graphs; False for one that is not known."""
    return name in ENGINES and Schedule.PLACED in ENGINES[name].can.schedules


def require_engine(name: str) -> None:
    """Refuse an engine that is not known.

    Raises:
        CannotPlanError: there is none of that name; lists those there are.
    """
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        advice = (
            f"did you mean {close[0]}?" if close else f"known: {', '.join(ENGINES)}"
        )
        raise CannotPlanError(f"no engine {name}; {advice}")


def dotted(release: Release) -> str:
    """A release as people write it."""
    return ".".join(map(str, release))
