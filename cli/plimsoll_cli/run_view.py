"""Shows how a plan goes on: a line for what is settled, below it what is under way.

In: a glance after each pass of the loop. Out: stderr, so that stdout stays for results.
On a terminal the last lines move: a bar of probes or steps, and how full every device
is against its load line. Where nobody watches, as in a log, lines come every few
seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from plimsoll_cli.memory_bars import memory_bars
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.brain.failures import RESPONSES
from plimsoll_operator.home.loop import Glance
from plimsoll_planner.explain import counted

LINE_EVERY_S = 10.0
"""Between lines of progress where nobody watches."""
BAR_WIDTH = 28
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

    def __init__(self, *, is_quiet: bool) -> None:
        """Show on stderr; nothing at all where it is quiet."""
        self.is_quiet = is_quiet
        self._page = Console(
            stderr=True, highlight=False, markup=False, emoji=False, quiet=is_quiet
        )
        self._live = Live(
            console=self._page, transient=True, refresh_per_second=8, screen=False
        )
        self._glance: Glance | None = None
        self._told: dict[ConditionType, tuple[Truth, str]] = {}
        self._attempts_told = 0
        self._began_s: dict[str, float] = {}
        self._line_s = 0.0
        self._waits = ""
        self.status = Status()

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._page.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the lines that are settled."""
        self._live.stop()

    def say(self, text: str, mark: str = OPEN) -> None:
        """Add a line that stays."""
        self._page.print(Text(f"{mark} {text}"), soft_wrap=True)

    def passed(self, glance: Glance) -> None:
        """Take what one pass has seen."""
        self._glance, self.status = glance, glance.status
        for condition in glance.status.conditions:
            self._began_s.setdefault(condition.reason, time.monotonic())
            self._settle(glance, condition)
        self._tell_endings(glance)
        self.tick()

    def tick(self) -> None:
        """Show what is under way."""
        if self._glance is None:
            return
        if self._page.is_terminal:
            self._live.update(self._under_way(self._glance))
        elif time.monotonic() - self._line_s > LINE_EVERY_S:
            self._line_s = time.monotonic()
            if text := activity_text(self._glance):
                self.say(text)

    def waits(self, reason: str) -> None:
        """Say why nothing can be decided now, once for each reason."""
        if reason != self._waits:
            self._waits = reason
            self.say(f"waiting: {reason}", BAD)

    def _settle(self, glance: Glance, condition: Condition) -> None:
        """Add the line of a condition that has settled."""
        said = condition.status, condition.reason
        if condition.type not in SETTLED or condition.status is Truth.UNKNOWN:
            return
        if self._told.get(condition.type) == said:
            return
        self._told[condition.type] = said
        is_good = condition.status is Truth.TRUE
        self.say(settled_text(glance, condition), DONE if is_good else BAD)

    def _tell_endings(self, glance: Glance) -> None:
        """Add a line for each attempt that has ended, but for one that is done."""
        ended = [a for a in glance.seen.attempts if a.ending is not None]
        for attempt in ended[self._attempts_told :]:
            response = RESPONSES.get(attempt.ending) if attempt.ending else None
            if response is not None:
                text = f"attempt {attempt.number} ended: {response.reason}"
                self.say(f"{text}: {attempt.message}" if attempt.message else text, BAD)
        self._attempts_told = len(ended)

    def _under_way(self, glance: Glance) -> RenderableType:
        """Draw what is under way."""
        parts: list[RenderableType] = []
        if done := progress_of(glance):
            row = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=done[1], completed=done[0], width=BAR_WIDTH)
            row.add_row(Spinner("dots"), bar, Text(activity_text(glance)))
            parts.append(row)
        else:
            parts.append(Spinner("dots", Text(activity_text(glance))))
        if is_training(glance) and glance.reports is not None:
            plan = glance.seen.attempts[-1].plan
            parts += memory_bars(plan, glance.reports.observations)
        return Group(*parts)


def settled_text(glance: Glance, condition: Condition) -> str:
    """Return what a condition means for people."""
    is_true = condition.status is Truth.TRUE
    if condition.type is ConditionType.PROFILED and is_true and glance.seen.profile:
        was = "from the cache" if glance.seen.profile.was_cached else "just now"
        return f"profile: {glance.seen.profile.source}, {was}"
    if condition.type is ConditionType.PLANNED:
        return f"plan: {condition.message}"
    if condition.type is ConditionType.CERTIFIED and is_true:
        return "replay: every rank agrees"
    message = f": {condition.message}" if condition.message else ""
    return f"{condition.type.value.lower()}: {words_of(condition.reason)}{message}"


def is_training(glance: Glance) -> bool:
    """Tell whether ranks run now."""
    return glance.status.holds(ConditionType.LAUNCHED) and not glance.status.is_over


def activity_text(glance: Glance) -> str:
    """Return what is under way, in a line."""
    if is_training(glance):
        return training_text(glance)
    if work := work_of(glance):
        return f"profiling: {work['what']} ({work['done']} of {work['total']})"
    open_ones = [
        c.reason
        for c in glance.status.conditions
        if c.status is not Truth.TRUE and c.reason != "Waiting"
    ]
    return words_of(open_ones[0]) if open_ones else ""


def words_of(reason: str) -> str:
    """Return a reason as words, `BackingOff` as `backing off`."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in reason)
    return spaced.strip()


def training_text(glance: Glance) -> str:
    """Return how far the training is."""
    num_steps = glance.plan.spec.training.steps
    steps = glance.reports.steps if glance.reports is not None else []
    if not steps:
        ranks = counted(glance.seen.attempts[-1].plan.num_gpus, "rank")
        return f"attempt {len(glance.seen.attempts)}: {ranks} are starting"
    latest = steps[-LATEST_STEPS:]
    seconds = sum(step.step_s for step in latest) / len(latest)
    rate = glance.plan.spec.training.global_batch_size / max(seconds, 1e-9)
    return (
        f"step {steps[-1].step}/{num_steps}  loss {steps[-1].loss:.4g}  "
        f"{rate:.4g} samples/s"
    )


def progress_of(glance: Glance) -> tuple[int, int] | None:
    """Return what is done of how much, None where that is not known."""
    if is_training(glance):
        steps = glance.reports.steps if glance.reports is not None else []
        return (steps[-1].step if steps else 0, glance.plan.spec.training.steps)
    work = work_of(glance)
    return (work["done"], work["total"]) if work else None


def work_of(glance: Glance) -> dict[str, Any] | None:
    """Return the last line of progress that a child has printed."""
    return next(progress_lines(glance), None)


def progress_lines(glance: Glance) -> Iterator[dict[str, Any]]:
    """Yield lines of progress, the latest first."""
    if glance.work is None or not glance.work.exists():
        return
    for line in reversed(glance.work.read_text(errors="replace").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "done" in found:
            yield found
