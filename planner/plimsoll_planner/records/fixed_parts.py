"""Whether the parts of a plan that a person fixed can be had.

In: fixed parts, and the profile and the engine that decide on them. Out: nothing, or
`InvalidFieldError` with the field that cannot be obeyed. Called when a `Problem` is
made.
"""

from __future__ import annotations

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.engine import EngineTraits, OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import ModelProfile, Sequences

NOBODY_SPLITS_SEQUENCES = (
    "no layer has a `parallelize_sequence`; docs/workload.md has one to copy"
)
"""Why sequences of split layers are whole, if nothing else is known of them."""


def refuse(field: str, rule: str, value: object) -> InvalidFieldError:
    """Error on a field of the override, to raise."""
    return InvalidFieldError(f"Problem.override.{field}", value, rule)


def check_layers(
    profile: ModelProfile,
    cuts: tuple[int, ...],
    recomputed: tuple[int, ...],
    offloaded: tuple[int, ...],
    num_stages: int | None,
) -> None:
    """Layers that are named exist, and recompute if they are to."""
    names, kinds = profile.layers.name, profile.layers.kind
    if cuts and cuts[-1] >= len(names):
        rule = f"layers below {len(names)}, the number of layers"
        raise refuse("cuts", rule, cuts[-1])
    rows = zip(profile.costs.kind, profile.costs.recomputable, strict=True)
    cannot = {kind for kind, is_recomputable in rows if not is_recomputable}
    named = {"recomputed_layers": recomputed, "offloaded_layers": offloaded}
    for field, layers in named.items():
        if layers and max(layers) >= len(names):
            rule = f"layers below {len(names)}, the number of layers"
            raise refuse(field, rule, max(layers))
    for layer in recomputed:
        if kinds[layer] in cannot:
            rule = f"layers that can recompute, which {names[layer]} cannot"
            raise refuse("recomputed_layers", rule, layer)
    if (num_stages or 1) > len(names):
        rule = f"at most {len(names)}, one stage for each layer"
        raise refuse("num_stages", rule, num_stages)


def check_degree(field: str, degree: int | None, allowed: tuple[int, ...]) -> None:
    """The limits leave room for a degree; an empty list allows all."""
    if degree and allowed and degree not in allowed:
        rule = f"one that the limits allow: {', '.join(map(str, allowed))}"
        raise refuse(field, rule, degree)


def check_tensor_degree(
    engine: EngineTraits,
    profile: ModelProfile,
    degree: int | None,
    sequences: Sequences | None,
) -> None:
    """The engine splits layers and sequences, and they were profiled so."""
    check_sequences(engine, profile, degree, sequences)
    if degree is None or degree == 1:
        return
    if not engine.can.tensor_parallel:
        rule = f"1, as {engine.engine} has no tensor parallelism"
        raise refuse("tensor_degree", rule, degree)
    if degree not in profile.tensor_degrees:
        known = ", ".join(map(str, profile.tensor_degrees))
        reason = profile.why_not_split(degree)
        reason = reason or f"profile again, with {degree} among the tensor degrees"
        rule = f"one that the layers were profiled for: {known} ({reason})"
        raise refuse("tensor_degree", rule, degree)


def check_sequences(
    engine: EngineTraits,
    profile: ModelProfile,
    degree: int | None,
    sequences: Sequences | None,
) -> None:
    """Sequences can be split, under the tensor degree that is fixed."""
    if sequences is not Sequences.SPLIT:
        return
    if not engine.can.tensor_parallel:
        rule = f"whole, as {engine.engine} has no tensor parallelism"
        raise refuse("sequences", rule, str(sequences))
    degrees = profile.tensor_degrees_of(sequences)
    if degree in degrees or (degree is None and degrees):
        return
    known = ", ".join(map(str, degrees))
    where = f"for tensor degree {known} alone" if known else "for no tensor degree"
    why = "".join(f"; {one}" for one in whys_not_split(profile, degree))
    rule = f"whole, as layers were profiled with split sequences {where}{why}"
    raise refuse("sequences", rule, str(sequences))


def whys_not_split(profile: ModelProfile, degree: int | None) -> list[str]:
    """Why sequences are whole under a tensor degree, or under any (None), each once.

    Why layers are not split by one degree is no reason where another one splits them.
    """
    asked = [one for one in profile.not_split if degree in {None, one.tensor_degree}]
    of_sequences = [one for one in asked if one.sequence_parallel]
    split = {one for one in profile.tensor_degrees if one > 1 and degree in {None, one}}
    if split and not of_sequences:
        return [NOBODY_SPLITS_SEQUENCES]
    return list(dict.fromkeys(one.why for one in of_sequences or asked))


def check_techniques(
    engine: EngineTraits, home: OptimizerHome | None, sharding: Sharding | None
) -> None:
    """The engine has what is fixed of techniques."""
    homes = engine.can.optimizer_homes
    if home not in {None, *homes}:
        rule = f"what {engine.engine} runs: {', '.join(homes)}"
        raise refuse("optimizer_home", rule, str(home))
    runs = [one for one in Sharding if one in engine.can.shardings]
    if sharding is not None and sharding not in runs:
        rule = f"what {engine.engine} runs: {', '.join(runs)}"
        raise refuse("sharding", rule, str(sharding))
