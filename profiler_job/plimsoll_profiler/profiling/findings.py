"""Probes of a profile: what is to be asked, in which order, and what was found.

In: what the prober knows of the workload, results. Out: probes that are left. Called by
`profiler` and `several_probers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import ProbeOutcome, Variant
from plimsoll_profiler.errors import ProbingFailedError
from plimsoll_profiler.probing.messages import (
    Activations,
    Frame,
    ProbeRequest,
    ProbeResult,
)
from plimsoll_profiler.profiling.line_fit import LINE_POINTS, is_on_line
from plimsoll_profiler.profiling.request import ProfileRequest

Place = tuple[int, Variant]
"""A case of the frame, and how its layer is split."""
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
    def places(self) -> list[Place]:
        """Cases and variants; what is not split is alike in several of them."""
        variants, cases = self.frame.variants, range(len(self.frame.cases))
        return [
            (case, variant)
            for variant in variants
            for case in cases
            if self.frame.is_own(case, variant)
        ]

    @property
    def num_probes(self) -> int:
        """All of them, if none is left out."""
        num_places = len(self.places) * len(self.frame.micro_batches)
        return num_places * self.num_rounds

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

    def open_probes(self, places: Sequence[Place]) -> Iterator[ProbeRequest]:
        """Yield what is left of some places.

        Small micro-batches come first, and none is larger than one that was lost.
        """
        rounds = range(1, self.num_rounds + 1)
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

    def in_order(self) -> list[ProbeResult]:
        """Results in the order of the places, whoever had them first."""
        order = {place: number for number, place in enumerate(self.places)}
        return sorted(self.results, key=lambda r: order[r.case, r.variant])

    def require_same(self, frame: Frame) -> None:
        """Refuse a workload that another prober has found otherwise.

        Raises:
            ProbingFailedError: see above.
        """
        if self.frame != frame:
            raise ProbingFailedError(
                "the workload is not the same when it is loaded again: an entry "
                "point must not depend on the clock or on unseeded random numbers"
            )

    def what(self, probe: ProbeRequest) -> str:
        """Text of a probe, as in `block, micro-batch 2, on 4 ranks`."""
        text = f"{self.frame.cases[probe.case].name}, micro-batch {probe.micro_batch}"
        if probe.variant != Variant():
            text += f", on {probe.variant.tensor_degree} ranks"
        return text


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
