"""Reports of a rank about itself, and their times.

Every rank sends an `Observation` at the start, when a peak has grown by more than 5 %
or its passes take 10 % more or less than reported, as its plan is revised, after a time
without news, and at the end. Lines of the report file:

    {"event": "observation", "rank": 2, "reason": "change", "observation": {...}}
    {"event": "step", "step": 3, "loss": 3.1, "gradient_norm": 0.5, "step_s": 0.2}
    {"event": "evaluation", "step": 3, "loss": 3.2, "count": 512, "best_step": 3, ...}
    {"event": "stopped_early", "step": 9, "best_step": 3, "best_loss": 3.2}
    {"event": "revised", "step": 40, "revision": 2, "moved_s": 0.1, ...}
    {"event": "unread", "message": "..."}                        a revision that is none
    {"event": "unsaved", "step": 3, "message": "...", "waits": true}
    {"event": "host_memory", "needed_bytes": 8192, "free_bytes": 65536}
    {"event": "resumed" | "checkpoint" | "failure" | "end", ...}

A failure for want of device memory also has `phase` and `asked_bytes`. A checkpoint
that was not saved is reported by each save that fails; with `waits` training is over,
and the rank waits for room.

Steps count from 1: `step` of them are finished. Steps are alike on all ranks and come
from rank 0.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import (
    DEVIATION,
    LONGEST_REFUSAL,
    WINDOW_STEPS,
    Observation,
    pace_of,
)
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_trainer.devices.device import Device, nccl_version
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.errors import DeviceFullError
from plimsoll_trainer.reporting.report_sink import BackgroundSink

CHANGE = 1.05
"""A peak that is larger by this factor is news."""
STEPS_KEPT = 50
"""Latest step times in an observation."""
PATIENCE_S = 5.0
"""To deliver the last reports."""


def first_observation(plan: HybridPlan, rank: int, device: Device) -> Observation:
    """Observation of a rank before it has run; it is the only attempt, and alone."""
    fingerprint = plan.fingerprint
    return Observation(
        plan_digest=digest_of(plan),
        revision=plan.revision,
        attempt=1,
        rank=rank,
        fingerprint=fingerprint,
        device_kind=device.kind,
        overhead_key=OverheadKey(
            device_product=device.product,
            image=fingerprint.image,
            torch_version=fingerprint.torch_version,
            nccl_version=nccl_version() if device.backend == "nccl" else "",
        ),
        num_communicators=0,
        capacity_bytes=device.capacity_bytes,
        num_steps=0,
        peaks=(),
    )


@dataclass
class Reporter:
    """Sends what is new about this rank."""

    about: Observation
    """Alike in every observation."""
    watch: PeakWatch
    _: KW_ONLY
    lines: BackgroundSink | None
    """Of the report file."""
    every_s: float
    """Between two observations without news."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Start without news."""
        self._step_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._passes_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._paced_step, self._reported_pace_s = 0, 0.0
        """The latest step whose pace was looked at, and the pace that was reported."""
        self._num_steps = self.about.num_steps
        self._reported: dict[Phase, int] = {}
        self._reported_s = self.clock()

    def event(self, event: str, **fields: object) -> None:
        """Write a line to the report file."""
        if self.lines is None:
            return
        known = {name: jsonable(value) for name, value in fields.items()}
        line = json.dumps({"event": event, "rank": self.about.rank, **known})
        self.lines.put(line.encode())

    def observe(self, reason: str) -> None:
        """Send an observation."""
        self._reported, self._reported_s = self.watch.device_bytes, self.clock()
        observation = replace(
            self.about,
            num_steps=self._num_steps,
            step_s=tuple(self._step_s),
            passes_s=tuple(self._passes_s),
            peaks=self.watch.observed(),
        )
        self.event("observation", reason=reason, observation=observation.to_json())

    def failed(self, reason: PlimsollError, exit_code: int) -> None:
        """Report why the rank ends, and what it had used until then."""
        known: dict[str, object] = {}
        if isinstance(reason, DeviceFullError):
            known = {"phase": reason.phase, "asked_bytes": reason.asked_bytes}
        self.event("failure", exit_code=exit_code, message=str(reason), **known)
        self.observe("failure")

    def revised(
        self, plan: HybridPlan, step: int, moved_bytes: int, moved_s: float
    ) -> None:
        """Report a plan that has taken the place of the one before, after a step."""
        self.about = replace(
            self.about,
            plan_digest=digest_of(plan),
            revision=plan.revision,
            moved_step=step,
            moved_bytes=moved_bytes,
            moved_s=moved_s,
        )
        self._step_s.clear()
        self._passes_s.clear()
        self._reported_pace_s = 0.0
        self.observe("revised")

    def refused(self, revision: int, reason: str) -> None:
        """Report a revision that some rank cannot follow."""
        self.about = replace(
            self.about, refused_revision=revision, refusal=reason[:LONGEST_REFUSAL]
        )
        self.observe("refused")

    def after_step(self, num_steps: int, step_s: float, passes_s: float) -> None:
        """Send an observation where there is something new, or it is time.

        `num_steps` are finished since the job's first start; this one took `step_s`, of
        which this rank was in its passes for `passes_s`.
        """
        self._num_steps = num_steps
        self._step_s.append(step_s)
        self._passes_s.append(passes_s)
        has_new_peak = any(
            peak > CHANGE * self._reported.get(phase, 0)
            for phase, peak in self.watch.device_bytes.items()
        )
        if self._has_new_pace() or has_new_peak:
            self.observe("change")
        elif self.clock() - self._reported_s >= self.every_s:
            self.observe("time")

    def _has_new_pace(self) -> bool:
        """Whether the latest steps took other seconds than those reported last.

        Looked at once in so many steps as count.
        """
        since = self._num_steps - self._paced_step
        if since < WINDOW_STEPS:
            return False
        found_s = pace_of(list(self._passes_s))
        if found_s is None:
            return False
        self._paced_step = self._num_steps
        is_new = abs(found_s - self._reported_pace_s) > DEVIATION * found_s
        self._reported_pace_s = found_s if is_new else self._reported_pace_s
        return is_new

    def close(self) -> None:
        """Deliver what waits; not for long."""
        if self.lines is not None:
            self.lines.close(PATIENCE_S)


def jsonable(value: object) -> object:
    """A value that JSON can hold: it has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
