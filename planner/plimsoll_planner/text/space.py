"""What a certificate searched, in words.

In: its space. Out: a line of text. Called by whoever shows a certificate.
"""

from __future__ import annotations

from plimsoll_planner.records.space import Space
from plimsoll_planner.text.counts import counted, device_noun, gpus_text


def space_text(space: Space) -> str:
    """Within what the certificate holds."""
    limits = space.limits
    parts = [
        f"1 to {gpus_text(limits.max_gpus, space.offers)}",
        counted(len(space.offers), "offer"),
        "schedules " + ", ".join(limits.schedules),
    ]
    for name, degrees in (
        ("devices" if space.places_operators else "stages", limits.pipeline_degrees),
        ("replicas", limits.data_degrees),
        ("tensor degree", limits.tensor_degrees),
    ):
        if degrees and (degrees != (1,) or name != "tensor degree"):
            parts.append(f"{name} {', '.join(map(str, degrees))}")
    if space.micro_batches:
        listed = ", ".join(map(str, space.micro_batches))
        parts.append(f"micro-batches of {listed}, which were profiled")
    elif space.least_micro_batch > 1:
        parts.append(f"micro-batch from {space.least_micro_batch}, the least profiled")
    if limits.max_micro_batch:
        parts.append(f"micro-batch up to {limits.max_micro_batch}")
    if limits.headroom:
        parts.append(f"{limits.headroom:.0%} of the memory kept free")
    if space.override.is_given:
        why = (
            "fixed by hand" if space.is_fixed_by_hand else "given for batch statistics"
        )
        parts.append(f"{why}: {override_text(space)}")
    return "; ".join(parts) + "; without " + ", ".join(space.without)


def override_text(space: Space) -> str:
    """Choices that a person fixed."""
    override = space.override
    found = {
        f"{device_noun(space.offers)}s": override.num_gpus,
        "stages": override.num_stages,
        "replicas": override.data_degree,
        "tensor degree": override.tensor_degree,
        "micro-batch": override.micro_batch,
        "cuts": ",".join(map(str, override.cuts)) or None,
        "in flight": ",".join(map(str, override.in_flight_caps)) or None,
        "sharding": override.sharding,
        "optimizer on the": override.optimizer_home,
        "sequences": override.sequences,
    }
    parts = [f"{name} {value}" for name, value in found.items() if value is not None]
    sets = override.recomputed_layers, override.offloaded_layers
    for layers, name in zip(sets, ("recomputed", "offloaded"), strict=True):
        parts += [] if layers is None else [counted(len(layers), f"{name} layer")]
    return ", ".join(parts)
