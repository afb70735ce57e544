"""Measures one model: profiles, rehearsed ranks, both sides of the device's edge.

In: a model's name and a device. Out: a `ModelResult`. Everything that touches the
device runs in a process of its own; what fails there becomes a line of `errors`, and
the rest goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.gpu.device import MeasuredDevice
from benchmarks.gpu.models import ENTRYPOINT
from benchmarks.gpu.plans import Choice, cuts_of, plan_for, with_seconds_of
from benchmarks.gpu.rehearsing import rehearse
from benchmarks.gpu.results import EdgeRow, ModelResult, RankRow
from benchmarks.gpu.rows import Predicted, compared, num_parameters, over_phases, three
from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import MeasuredRank, Rehearsal
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.ranks.replay_process import replay_plan

MOST_SAMPLES = 4096
"""Largest micro-batch at which the edge of a device is looked for."""
EMULATED_EDGE_SAMPLES = 4
"""Micro-batch that an emulated device is made just large enough for."""
FAILURES = (PlimsollError, OSError)
"""Errors that cost the part under way: a plan, a rank, a side of the edge."""

OnLine = Callable[[str], None]


@dataclass(kw_only=True)
class Measuring:
    """One model on one device."""

    model: str
    device: MeasuredDevice
    is_tiny: bool
    choices: Sequence[Choice]
    say: OnLine
    errors: list[str] = field(default_factory=list[str])
    measured: list[MeasuredRank] = field(default_factory=list[MeasuredRank])
    """Ranks that fit, beside no other process."""

    @property
    def arguments(self) -> str:
        """Of the entry point."""
        return json.dumps({"model": self.model, "tiny": self.is_tiny})

    def run(self) -> ModelResult:
        """Measure all there is."""
        begin_s = time.monotonic()
        found = ModelResult(
            model=self.model,
            num_parameters=0,
            num_plans=len(self.choices),
            versions=self.device.versions,
            wall_s=0.0,
        )
        try:
            traced = self.profiled(Source.TRACED)
            timed = self.profiled(Source.MEASURED)
        except FAILURES as error:
            self.errors.append(f"profile: {error}")
        else:
            found = replace(
                found,
                num_parameters=num_parameters(traced),
                profile=tuple(compared(traced, timed)),
                ranks=tuple(self.ranks(traced, timed)),
                edge=tuple(self.edge(with_seconds_of(traced, timed))),
            )
        wall_s = time.monotonic() - begin_s
        return replace(found, wall_s=wall_s, errors=tuple(self.errors))

    def profiled(self, source: Source) -> ModelProfile:
        """Profile the model.

        Raises:
            PlimsollError: it cannot be.
        """
        self.say(f"{self.model}: {source} profile")
        request = ProfileRequest(
            entrypoint=ENTRYPOINT,
            arguments=self.arguments,
            device_kind=self.device.kind,
            source=source,
        )
        return profile(request, ignore_progress)

    def ranks(self, traced: ModelProfile, timed: ModelProfile) -> Iterator[RankRow]:
        """Rehearse first, middle and last rank of every plan."""
        planned = with_seconds_of(traced, timed)
        for choice in self.choices:
            if choice.num_stages > len(traced.layers.name):
                continue
            try:
                predicted = self.predicted(choice, planned, timed)
            except FAILURES as error:
                self.errors.append(f"{choice}: {error}")
                continue
            plan = predicted.plan
            for rank in sorted({0, plan.num_gpus // 2, plan.num_gpus - 1}):
                try:
                    found = self.rehearsed(plan, planned, rank, str(choice))
                except FAILURES as error:
                    self.errors.append(f"{choice}, rank {rank}: {error}")
                else:
                    yield predicted.beside(found)

    def predicted(
        self, choice: Choice, planned: ModelProfile, timed: ModelProfile
    ) -> Predicted:
        """Prediction for a choice.

        Raises:
            PlimsollError: there is no plan, or no replay.
        """
        plan = plan_for(planned, self.device, choice)
        return Predicted(
            label=str(choice),
            plan=plan,
            by_measured=plan_for(timed, self.device, choice, cuts=cuts_of(plan)),
            replay=replay_plan(plan, planned, ENTRYPOINT),
            timed=timed,
        )

    def rehearsed(
        self, plan: HybridPlan, planned: ModelProfile, rank: int, label: str
    ) -> Rehearsal:
        """Rehearse one rank, and keep what it teaches.

        Raises:
            PlimsollError: there is no verdict.
        """
        self.say(f"{self.model}: {label}: rank {rank}")
        found = rehearse(plan, planned, rank)
        peak = plan.stage_of(rank).peak()
        if found.fits and not found.other_bytes and peak is not None:
            rank_found = MeasuredRank(
                observation=found.observation,
                predicted=peak,
                micro_batch=plan.micro_batch,
            )
            self.measured.append(rank_found)
        return found

    def edge(self, planned: ModelProfile) -> Iterator[EdgeRow]:
        """Run the largest micro-batch that fits, and the smallest that fails."""
        try:
            capacity_bytes = self.edge_capacity_bytes(planned)
            sides = self.sides(planned, capacity_bytes)
        except FAILURES as error:
            self.errors.append(f"edge: {error}")
            return
        for verdict, micro_batch in sides.items():
            if not 0 < micro_batch <= MOST_SAMPLES:
                continue
            label = f"{verdict} with b={micro_batch}"
            try:
                plan = self.edge_plan(planned, micro_batch, capacity_bytes)
                found = self.rehearsed(plan, planned, 0, label)
            except FAILURES as error:
                self.errors.append(f"{label}: {error}")
                continue
            yield EdgeRow(
                micro_batch=micro_batch,
                predicted=verdict,
                ran=found.fits,
                device=three(whole_device(plan)),
                peak_device_bytes=found.device_bytes,
            )

    def edge_capacity_bytes(self, planned: ModelProfile) -> int:
        """Of the device; an emulated one is as large as some samples need."""
        if self.device.kind is not DeviceKind.EMULATED:
            return self.device.capacity_bytes
        return whole_device(
            self.edge_plan(planned, EMULATED_EDGE_SAMPLES, 0)
        ).upper_bytes

    def sides(self, planned: ModelProfile, capacity_bytes: int) -> dict[str, int]:
        """The largest micro-batch that surely fits, the smallest that surely fails."""

        def peak(micro_batch: int) -> ByteInterval:
            return whole_device(self.edge_plan(planned, micro_batch, capacity_bytes))

        return {
            "fits": largest(lambda b: peak(b).upper_bytes <= capacity_bytes),
            "fails": 1 + largest(lambda b: peak(b).lower_bytes <= capacity_bytes),
        }

    def edge_plan(
        self, planned: ModelProfile, micro_batch: int, capacity_bytes: int
    ) -> HybridPlan:
        """The plan of one device for a micro-batch."""
        choice = Choice(num_stages=1, micro_batch=micro_batch)
        return plan_for(planned, self.device, choice, capacity_bytes=capacity_bytes)


def whole_device(plan: HybridPlan) -> ByteInterval:
    """Predicted bytes of a whole device that has the plan alone, over all phases."""
    return over_phases(plan.stages[0], lambda peak: peak.device)


def ignore_progress(done: int, total: int, what: str) -> None:
    """Print nothing: there is a line for each profile."""
    del done, total, what


def largest(holds: Callable[[int], bool]) -> int:
    """Largest micro-batch for which something holds that stops to hold once; or 0."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while high <= MOST_SAMPLES and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
