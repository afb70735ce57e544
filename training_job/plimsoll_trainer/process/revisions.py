"""Revisions of the plan that appear while it runs: agreed on, then applied.

    before each step    the newest revision that this rank has  ->  the least of all
    it is a later one   every rank checks it; if one refuses, the plan stays
    else                layers move, and the next step is by the revised plan

Nothing is applied that only some ranks have, or that they have in different words. A
rank that dies meanwhile takes the others with it, and all start again from the last
checkpoint, which any plan reads.

In: a file that appears by rename, written by whoever plans. Out: a trainer with other
layers, and reports of it. Called by `session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_planner.errors import PlimsollError, one_line
from plimsoll_planner.records.document import digest_of, load
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.revision import Revision, difference
from plimsoll_trainer.checkpoint.state import check_optimizer
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.migration import grown, rearrange, unmovable
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.errors import HostFullError
from plimsoll_trainer.process.assignment import (
    Assignment,
    check_engine,
    check_layers,
    slices_of,
)
from plimsoll_trainer.process.checkpointing import Checkpointing
from plimsoll_trainer.process.host_memory import check_host_memory
from plimsoll_trainer.process.stopping import StopSignal
from plimsoll_trainer.reporting.reports import Reporter

REPORT_S = 2.0
"""Between two reports meanwhile."""
POLL_S = 0.2
"""Between two looks for a revision while the first step waits for it."""
Stamp = tuple[int, int]
"""Inode and time of change of a file."""


@dataclass(kw_only=True)
class Revisions:
    """Revisions of one attempt; all ranks call each method together."""

    path: Path | None
    """In which they appear; None: none does."""
    wait_s: float
    """For one, before the first step on a device that is smaller than planned."""
    plan: HybridPlan
    """That runs."""
    assignment: Assignment
    trainer: Trainer
    control: Control
    checkpoints: Checkpointing
    reporter: Reporter
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Begin without any."""
        self._found: Revision | None = None
        self._seen: Stamp | None = None
        self._refused = 0
        """The latest that was refused; it is not looked at again."""

    @property
    def newest(self) -> int:
        """The latest revision that this rank has, but one that was refused."""
        self._look()
        found = self._found
        latest = 0 if found is None else found.plan.revision
        return latest if latest > self._refused else self.plan.revision

    def _look(self) -> None:
        """Read the file if it is there and has changed."""
        if self.path is None:
            return
        try:
            status = self.path.stat()
        except OSError:
            return
        stamp = status.st_ino, status.st_mtime_ns
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._found = load(self.path, Revision)
        except (OSError, PlimsollError) as error:
            text = one_line(str(error))
            self.warn(f"a revision of the plan is not read: {text}")
            self.reporter.event("unread", message=text)

    def wait_if_short(self, capacity_bytes: int, stop: StopSignal) -> None:
        """Wait for a revision if some device is smaller than its stage may need.

        Whoever plans has the capacity by the first report. All ranks report meanwhile,
        for each pod is given a revision in the answer to its own reports. Without one
        training begins as planned: its need may be less than its bound.
        """
        stage = self.plan.stages[self.trainer.world.stage]
        peak = stage.peak()
        needed = 0 if peak is None else peak.device.upper_bytes
        is_short = self.path is not None and 0 < capacity_bytes < needed
        end_s = reported_s = self.clock()
        end_s += self.wait_s
        waits = False
        while True:
            if waits and self.clock() - reported_s > REPORT_S:
                reported_s = self.clock()
                self.reporter.observe("short")
            flags = is_short and self.clock() < end_s, stop.is_set
            (waits, stopped), known = self.control.least_of(self.newest, *flags)
            if stopped or not waits or known > self.plan.revision:
                return
            time.sleep(POLL_S)

    def boundary(self, step: int, known: int) -> None:
        """Apply the revision that all ranks have, if it is later than what runs.

        `step` counts those finished; `known` is the least of all ranks.
        """
        if known <= self.plan.revision:
            return
        revision = self._found
        assert revision is not None  # noqa: S101 - this rank has it
        began_s = self.clock()
        reason = self._refusal(revision)
        if reason:
            self._refused = known
            self.warn(f"revision {known} of the plan is not applied: {reason}")
            self.reporter.refused(known, reason)
            return
        self.reporter.watch.begin(Phase.MIGRATION)
        slices = slices_of(revision.plan)
        moved_bytes = rearrange(self.trainer, slices, revision.moves)
        self.control.wait_for_all()
        self._follow(revision.plan, replace(self.assignment, slices=slices))
        moved_s = self.clock() - began_s
        peak_bytes = self.reporter.watch.device_bytes[Phase.MIGRATION]
        self.reporter.watch.begin_anew()
        self.reporter.event(
            "revised",
            step=step,
            revision=known,
            num_moves=len(revision.moves),
            moved_bytes=moved_bytes,
            moved_s=moved_s,
            peak_bytes=peak_bytes,
        )
        self.reporter.revised(revision.plan, step, moved_bytes, moved_s)
        if self.control.rank == 0:
            self.warn(line_of(revision, step, moved_s))

    def _follow(self, plan: HybridPlan, assignment: Assignment) -> None:
        """Note the plan that runs."""
        self.plan, self.assignment = plan, assignment
        self.checkpoints.revised(digest_of(plan))

    def _refusal(self, revision: Revision) -> str:
        """Why a revision is not applied, alike on all ranks; empty if it is."""
        mine = digest_of(revision), self._own_refusal(revision)
        every = self.control.gather(mine)
        if len({digest for digest, _ in every}) > 1:
            return "ranks were given different ones of this number"
        first = next((reason for _, reason in every if reason), "")
        return first or self._host_refusal(revision)

    def _own_refusal(self, revision: Revision) -> str:
        """Why this rank cannot follow a revision; empty if it can."""
        workload = self.trainer.workload
        if reason := difference(revision, self.plan):
            return reason
        try:
            check_engine(revision.plan)
            check_layers(revision.plan, workload)
            if revision.moves:
                check_optimizer(workload.optimizer, self.trainer.world.device)
        except PlimsollError as error:
            return str(error)
        refusal = unmovable(workload, self.trainer.slices, revision.moves)
        return refusal or grown(self.trainer, revision.moves) or ""

    def _host_refusal(self, revision: Revision) -> str:
        """Why the machines of some ranks have too little memory; empty if none has."""
        assignment = replace(self.assignment, slices=slices_of(revision.plan))
        trainer = self.trainer
        try:
            check_host_memory(
                *(trainer.workload, assignment, trainer.world, self.control, self.warn),
                held_bytes=trainer.host_bytes,
            )
        except HostFullError as error:
            return str(error)
        return ""


def line_of(revision: Revision, step: int, moved_s: float) -> str:
    """Line for people about a revision that was applied."""
    count = len(revision.moves)
    moves = f"{count} layer{'s' if count > 1 else ''} moved" if count else "none moved"
    return (
        f"plan revised after step {step} to revision {revision.plan.revision}: {moves} "
        f"in {moved_s:.2f} s, a step is expected to take {revision.step_after_s:.3g} s "
        f"instead of {revision.step_before_s:.3g} s"
    )
