"""When this job saves, and where it resumes: what `session` asks of `checkpoint`.

open      take over the folder, choose, read, agree on the first step
boundary  between two steps: save when it is time and no rank still writes
finish    save what is not saved yet, and wait for it; for room as well, however long

A save that fails between two steps is reported, and training goes on. At the end
nothing does: ranks that left would be started again, to train again what they have
trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from plimsoll_planner.records.plan import Phase
from plimsoll_planner.units import at_least, at_most
from plimsoll_trainer.checkpoint.folders import Folders, step_of, steps_in
from plimsoll_trainer.checkpoint.loader import Found, choose
from plimsoll_trainer.checkpoint.manifest import Identity, LoopState, check_identity
from plimsoll_trainer.checkpoint.room import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    free_bytes,
    wait_for_room,
)
from plimsoll_trainer.checkpoint.saved_state import SavedState
from plimsoll_trainer.checkpoint.saver import Saver
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.errors import (
    CheckpointError,
    NoRoomError,
    TakenOverError,
    UnusableCheckpointError,
)
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.reporting.reports import Reporter

POLL_S = 0.02


@dataclass
class Checkpointing:
    """The checkpoints of one attempt; all ranks call each method together."""

    options: Options
    control: Control
    watch: PeakWatch
    reporter: Reporter
    warn: Callable[[str], None]

    def __post_init__(self) -> None:
        """Start without a checkpoint."""
        self._found: Found | None = None
        self._saver: Saver | None = None
        self._saved_step = -1
        """The latest that is saved or being saved."""
        self._is_due = False
        self._waits = False
        """For room, which was reported."""
        self.loop = LoopState()
        """Of what is saved next; after `open` that of the checkpoint."""

    @property
    def saves(self) -> bool:
        """Whether there is a folder to save into."""
        return self.options.checkpoint_dir is not None

    @property
    def is_busy(self) -> bool:
        """Whether this rank still writes."""
        return self._saver is not None and self._saver.is_busy

    def choose(self, identity: Identity, check: Callable[[Found], None]) -> None:
        """Choose what to resume from, before anything is built.

        Args:
            identity: of this training.
            check: raises `UnusableCheckpointError` if a checkpoint is of another model.

        Raises:
            UnusableCheckpointError: there is none to use, or it is of another training.
        """
        folders = self._folders()
        with self._together():
            if folders and self.control.rank == 0:
                folders.open()
        resume_from = self.options.resume_from
        self._found = choose(folders, resume_from, self.control, self.warn)
        if self._found is not None:
            with self._together():
                self._check(self._found, identity)
                check(self._found)

    def _check(self, found: Found, identity: Identity) -> None:
        """Refuse a checkpoint that does not lead to where this job wants to go."""
        options = self.options
        if not options.accept_other_data:
            check_identity(found.manifest.identity, identity, found.folder)
        if found.manifest.step > options.steps:
            raise UnusableCheckpointError(
                f"checkpoint {found.folder} is past --steps {options.steps}: "
                "give more steps, or an earlier one with --resume-from"
            )

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Let a `CheckpointError` on any rank be raised on all."""
        fault: CheckpointError | None = None
        try:
            yield
        except CheckpointError as error:
            fault = error
        if faults := [one for one in self.control.gather(fault) if one is not None]:
            raise faults[0]

    def open(self, state: SavedState, identity: Identity, plan_digest: str) -> int:
        """Read what was chosen into the state; return the first step to run.

        Raises:
            UnusableCheckpointError: it is of another model, or broken.
            CheckpointError: it cannot be read just now.
        """
        if folders := self._folders():
            self._saver = Saver(
                state,
                folders,
                rank=self.control.rank,
                num_ranks=self.control.num_ranks,
                identity=identity,
                plan_digest=plan_digest,
                keep=self.options.keep,
            )
        if self._found is None:
            return 0
        self.watch.begin(Phase.CHECKPOINT_RESTORE)
        with self._together():
            state.read(self._found)
        self.watch(Phase.CHECKPOINT_RESTORE)
        step, self.loop = self._found.manifest.step, self._found.manifest.loop
        if folders and folders.committed(step).exists():
            self._saved_step = step
        self.reporter.event("resumed", step=step, folder=str(self._found.folder))
        if self.control.rank == 0:
            self.warn(f"resumes after step {step}, from {self._found.folder}")
        return step

    def revised(self, plan_digest: str) -> None:
        """Note the plan that the training runs under from now on."""
        if self._saver is not None:
            self._saver.plan_digest = plan_digest

    def boundary(self, step: int, *, any_busy: bool) -> None:
        """Save when it is time; later, where some rank still writes.

        `step` counts those finished; `any_busy` is alike on all ranks.
        """
        self._report_save()
        every = self.options.checkpoint_every
        if every and step % every == 0 and step > 0:
            self._is_due = True
        if self._is_due and not any_busy:
            if self._saver is not None:
                self._saver.discard()
            self._save(step)

    def finish(self, step: int) -> None:
        """Save what is not saved yet, and wait until it is committed.

        Where the disk is full that takes until there is room, or until somebody ends
        the rank.

        Raises:
            CheckpointError: it could not be saved for another reason.
        """
        if self._saver is None:
            return
        self._wait(self._saver)
        failure = self._report_save()
        if step == self._saved_step and not any(
            self.control.any_of(failure is not None)
        ):
            return
        wait_s = FIRST_WAIT_S
        while self._is_short_of_room(self._saver, step):
            self._wait_for_room(self._saver, step, wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        self._report_save()

    def last_good(self, step: int) -> Path | None:
        """The newest checkpoint up to a step; None if there is none.

        Later ones are set aside, so that whoever goes on does so from this one. All
        ranks call this together.
        """
        if self._saver is None:
            return None
        self._wait(self._saver)
        self._report_save()
        folders = self._saver.folders
        known = [one for one in steps_in(folders.root) if step_of(one) <= step]
        if self.control.rank == 0:
            for moved in folders.set_aside_after(step):
                self.warn(f"set aside as {moved}: its weights may be no good")
        return known[0] if known else None

    def _is_short_of_room(self, saver: Saver, step: int) -> bool:
        """Save; whether that failed because the disk is full.

        Raises:
            CheckpointError: it failed for another reason.
        """
        self._saved_step = -1
        self._save(step)
        self._wait(saver)
        failure = saver.take_failure()
        has_failed, is_full = self.control.any_of(
            failure is not None, isinstance(failure, NoRoomError)
        )
        if has_failed and not is_full:
            raise failure or CheckpointError(
                f"checkpoint of step {step} was not saved: another rank says why"
            )
        return is_full

    def _wait_for_room(self, saver: Saver, step: int, least_s: float) -> None:
        """Report that there is no room, and wait for it."""
        root = self.options.checkpoint_dir
        assert root is not None  # noqa: S101 - there is a saver
        num_bytes = sum(self.control.gather(saver.num_bytes))
        text = (
            f"no room in {root} for the checkpoint of step {step}: it needs "
            f"{at_least(num_bytes)}, and {at_most(free_bytes(root))} are free; what is "
            "trained waits for room: make some"
        )
        if self.control.rank == 0 and not self._waits:
            self.warn(text)
            self.reporter.event("unsaved", step=step, message=text, waits=True)
        self._waits = True
        wait_for_room(root, num_bytes, least_s, self.control)

    def _save(self, step: int) -> None:
        """Begin to save, unless that step is saved already."""
        self._is_due = False
        if self._saver is None or step == self._saved_step:
            return
        self.watch.begin(Phase.CHECKPOINT_SAVE)
        self._saver.loop = self.loop
        self._saver.start(step)
        self.watch(Phase.CHECKPOINT_SAVE)
        self._saved_step = step

    def _wait(self, saver: Saver) -> None:
        """Wait until no rank writes any more; often, so that no group times out."""
        while any(self.control.any_of(self.is_busy)):
            time.sleep(POLL_S)
        saver.discard()

    def _report_save(self) -> CheckpointError | None:
        """Report how the last save went, once it has ended; return its failure.

        Raises:
            TakenOverError: a later attempt has begun; the other ranks lose this one.
        """
        if self._saver is None:
            return None
        if failure := self._saver.take_failure():
            if isinstance(failure, TakenOverError):
                raise failure
            text = f"{failure}; training goes on"
            self.warn(text)
            self.reporter.event("unsaved", step=self._saved_step, message=text)
            return failure
        if figures := self._saver.take_figures():
            for moved in figures.set_aside:
                self.warn(
                    f"set aside as {moved}: it is later than step {figures.step}, and "
                    "another job wrote it; give each job its own --checkpoint-dir"
                )
            self.reporter.event(
                "checkpoint",
                step=figures.step,
                stall_s=figures.stall_s,
                write_s=figures.write_s,
                num_bytes=figures.num_bytes,
            )
        return None

    def _folders(self) -> Folders | None:
        """The job's own folder."""
        root = self.options.checkpoint_dir
        return Folders(root, self.options.attempt) if root else None
