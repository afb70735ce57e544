"""Profiles of models of a family, of any depth, from one trace.

In: a family and a depth. Out: a `ModelProfile`. The profiler traces the smallest model
on fake tensors; a deeper one has more layers of the same kinds, which the profiler
would probe once as well.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from benchmarks.support.families import ENTRYPOINT, FAMILIES, SMALL, workload
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    LayerColumns,
    ModelProfile,
)
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest


@cache
def traced(family: str, depth: int) -> ModelProfile:
    """Trace of a model; small families as emulated devices, large ones as GPUs."""
    request = ProfileRequest(
        entrypoint=ENTRYPOINT,
        arguments=json.dumps({"family": family, "depth": depth}),
        device_kind=DeviceKind.EMULATED if family in SMALL else DeviceKind.CUDA,
        source=Source.TRACED,
    )
    return profile(request, ignore)


def ignore(done: int, total: int, what: str) -> None:
    """Show no progress."""


@cache
def profile_of(family: str, depth: int) -> ModelProfile:
    """Profile of a model, from the trace of the smallest one of its family."""
    least = FAMILIES[family].least_depth
    base = traced(family, least)
    kind_of = {
        layer.kind: kind
        for layer, kind in zip(
            workload(family=family, depth=least).layers, base.layers.kind, strict=True
        )
    }
    layers = workload(family=family, depth=depth).layers
    return replace(
        base,
        layers=LayerColumns(
            name=tuple(layer.name for layer in layers),
            kind=tuple(kind_of[layer.kind] for layer in layers),
        ),
    )
