"""Shows how a plan goes on: a line for what is settled, below it what is under way.

In: the result of each pass of the loop. Out: stderr, so that stdout stays for results.
On a terminal the last lines move: a bar of probes or steps, and how full every device
is against its load line. Where nobody watches, as in a log, lines come every few
seconds, and none twice.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from plimsoll_cli.output.memory_bars import memory_bars
from plimsoll_operator.api.reasons import WAITING
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.backends.local.loop import PassResult
from plimsoll_operator.backends.local.rank_reports import Unsaved
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import Ending, RevisionState
from plimsoll_operator.rules.summary import revision_text
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.observation import of_plan
from plimsoll_planner.text.counts import counted, device_noun
from plimsoll_planner.units import number_text

LINE_EVERY_S = 10.0
"""Between lines of progress where nobody watches."""
BAR_WIDTH = 28
UNREPORTED = (WAITING, "Suspended")
"""Reasons of conditions under which nothing goes on."""
LATEST_STEPS = 20
"""That the rate is taken over."""
DONE, BAD, OPEN = "✓", "✗", "·"
SETTLED = (
    ConditionType.PROFILED,
    ConditionType.PLANNED,
    ConditionType.CERTIFIED,
)
"""Conditions that get a line once they are no longer open."""


class RunView:
    """Watches one run of the loop."""

    def __init__(self, *, is_quiet: bool = False, is_brief: bool = False) -> None:
        """Show on stderr; quiet: nothing; brief: nothing that was settled before."""
        self.is_quiet = is_quiet
        self._is_brief = is_brief
        self._page = Console(
            stderr=True, highlight=False, markup=False, emoji=False, quiet=is_quiet
        )
        self._live = Live(console=self._page, transient=True, refresh_per_second=8)
        self._result: PassResult | None = None
        self._reported: dict[ConditionType, tuple[Truth, str]] = {}
        self._refuted: str = ""
        self._attempts_reported = 0
        self._begun = 0
        """Number of the latest attempt that has trained."""
        self._line_s = 0.0
        self._line: str = ""
        self._waits = ""
        self._unsaved: Unsaved | None = None
        self._revisions: set[tuple[int, int]] = set()
        """Of which there are lines, by attempt."""
        self._spinner = Spinner("dots")
        self.status = Status()
        self.outcome: dict[str, object] = {}
        """Fields of the JSON beside the status, once the plan has ended."""

    @property
    def is_watched(self) -> bool:
        """Whether lines can move: stderr is a terminal."""
        return self._page.is_terminal and not self.is_quiet

    @property
    def complaint(self) -> str:
        """The error of a spec that asks for what is not there."""
        accepted = self.status.condition(ConditionType.ACCEPTED)
        return accepted.message if accepted is not None else ""

    def __enter__(self) -> Self:
        """Begin to show."""
        if self.is_watched:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the lines that are settled."""
        self._live.stop()

    def say(self, text: str, mark: str = OPEN) -> None:
        """Add a line that stays."""
        self._page.print(Text(f"{mark} {text}"), soft_wrap=True)

    def passed(self, result: PassResult) -> None:
        """Take what one pass has seen."""
        if self._result is None:
            self._attempts_reported = len(ended_in(result))
        self._result, self.status = result, result.status
        self._report_refuted(result)
        for condition in result.status.conditions:
            self._settle(result, condition)
        self._report_unsaved(result)
        self._report_resumed(result)
        self._report_revisions(result)
        self._report_endings(result)
        self.tick()

    def tick(self) -> None:
        """Show what is under way."""
        if self._result is None or self.complaint:
            return
        text = activity_text(self._result)
        if self.is_watched:
            self._live.update(self._under_way(self._result, text))
            return
        is_due = time.monotonic() - self._line_s > LINE_EVERY_S
        if is_due and text not in ("", self._line):
            self._line_s, self._line = time.monotonic(), text
            self.say(text)

    def waits(self, reason: str) -> None:
        """Print why something cannot be done now, once for each reason, and its end."""
        if reason == self._waits:
            return
        self._waits = reason
        if reason:
            self.say(f"waiting: {reason}", BAD)
        else:
            self.say("goes on", DONE)

    def _settle(self, result: PassResult, condition: Condition) -> None:
        """Add the line of a condition that has settled."""
        outcome = condition.status, condition.reason
        if condition.type not in SETTLED or condition.status is Truth.UNKNOWN:
            return
        if self._is_brief or self._reported.get(condition.type) == outcome:
            return
        self._reported[condition.type] = outcome
        is_good = condition.status is Truth.TRUE
        self.say(settled_text(result, condition), DONE if is_good else BAD)

    def _report_refuted(self, result: PassResult) -> None:
        """Add a line where a plan was given up because its rehearsal ran out of memory.

        The next one gets lines of its own, also where it reads the same.
        """
        if self._is_brief or result.state.refuted in ("", self._refuted):
            return
        self._refuted = result.state.refuted
        self.say(self._refuted, BAD)
        self._reported.pop(ConditionType.PLANNED, None)

    def _report_unsaved(self, result: PassResult) -> None:
        """Add a line where checkpoints are no longer saved, and where they are again.

        Not for each of them: many may fail in a row.
        """
        before = self._unsaved
        found = result.reports.unsaved if result.reports is not None else None
        self._unsaved = found
        if found is None and before is not None and is_training(result):
            self.say("checkpoints are saved again", DONE)
        elif found is not None and (before is None or before.waits != found.waits):
            self.say(found.message, BAD)

    def _report_resumed(self, result: PassResult) -> None:
        """Add a line where an attempt goes on from a checkpoint."""
        steps = result.reports.steps if result.reports is not None else []
        number = result.status.attempt
        if not steps or number == self._begun or not is_training(result):
            return
        self._begun = number
        if (saved := steps[0].step - 1) > 0 and not self._is_brief:
            self.say(f"attempt {number} goes on from step {saved}", DONE)

    def _report_revisions(self, result: PassResult) -> None:
        """Add a line for each revision that ranks have answered."""
        for one in result.status.revisions:
            place = result.status.attempt, one.revision
            if one.state != RevisionState.OFFERED and place not in self._revisions:
                self._revisions.add(place)
                is_followed = one.state == RevisionState.FOLLOWED
                self.say(f"plan {revision_text(one)}", DONE if is_followed else BAD)

    def _report_endings(self, result: PassResult) -> None:
        """Add a line for each attempt that has ended, unless all steps are done."""
        ended = ended_in(result)
        for attempt in ended[self._attempts_reported :]:
            response = RESPONSES.get(attempt.ending) if attempt.ending else None
            if attempt.ending is Ending.DONE and attempt.message:
                self.say(attempt.message, DONE)
            elif attempt.ending is Ending.CHECKPOINTED:
                self.say(f"attempt {attempt.number} has saved and left", DONE)
            elif response is not None:
                noun = device_noun(attempt.plan.offers)
                why = words_of(response.reason).replace("GPU", noun)
                text = f"attempt {attempt.number} ended: {why}"
                self.say(f"{text}: {attempt.message}" if attempt.message else text, BAD)
        self._attempts_reported = len(ended)

    def _under_way(self, result: PassResult, text: str) -> RenderableType:
        """Draw what is under way: a spinner, a bar where there is room, and words."""
        columns, done = self._page.width, progress_of(result)
        cells: list[RenderableType] = [self._spinner]
        if done and len(text) + BAR_WIDTH + 4 <= columns:
            made, total = done
            bar = ProgressBar(total=total, completed=made, width=BAR_WIDTH)
            bar.complete_style = bar.finished_style = "cyan"
            cells.append(bar)
        cells.append(Text(text, no_wrap=True, overflow="ellipsis"))
        row = Table.grid(padding=(0, 1))
        row.add_row(*cells)
        parts: list[RenderableType] = [row]
        if is_training(result) and result.reports is not None:
            attempt, running = result.state.attempts[-1], result.state.running
            plan = attempt.plan if running is None else running.plan
            observed = of_plan(plan, result.reports.observations)
            planned = result.status.plan
            usable = planned.capacity_bytes if planned is not None else 0
            parts += memory_bars(plan, observed, usable, columns)
        return Group(*parts)


def ended_in(result: PassResult) -> list[StoredAttempt]:
    """The attempts whose end is written down."""
    return [one for one in result.state.attempts if one.ending is not None]


def settled_text(result: PassResult, condition: Condition) -> str:
    """Meaning of a condition for people."""
    is_true = condition.status is Truth.TRUE
    if condition.type is ConditionType.PROFILED and is_true and result.state.profile:
        was = "from the cache" if result.state.profile.was_cached else "just now"
        return f"profile: {result.state.profile.source}, {was}"
    if condition.type is ConditionType.PLANNED:
        return f"plan: {condition.message}"
    if condition.type is ConditionType.CERTIFIED and is_true:
        agreed = "replay: every rank agrees"
        is_rehearsed = condition.reason == "Rehearsed"
        what = "rehearsal: " if is_rehearsed else ""
        # Which plan was given up before has a line already.
        message = condition.message.removesuffix(f"; {result.state.refuted}")
        return f"{agreed}; {what}{message}" if message else agreed
    ended = result.status.condition(ConditionType.SUCCEEDED)
    # What the whole plan ends with is reported at its end.
    is_last = ended is not None and ended.message == condition.message
    message = "" if is_last or not condition.message else f": {condition.message}"
    return f"{condition.type.value.lower()}: {words_of(condition.reason)}{message}"


def is_training(result: PassResult) -> bool:
    """Whether ranks run now."""
    attempts = result.state.attempts
    is_open = bool(attempts) and attempts[-1].ending is None
    return is_open and result.status.holds(ConditionType.LAUNCHED)


def activity_text(result: PassResult) -> str:
    """The activity under way, in a line."""
    if result.status.is_over:
        return ""
    if is_training(result):
        return training_text(result)
    open_ones = [
        c.reason
        for c in result.status.conditions
        if c.status is not Truth.TRUE and c.reason not in UNREPORTED
    ]
    if work := work_of(result):
        verb = "replaying" if "Replaying" in open_ones else "profiling"
        return f"{verb}: {work['what']} ({work['done']} of {work['total']})"
    return words_of(open_ones[0]) if open_ones else ""


def words_of(reason: str) -> str:
    """A reason as words, `GPUOutOfMemory` as `GPU out of memory`."""
    words = re.findall("[A-Z]{2,}(?![a-z])|[A-Z][a-z]*", reason)
    return " ".join(word if word[1:].isupper() else word.lower() for word in words)


def training_text(result: PassResult) -> str:
    """Progress of the training, in a line."""
    num_steps = result.plan.spec.training.steps
    steps = result.reports.steps if result.reports is not None else []
    if not steps:
        attempt = result.state.attempts[-1]
        ranks, number = counted(attempt.plan.num_gpus, "rank"), attempt.number
        verb = "is" if attempt.plan.num_gpus == 1 else "are"
        return f"attempt {number}: {ranks} {verb} starting"
    latest = steps[-LATEST_STEPS:]
    seconds = sum(step.step_s for step in latest) / len(latest)
    rate = result.plan.spec.training.global_batch_size / max(seconds, 1e-9)
    return (
        f"step {steps[-1].step}/{num_steps}  loss {steps[-1].loss:.4g}  "
        f"{number_text(rate)} samples/s"
    )


def progress_of(result: PassResult) -> tuple[int, int] | None:
    """Parts done, of how many; None if that is not known."""
    if is_training(result):
        steps = result.reports.steps if result.reports is not None else []
        return (steps[-1].step if steps else 0, result.plan.spec.training.steps)
    work = work_of(result)
    return (work["done"], work["total"]) if work else None


def work_of(result: PassResult) -> dict[str, Any] | None:
    """The last line of progress that a task process has printed, None before one."""
    if result.work is None or not result.work.exists():
        return None
    for line in reversed(result.work.read_text(errors="replace").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "done" in found:
            return cast("dict[str, Any]", found)
    return None
