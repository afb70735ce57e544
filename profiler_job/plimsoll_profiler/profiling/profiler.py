"""Profiles a workload: asks the prober, survives its death, fits the lines.

In: what to profile, and how. Out: a `ModelProfile`. A probe that does not fit is
recorded and larger micro-batches of that layer are given up; where the kernel killed
the prober, a new one goes on with the rest. This side needs no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import ModelProfile, ProbeOutcome, Variant
from plimsoll_profiler.errors import ProbingFailedError
from plimsoll_profiler.probing.messages import (
    Frame,
    ProbeRequest,
    ProbeResult,
    out_of_memory,
)
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.prober_process import ProberDiedError, ProberProcess
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.process.requirements import require_supported

Ask = Callable[[ProbeRequest], ProbeResult]
OnProgress = Callable[[int, int, str], None]
"""(probes done, probes in all, what comes next)"""
TIMED_ROUNDS = 3
"""Rounds of all probes where seconds are measured."""


@dataclass(kw_only=True, slots=True)
class Findings:
    """Results of the probes so far."""

    request: ProfileRequest
    frame: Frame
    results: list[ProbeResult] = field(default_factory=list)

    @property
    def num_rounds(self) -> int:
        """Rounds of all probes: several if seconds are measured, as machines drift."""
        return TIMED_ROUNDS if self.request.source is Source.MEASURED else 1

    @property
    def places(self) -> list[tuple[int, Variant]]:
        """Cases and variants; what is not split is alike in several of them."""
        variants, cases = self.frame.variants, range(len(self.frame.cases))
        return [
            (case, variant)
            for variant in variants
            for case in cases
            if self.frame.is_own(case, variant)
        ]

    def open_probes(self) -> Iterator[ProbeRequest]:
        """Yield what is left: small micro-batches first, none larger than one lost."""
        rounds, places = range(1, self.num_rounds + 1), self.places
        for round_, (case, variant) in itertools.product(rounds, places):
            for micro_batch in self.frame.micro_batches:
                place = (case, variant)
                done = [r for r in self.results if (r.case, r.variant) == place]
                lost = (r for r in done if r.outcome is not ProbeOutcome.COMPLETED)
                if any(r.micro_batch <= micro_batch for r in lost):
                    break
                if sum(r.micro_batch == micro_batch for r in done) < round_:
                    yield ProbeRequest(
                        case=case, micro_batch=micro_batch, variant=variant
                    )


def profile(request: ProfileRequest, on_progress: OnProgress) -> ModelProfile:
    """Profile a workload.

    Raises:
        ProbingFailedError: the entry point cannot be used, or the prober ended for
            another reason than memory; its own line says which.
        TooFewProbesError: a layer does not fit the device at one micro-batch.
        IncompatibleError: torch or numpy are missing or too old.
    """
    require_supported()
    found: Findings | None = None
    while True:
        with ProberProcess(request) as prober:
            if found is None:
                found = Findings(request=request, frame=prober.frame)
            elif found.frame != prober.frame:
                raise ProbingFailedError(
                    "the workload is not the same when it is loaded again: an entry "
                    "point must not depend on the clock or on unseeded random numbers"
                )
            if ask_all(prober.ask, found, on_progress):
                return assemble(request, found.frame, found.results)


def ask_all(ask: Ask, found: Findings, on_progress: OnProgress) -> bool:
    """Ask for every probe that is left; False when the prober died on the way."""
    total = len(found.places) * len(found.frame.micro_batches)
    total *= found.num_rounds
    for probe in found.open_probes():
        name = found.frame.cases[probe.case].name
        what = f"{name}, micro-batch {probe.micro_batch}"
        if probe.variant != Variant():
            what += f", on {probe.variant.tensor_degree} ranks"
        on_progress(len(found.results), total, what)
        try:
            found.results.append(ask(probe))
        except ProberDiedError:
            lost = out_of_memory(probe, "the probing process was killed")
            found.results.append(lost)
            return False
    on_progress(total, total, "")
    return True
