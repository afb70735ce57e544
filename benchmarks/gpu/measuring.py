"""Measures one model: profiles, rehearsed ranks, both sides of the device's edge.

In: a model's name and a device. Out: a `ModelResult`. Everything that touches the
device runs in a process of its own; what fails there becomes a line of `errors`, and
the rest goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.device import MeasuredDevice
from benchmarks.gpu.models import ENTRYPOINT
from benchmarks.gpu.plans import (
    Choice,
    busy_s,
    cuts_of,
    plan_for,
    with_seconds_of,
)
from benchmarks.gpu.results import EdgeRow, Interval, ModelResult, ProfileRow, RankRow
from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.memory.chain_bytes import Bound
from plimsoll_planner.records.document import from_text, save
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import ByteColumns, Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan, PhasePeak, Stage
from plimsoll_planner.records.rehearsal import MeasuredRank, Rehearsal
from plimsoll_profiler.profiling import profile
from plimsoll_profiler.replay_process import replay_plan
from plimsoll_profiler.request import MICRO_BATCHES, ProfileRequest

REHEARSAL_TIMEOUT_S = 600.0
EDGE = Choice(num_stages=1, micro_batch=1)
MOST_SAMPLES = 4096
"""Largest micro-batch at which the edge of a device is looked for."""
EMULATED_EDGE_SAMPLES = 4
"""Micro-batch that an emulated device is made just large enough for."""
BOUNDS = (Bound.LOWER, Bound.EXPECTED, Bound.UPPER)

OnLine = Callable[[str], None]


class RehearsalError(Exception):
    """A rehearsal ended without a verdict; the text is its last line."""


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
        try:
            traced = self.profiled(Source.TRACED)
            timed = self.profiled(Source.MEASURED)
        except PlimsollError as error:
            return ModelResult(
                model=self.model,
                num_parameters=0,
                wall_s=time.monotonic() - begin_s,
                errors=(f"profile: {error}",),
            )
        ranks = tuple(self.ranks(traced, timed))
        edge = tuple(self.edge(with_seconds_of(traced, timed)))
        return ModelResult(
            model=self.model,
            num_parameters=num_parameters(traced),
            wall_s=time.monotonic() - begin_s,
            profile=tuple(compared(traced, timed)),
            ranks=ranks,
            edge=edge,
            errors=tuple(self.errors),
        )

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
        num_layers = len(traced.layers.name)
        for choice in self.choices:
            if choice.num_stages > num_layers:
                continue
            plan = plan_for(planned, self.device, choice)
            other = plan_for(timed, self.device, choice, cuts=cuts_of(plan))
            try:
                replayed = replay_plan(plan, planned, ENTRYPOINT)
            except PlimsollError as error:
                self.errors.append(f"{choice}: replay: {error}")
                continue
            for rank in sorted({0, plan.num_gpus // 2, plan.num_gpus - 1}):
                try:
                    found = self.rehearsed(plan, planned, rank, str(choice))
                except RehearsalError as error:
                    self.errors.append(f"{choice}, rank {rank}: {error}")
                    continue
                yield rank_row(
                    str(choice),
                    found,
                    plan,
                    other,
                    replayed.stages[rank].peak_bytes,
                    timed,
                )

    def rehearsed(
        self, plan: HybridPlan, planned: ModelProfile, rank: int, label: str
    ) -> Rehearsal:
        """Rehearse one rank, and keep what it teaches.

        Raises:
            RehearsalError: there is no verdict.
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
        capacity_bytes = self.device.capacity_bytes
        if self.device.kind is DeviceKind.EMULATED:
            capacity_bytes = self.peak(planned, EMULATED_EDGE_SAMPLES, 0).upper_bytes
        fits = largest(
            lambda b: (
                self.peak(planned, b, capacity_bytes).upper_bytes <= capacity_bytes
            )
        )
        fails = 1 + largest(
            lambda b: (
                self.peak(planned, b, capacity_bytes).lower_bytes <= capacity_bytes
            )
        )
        for micro_batch, verdict in ((fits, "fits"), (fails, "fails")):
            if not 0 < micro_batch <= MOST_SAMPLES:
                continue
            plan = self.edge_plan(planned, micro_batch, capacity_bytes)
            label = f"{verdict} with b={micro_batch}"
            try:
                found = self.rehearsed(plan, planned, 0, label)
            except RehearsalError as error:
                self.errors.append(f"{label}: {error}")
                continue
            yield EdgeRow(
                micro_batch=micro_batch,
                predicted=verdict,
                ran=found.fits,
                device=three(self.peak(planned, micro_batch, capacity_bytes)),
                peak_device_bytes=found.device_bytes,
            )

    def edge_plan(
        self, planned: ModelProfile, micro_batch: int, capacity_bytes: int
    ) -> HybridPlan:
        """The plan of one device for a micro-batch."""
        choice = Choice(num_stages=1, micro_batch=micro_batch)
        return plan_for(planned, self.device, choice, capacity_bytes=capacity_bytes)

    def peak(
        self, planned: ModelProfile, micro_batch: int, capacity_bytes: int
    ) -> ByteInterval:
        """Predicted bytes of the whole device on one device, over all phases."""
        plan = self.edge_plan(planned, micro_batch, capacity_bytes)
        return over_phases(plan.stages[0], lambda peak: peak.device)


def ignore_progress(done: int, total: int, what: str) -> None:
    """Print nothing: there is a line for each profile."""
    del done, total, what


def rehearse(plan: HybridPlan, planned: ModelProfile, rank: int) -> Rehearsal:
    """Rehearse a rank in a process that is the device.

    Raises:
        RehearsalError: it ended without a verdict.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "plan.json", Path(folder) / "profile.json"
        save(paths[0], plan)
        save(paths[1], planned)
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                (
                    *(sys.executable, "-m", "plimsoll_profiler", "rehearse"),
                    *("--plan", paths[0], "--profile", paths[1]),
                    *("--entrypoint", ENTRYPOINT, "--rank", str(rank)),
                ),
                capture_output=True,
                text=True,
                check=False,
                timeout=REHEARSAL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise RehearsalError(f"no end after {REHEARSAL_TIMEOUT_S:g} s") from None
    if done.returncode:
        silent = f"it printed nothing, exit status {done.returncode}"
        raise RehearsalError((done.stderr.strip().splitlines() or [silent])[-1])
    return from_text(done.stdout.splitlines()[-1], Rehearsal)


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


def rank_row(
    label: str,
    found: Rehearsal,
    plan: HybridPlan,
    other: HybridPlan,
    replayed_bytes: int,
    timed: ModelProfile,
) -> RankRow:
    """A rehearsed rank beside all that was predicted of it.

    Args:
        label: of the plan.
        found: the rehearsal.
        plan: predicted from the traced profile.
        other: the same plan, predicted from the measured profile.
        replayed_bytes: peak of the rank's replay.
        timed: the measured profile.
    """
    seen, full = found.observation, found.full_device
    stage, again = plan.stage_of(seen.rank), other.stage_of(seen.rank)
    lower_s, expected_s, upper_s = (busy_s(timed, plan, stage, b) for b in BOUNDS)
    return RankRow(
        plan=label,
        rank=seen.rank,
        micro_batch=plan.micro_batch,
        allocated=three(over_phases(stage, lambda peak: peak.allocated)),
        allocated_by_measured=three(over_phases(again, lambda peak: peak.allocated)),
        device=three(over_phases(stage, lambda peak: peak.device)),
        replayed_bytes=replayed_bytes,
        phases={
            one.phase: (one.allocated_bytes, one.reserved_bytes, one.device_bytes)
            for one in seen.peaks
        },
        busy_s=(lower_s, expected_s, upper_s),
        step_s=seen.step_s,
        other_bytes=found.other_bytes,
        full_phase="" if full is None else str(full.phase),
    )


def over_phases(
    stage: Stage, which: Callable[[PhasePeak], ByteInterval]
) -> ByteInterval:
    """Largest bytes of a stage over its phases, in each bound."""
    found = [which(peak) for peak in stage.peaks]
    return ByteInterval(
        lower_bytes=max(one.lower_bytes for one in found),
        expected_bytes=max(one.expected_bytes for one in found),
        upper_bytes=max(one.upper_bytes for one in found),
    )


def three(interval: ByteInterval) -> Interval:
    """Lower, expected, upper."""
    return interval.lower_bytes, interval.expected_bytes, interval.upper_bytes


def num_parameters(traced: ModelProfile) -> int:
    """Numbers of the model, shared ones once."""
    costs, size = traced.costs, 2 if traced.recipe.precision == "bf16" else 4
    row_of = {kind: row for row, kind in enumerate(costs.kind)}
    rows = [row_of[kind] for kind in traced.layers.kind]
    total = sum(costs.parameter_bytes[row] for row in rows)
    total -= sum(tie.parameter_bytes * (len(tie.layers) - 1) for tie in traced.tied)
    return total // size


def compared(traced: ModelProfile, timed: ModelProfile) -> Iterator[ProfileRow]:
    """Bytes of the traced profile beside those of the measured one."""
    a, b = traced.costs, timed.costs
    pairs = {
        "boundary": (a.boundary, b.boundary),
        "saved": (a.kept.saved, b.kept.saved),
        "forward transient": (a.kept.forward_transient, b.kept.forward_transient),
        "backward transient": (a.kept.backward_transient, b.kept.backward_transient),
        "saved, recomputed": (a.recomputed.saved, b.recomputed.saved),
        "backward transient, recomputed": (
            a.recomputed.backward_transient,
            b.recomputed.backward_transient,
        ),
    }
    for quantity, (one, other) in pairs.items():
        yield compared_columns(quantity, traced, one, other)
    for quantity, left, right in (
        ("parameters", a.parameter_bytes, b.parameter_bytes),
        ("gradients", a.gradient_bytes, b.gradient_bytes),
        ("optimizer", a.optimizer_bytes, b.optimizer_bytes),
        (
            "optimizer transient",
            a.optimizer_transient_bytes,
            b.optimizer_transient_bytes,
        ),
    ):
        found = [
            (traced.kinds[kind], x, y)
            for kind, x, y in zip(a.kind, left, right, strict=True)
        ]
        yield worst(quantity, found)


def compared_columns(
    quantity: str, traced: ModelProfile, one: ByteColumns, other: ByteColumns
) -> ProfileRow:
    """A quantity that grows with the micro-batch, where it was probed."""
    found = [
        (
            f"{traced.kinds[kind]}, b={micro_batch}",
            one.at(row, micro_batch).expected_bytes,
            other.at(row, micro_batch).expected_bytes,
        )
        for row, kind in enumerate(traced.costs.kind)
        for micro_batch in MICRO_BATCHES
    ]
    return worst(quantity, found)


def worst(quantity: str, found: list[tuple[str, int, int]]) -> ProfileRow:
    """The pair that differs most in bytes; what is 0 in both differs by nothing."""
    where, left, right = max(found, key=lambda row: abs(row[1] - row[2]))
    return ProfileRow(
        quantity=quantity,
        largest_error=(left - right) / max(right, 1),
        where=where,
        num_compared=len(found),
        largest_error_bytes=left - right,
    )
