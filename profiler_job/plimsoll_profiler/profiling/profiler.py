"""Profiles a workload: asks the prober, survives its death, fits the lines.

In: what to profile, and how. Out: a `ModelProfile`. A probe that does not fit is
recorded and larger micro-batches of that layer are given up; where the kernel killed
the prober, a new one goes on with the rest. This side needs no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import ModelProfile, ProbeOutcome, Variant
from plimsoll_profiler.errors import ProbingFailedError
from plimsoll_profiler.probing.messages import (
    Activations,
    Frame,
    ProbeRequest,
    ProbeResult,
    out_of_memory,
)
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.line_fit import LINE_POINTS, is_on_line
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

    def results_of(self, case: int, variant: Variant) -> list[ProbeResult]:
        """Results of a case in a variant."""
        place = (case, variant)
        return [r for r in self.results if (r.case, r.variant) == place]

    def micro_batches_of(self, case: int, variant: Variant) -> Iterator[int]:
        """Yield those to probe; of split layers the middle ones if bytes bend."""
        every = self.frame.micro_batches
        ends = (every[0], *every[-LINE_POINTS:])
        if variant.tensor_degree == 1 or len(every) <= len(ends):
            yield from every
            return
        yield from ends
        if not is_straight(ends, self.results_of(case, variant)):
            yield from every[1:-LINE_POINTS]

    def open_probes(self) -> Iterator[ProbeRequest]:
        """Yield what is left: small micro-batches first, none larger than one lost."""
        rounds, places = range(1, self.num_rounds + 1), self.places
        for round_, (case, variant) in itertools.product(rounds, places):
            for micro_batch in self.micro_batches_of(case, variant):
                done = self.results_of(case, variant)
                lost = (r for r in done if r.outcome is not ProbeOutcome.COMPLETED)
                if any(r.micro_batch <= micro_batch for r in lost):
                    continue
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


def is_straight(micro_batches: Sequence[int], results: Sequence[ProbeResult]) -> bool:
    """Whether all bytes of some probes lie on lines.

    Peaks are the largest of several lines, so what is straight at three micro-batches
    is straight between them, and probes there would find nothing else.
    """
    done = {r.micro_batch: r for r in results if r.kept is not None}
    if not done.keys() >= set(micro_batches):
        return False
    kept = [done[b].kept for b in micro_batches]
    recomputed = [done[b].recomputed for b in micro_batches]
    return all(
        is_on_line(micro_batches, [getattr(passes, field.name) for passes in way])
        for way in (kept, recomputed)
        if None not in way
        for field in fields(Activations)
    )
