"""Graphs of a profile: operators of a step, for an engine that places them.

In: a request that names micro-batches, and the fingerprint of the profile of layers.
Out: a `ProfiledGraph` for each micro-batch that the workload takes. Called by
`profiler`; the process is `probing.grapher`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from plimsoll_planner.records.graph_profile import ProfiledGraph
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import Fingerprint
from plimsoll_profiler.errors import ProbingFailedError, TracedGraphError
from plimsoll_profiler.probing.messages import GraphMessage
from plimsoll_profiler.profiling.document_process import (
    DocumentProcess,
    ProcessKilledError,
)
from plimsoll_profiler.profiling.request import ProfileRequest


def require_measured(request: ProfileRequest) -> None:
    """Refuse graphs of a trace.

    Raises:
        TracedGraphError: see above.
    """
    if request.graph_micro_batches and request.source is Source.TRACED:
        raise TracedGraphError(
            "graphs are asked for, whose operators have to be timed on the device, "
            "and a traced profile uses none: profile with source measured (`--source "
            "measured`; without a GPU, `--device emulated` beside it), or plan with "
            "engine plimsoll"
        )


def graphs_of(
    request: ProfileRequest,
    fingerprint: Fingerprint,
    on_progress: Callable[[int, int, str], None],
) -> tuple[ProfiledGraph, ...]:
    """Graphs of the micro-batches that the workload takes, which rise.

    Args:
        request: that names micro-batches.
        fingerprint: of the profile of layers.
        on_progress: called with graphs done, graphs in all, and what comes next.

    Raises:
        BadWorkloadError: none can be captured or measured.
        ProbingFailedError: the process ended for another reason, or the workload is
            not that of the layers.
    """
    total, found = len(request.graph_micro_batches), list[ProfiledGraph]()
    what = "operators, one by one"
    on_progress(0, total, what)
    words = (request.entrypoint, request.arguments, request.device_kind)
    sizes = json.dumps(request.graph_micro_batches)
    try:
        with DocumentProcess("grapher", request, *words, sizes) as grapher:
            for message in grapher.documents(GraphMessage):
                require_same(fingerprint, message.fingerprint)
                found.append(message.profiled)
                on_progress(len(found), total, what)
    except ProcessKilledError:
        raise ProbingFailedError(
            "the process that measures operators was killed, as happens where the "
            f"machine lacks memory, after {len(found)} of {total} graphs: profile "
            "smaller micro-batches, or on a machine with more memory"
        ) from None
    on_progress(total, total, "")
    return tuple(found)


def require_same(layers: Fingerprint, graph: Fingerprint) -> None:
    """Refuse a workload that has changed since its layers were profiled.

    Raises:
        ProbingFailedError: see above.
    """
    if layers != graph:
        raise ProbingFailedError(
            "the workload is not the same as when its layers were profiled: leave its "
            "files and libraries alone until the profile is done"
        )
