"""Request for a profile: the workload, and how to measure it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from plimsoll_planner.engines import TENSOR_DEGREES
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.user_code.arguments import parse_arguments

MICRO_BATCHES = (1, 2, 3, 4, 8)
"""Small micro-batches are used most and probed one by one; the largest two give the
line for all others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRequest:
    """Request for a profile: the workload, and how to measure it."""

    entrypoint: str
    """`package.module:function`"""
    arguments: str = "{}"
    """Keyword arguments of the entry point, as a JSON object."""
    device_kind: DeviceKind
    source: Source
    """Traced or measured."""
    micro_batches: tuple[int, ...] = MICRO_BATCHES
    tensor_degrees: tuple[int, ...] = TENSOR_DEGREES
    """By which layers that can be split are probed."""
    graph_micro_batches: tuple[int, ...] = ()
    """Of which operators are measured as well, for an engine that places them."""
    device_memory_bytes: int = 0
    """Of the emulated device that measures; 0 is no cap."""
    image: str = ""
    """The template image and its code volumes, on a cluster."""
    known_as: str = ""
    """The request key, where whoever asks has one of its own."""

    def key(self) -> str:
        """Request key: it finds a cached profile without running code.

        Raises:
            WorkloadError: the arguments are no JSON object.
        """
        if self.known_as:
            return self.known_as
        parts = (
            self.entrypoint,
            json.dumps(parse_arguments(self.arguments), sort_keys=True),
            self.device_kind,
            self.source,
            self.micro_batches,
            self.tensor_degrees,
            self.device_memory_bytes,
            self.image,
            # Others keep the keys that they had before there were graphs.
            *([self.graph_micro_batches] if self.graph_micro_batches else []),
        )
        text = json.dumps(parts, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
