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
from plimsoll_planner.engines import TENSOR_DEGREES
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

    @property
    def key(self) -> str:
        """The request key."""
        parts = (
            *(self.entrypoint, self.arguments),
            *(self.device_kind, self.source, self.place, self.tensor_degrees),
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
    )


def tensor_degrees_of(
    spec: TrainingPlanSpec, offers: Sequence[Offer]
) -> tuple[int, ...]:
    """Tensor degrees that a plan may have, and the one that is fixed.

    A group stays in a node, so none is above the devices of the largest.
    """
    per_node = max(offer.devices_per_node for offer in offers)
    most = min(per_node, spec.search.max_gpus)
    usual = {degree for degree in TENSOR_DEGREES if degree <= most}
    return tuple(sorted(usual | {spec.override.tensor or 1}))
