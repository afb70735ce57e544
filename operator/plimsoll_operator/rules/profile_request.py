"""Which profile a spec asks for: found by a key that is computed from the spec alone.

In: a spec, and where and on which devices the code will run. Out: a `ProfileRequest`
with its key. Called where a plan is observed. The code itself is known by its
fingerprint, which is computed where it runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.api.spec import ProfileSource, TrainingPlanSpec
from plimsoll_planner.engines import (
    GRAPH_MICRO_BATCHES,
    TENSOR_DEGREES,
    places_operators,
)
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRequest:
    """A workload to be profiled, and how."""

    entrypoint: str
    arguments: str
    """A JSON object, its names in order."""
    device_kind: DeviceKind
    source: Source
    place: str
    """Origin of the code: a folder, or image, code volumes and namespace."""
    tensor_degrees: tuple[int, ...]
    """By which layers that can be split are probed."""
    graph_micro_batches: tuple[int, ...] = ()
    """Of which operators are measured as well."""

    @property
    def key(self) -> str:
        """The request key."""
        parts = (
            *(self.entrypoint, self.arguments),
            *(self.device_kind, self.source, self.place, self.tensor_degrees),
            # Others keep the keys that they had before there were graphs.
            *([self.graph_micro_batches] if self.graph_micro_batches else []),
        )
        text = json.dumps(parts, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def profile_request_of(
    spec: TrainingPlanSpec, offers: Sequence[Offer], place: str, *, is_here: bool
) -> ProfileRequest:
    """The profile that a spec asks for; if none of the devices `is_here`, a trace."""
    given = spec.profile.source
    measures = (
        is_here if given is ProfileSource.AUTO else given is ProfileSource.MEASURED
    )
    return ProfileRequest(
        entrypoint=spec.workload.entrypoint,
        arguments=spec.workload.args,
        device_kind=offers[0].device_kind,
        source=Source.MEASURED if measures else Source.TRACED,
        place=place,
        tensor_degrees=tensor_degrees_of(spec, offers),
        graph_micro_batches=graph_micro_batches_of(spec),
    )


def tensor_degrees_of(
    spec: TrainingPlanSpec, offers: Sequence[Offer]
) -> tuple[int, ...]:
    """Tensor degrees that a plan may have, and the one that is fixed.

    A group stays in a node, so none is above the devices of the largest. An engine that
    places operators splits no layer.
    """
    if places_operators(spec.search.engine):
        return (1,)
    per_node = max(offer.devices_per_node for offer in offers)
    most = min(per_node, spec.search.max_gpus)
    usual = {degree for degree in TENSOR_DEGREES if degree <= most}
    return tuple(sorted(usual | {spec.override.tensor or 1}))


def graph_micro_batches_of(spec: TrainingPlanSpec) -> tuple[int, ...]:
    """Micro-batches that a placement may have, and the one that is fixed.

    None where the engine runs layers. All micro-batches of a step are alike, so they
    divide the global batch.
    """
    if not places_operators(spec.search.engine):
        return ()
    batch = spec.training.global_batch_size
    usual = {size for size in GRAPH_MICRO_BATCHES if batch % size == 0}
    return tuple(sorted(usual | {spec.override.micro_batch or 1}))
