"""Profiles a workload: asks probers, survives their death, fits the lines.

In: what to profile, and how. Out: a `ModelProfile`: layers, then the graphs that the
request asks for. A probe that does not fit is
recorded and larger micro-batches of that layer are given up; where the kernel killed
the prober, a new one goes on with the rest. This side needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_profiler.probing.messages import ProbeRequest, ProbeResult, out_of_memory
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.document_process import ProcessKilledError
from plimsoll_profiler.profiling.findings import Findings
from plimsoll_profiler.profiling.graphs import graphs_of, require_measured
from plimsoll_profiler.profiling.prober_process import ProberProcess
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.profiling.several_probers import SeveralProbers
from plimsoll_trainer.process.requirements import require_supported

Ask = Callable[[ProbeRequest], ProbeResult]
OnProgress = Callable[[int, int, str], None]
"""(probes done, probes in all, what comes next); graphs are counted by themselves."""


def profile(request: ProfileRequest, on_progress: OnProgress) -> ModelProfile:
    """Profile a workload.

    Raises:
        TracedGraphError: graphs are asked for of a trace.
        ProbingFailedError: the entry point cannot be used, or the prober ended for
            another reason than memory; its own line says which.
        TooFewProbesError: a layer does not fit the device at one micro-batch.
        IncompatibleError: torch or numpy are missing or too old.
    """
    require_supported()
    require_measured(request)
    layers = profile_of_layers(request, on_progress)
    if not request.graph_micro_batches:
        return layers
    return replace(layers, graphs=graphs_of(request, layers.fingerprint, on_progress))


def profile_of_layers(request: ProfileRequest, on_progress: OnProgress) -> ModelProfile:
    """Profile the layers of a workload.

    Raises:
        ProbingFailedError, TooFewProbesError: see `profile`.
    """
    found: Findings | None = None
    while True:
        with ProberProcess(request) as prober:
            if found is None:
                found = Findings(request=request, frame=prober.frame)
                if not trace(found, prober, on_progress):
                    continue
            found.require_same(prober.frame)
            if ask_all(prober.ask, found, on_progress):
                return assemble(request, found.frame, found.in_order())


def trace(found: Findings, prober: ProberProcess, on_progress: OnProgress) -> bool:
    """Ask several probers, if none measures; False when the first died on the way.

    It may have lacked the memory that the others took, so nothing counts as lost.
    """
    if found.request.source is not Source.TRACED:
        return True
    try:
        SeveralProbers(found, prober, on_progress).run()
    except ProcessKilledError:
        return False
    return True


def ask_all(ask: Ask, found: Findings, on_progress: OnProgress) -> bool:
    """Ask for every probe that is left; False when the prober died on the way."""
    for probe in found.open_probes(found.places):
        on_progress(len(found.results), found.num_probes, found.what(probe))
        try:
            found.results.append(ask(probe))
        except ProcessKilledError:
            lost = out_of_memory(probe, "the probing process was killed")
            found.results.append(lost)
            return False
    on_progress(found.num_probes, found.num_probes, "")
    return True
