"""Which profile a spec asks for: found by a key that is computed from the spec alone.

In: a spec, and where and on what the code will run. Out: a `ProfileRequest` with its
key. Called where a plan is observed. The code itself is known by its fingerprint, which
is computed where it runs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from plimsoll_operator.api.spec import ProfileSource, TrainingPlanSpec
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind


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

    @property
    def key(self) -> str:
        """The request key."""
        parts = (
            *(self.entrypoint, self.arguments),
            *(self.device_kind, self.source, self.place),
        )
        text = json.dumps(parts, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def profile_request_of(
    spec: TrainingPlanSpec, kind: DeviceKind, place: str, *, is_here: bool
) -> ProfileRequest:
    """The profile that a spec asks for; if no device of the kind `is_here`, a trace."""
    given = spec.profile.source
    measures = (
        is_here if given is ProfileSource.AUTO else given is ProfileSource.MEASURED
    )
    return ProfileRequest(
        entrypoint=spec.workload.entrypoint,
        arguments=spec.workload.args,
        device_kind=kind,
        source=Source.MEASURED if measures else Source.TRACED,
        place=place,
    )
