"""Techniques that hold less: a file for each, with everything that holds for it alone.

technique        what a technique states of itself
divided_state    optimizer state divided over the replicas
sharded_layers   gradients and parameters divided as well
sharding         which of these a stage may choose
state_on_host    optimizer state in the memory of the machine
offloaded_activations    activations there, between their passes

A new technique has a file here whose `TECHNIQUE` is a `Technique`. Certificates then no
longer list it as left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import product

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.registry import registered
from plimsoll_planner.techniques.sharding import left_out
from plimsoll_planner.techniques.technique import Chains, Choice, StageChoice, Technique

TECHNIQUES: tuple[Technique, ...] = tuple(
    one
    for one in registered(__name__, __path__, "TECHNIQUE")
    if isinstance(one, Technique)
)
"""Techniques that are searched, in the order in which they rewrite a layer."""
LAYERS = "sharded gradients and parameters"
"""Levels of `sharding`."""
CAPS = "in-flight caps"
"""They belong to a schedule (`PipelineSchedule.caps`)."""
LARGEST_NUMBER_BYTES = 4
"""Of a parameter; `num_numbers` counts those that train."""
LONGEST_NAME = 256
"""Of a row of a certificate."""
TENSOR = "tensor parallelism"
"""It multiplies the tuples (`search.variants`)."""
PUBLISHED = (
    *("sharded optimizer", LAYERS),
    *("optimizer on the host", CAPS, "offloaded activations", TENSOR),
)
"""Techniques that planners know. A certificate names those it was searched without."""


def stage_choices(
    strategy: Strategy, problem: Problem, chains: Chains, *, has_host: bool = True
) -> tuple[StageChoice, ...]:
    """Every choice of a stage: one of each technique; the same for all P.

    `chains` are bytes of the layers in all three bounds; `has_host` is whether the
    memory of the machine is known. If not, choices that use it are there only where a
    technique has no others, and then fit nowhere.
    """
    alike = strategy.without_stages
    parts: list[list[Choice]] = []
    for technique in TECHNIQUES:
        found = list(technique.choices(alike, problem, chains))
        on_device = [one for one in found if has_host or not one.uses_host]
        parts.append(on_device or found)
    return tuple(map(StageChoice, product(*parts)))


def choice_of(stage: Stage, problem: Problem) -> StageChoice:
    """Choices and cap that a stage of a plan states."""
    parts = tuple(one.choice_of(stage, problem) for one in TECHNIQUES)
    return StageChoice(parts, stage.in_flight_cap)


def falls_with_replicas(problem: Problem) -> bool:
    """Whether a rank may hold less if there are more replicas."""
    return any(technique.falls_with_replicas(problem) for technique in TECHNIQUES)


def absent(problem: Problem) -> Iterator[str]:
    """Yield published techniques that a problem is not searched with, and why."""
    reasons = {one.name: one.unavailable(problem) for one in TECHNIQUES}
    if problem.has_in_flight_caps:
        reasons[CAPS] = ""
    elif not problem.engine.can.in_flight_caps:
        reasons[CAPS] = f"{problem.engine.engine} cannot run them"
    reasons[LAYERS] = unsharded_reason(problem)
    if problem.engine.can.tensor_parallel:
        reasons[TENSOR] = unsplit_reason(problem)
    for name in PUBLISHED:
        reason = reasons.get(name)
        if reason != "":
            yield with_reason(name, reason)
    if reasons[LAYERS] == "" and has_frozen(problem.profile):
        yield with_reason("dividing frozen weights", "each replica holds all of them")
    if reasons.get(TENSOR) == "":
        for one in problem.profile.not_split:
            if problem.allows_degree(one.tensor_degree):
                yield with_reason(f"tensor degree {one.tensor_degree}", one.why)


def has_frozen(profile: ModelProfile) -> bool:
    """Whether some layer surely has parameters that do not train."""
    columns = profile.costs.divided
    return columns is not None and any(
        whole > LARGEST_NUMBER_BYTES * num_numbers
        for whole, num_numbers in zip(
            profile.costs.parameter_bytes, columns.num_numbers, strict=True
        )
    )


def with_reason(name: str, reason: str | None) -> str:
    """A technique and why it is left out, as long as a name may be."""
    if not reason:
        return name
    most = LONGEST_NAME - len(name) - len(" ()")
    return f"{name} ({textwrap.shorten(reason, most, placeholder='...')})"


def unsharded_reason(problem: Problem) -> str:
    """Why layers are sharded at no level above the optimizer; empty if they are."""
    levels = Sharding.PARAMETERS, Sharding.GRADIENTS
    reasons = [left_out(problem, level) for level in levels]
    return reasons[0] if all(reasons) else ""


def unsplit_reason(problem: Problem) -> str:
    """Why no layers are split by an engine that can; empty if some are."""
    if max(problem.tensor_degrees) > 1:
        return ""
    if all(offer.devices_per_node == 1 for offer in problem.offers):
        return "nodes have one device each"
    if max(problem.possible_tensor_degrees) == 1:
        least = problem.profile.not_split[:1]
        return least[0].why if least else "the layers were not profiled for it"
    if problem.override.tensor_degree == 1:
        return "`override.tensor_degree` is 1"
    return "the limits leave it out"
