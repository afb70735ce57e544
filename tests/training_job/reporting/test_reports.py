"""A rank reports at the start, when something is new, from time to time, at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.devices.peaks import STEP_PHASES, PeakWatch
from plimsoll_trainer.reporting.report_sink import file_sink
from plimsoll_trainer.reporting.reports import Reporter
from tests.support.builders import an_observation
from tests.support.jobs import Job, events
from tests.training_job.devices.test_peaks import Script


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        """Read it."""
        return self.now_s


def test_reports_follow_the_news(tmp_path: Path) -> None:
    """A peak 4 % larger is none; one 6 % larger is; so is a minute without any."""
    lines = file_sink(tmp_path / "report", print)
    peaks = [10, 100, 100, 100, 104, 100, 100, 106, 100, 100, 100, 100, 100, 1, 1, 1]
    watch, clock = PeakWatch(Script(*peaks)), Clock()
    reporter = Reporter(
        an_observation(peaks=(), num_steps=0, step_s=()),
        watch,
        lines=lines,
        every_s=60.0,
        clock=clock,
    )
    watch(Phase.BUILD)
    reporter.observe("start")
    for step in range(1, 6):
        clock.now_s += 20.0
        for phase in STEP_PHASES:
            watch(phase)
        reporter.after_step(step, 20.0, 12.0)
    reporter.observe("end")
    reporter.close()
    found = events(tmp_path / "report", "observation")
    reasons = [(f["reason"], f["observation"]["num_steps"]) for f in found]
    assert reasons == [
        ("start", 0),
        ("change", 1),  # the first step is a new phase
        ("change", 2),  # and so are those of the second
        ("time", 5),
        ("end", 5),
    ]
    documents = [Observation.from_json(f["observation"], "it") for f in found]
    assert documents[-1].step_s == (20.0,) * 5


def test_a_larger_peak_is_news(tmp_path: Path) -> None:
    """More than 5 % above the last report."""
    peaks = [1, 1, 1, 100, 1, 1, 104, 1, 1, 106, 1, 1]
    watch = PeakWatch(Script(*peaks))
    lines = file_sink(tmp_path / "report", print)
    reporter = Reporter(an_observation(peaks=()), watch, lines=lines, every_s=60.0)
    for step in range(1, 5):
        for phase in STEP_PHASES:
            watch(phase)
        reporter.after_step(step, 0.1, 0.1)
    reporter.close()
    reported = events(tmp_path / "report", "observation")
    assert [line["observation"]["num_steps"] for line in reported] == [1, 2, 4]


def test_a_loss_that_is_no_number_is_still_json(tmp_path: Path) -> None:
    """JSON has no NaN."""
    lines = file_sink(tmp_path / "report", print)
    watch = PeakWatch(Script())
    reporter = Reporter(an_observation(peaks=()), watch, lines=lines, every_s=60.0)
    reporter.event("step", step=1, loss=float("nan"))
    reporter.close()

    def refuse(text: str) -> None:
        raise AssertionError(text)

    (line,) = (tmp_path / "report").read_text().splitlines()
    assert json.loads(line, parse_constant=refuse)["loss"] == "nan"


def test_several_ranks_may_have_a_file_each(job: Job) -> None:
    """If many nodes share a folder, `{rank}` in the name keeps them apart."""
    job.run((0, 2, 5), 2, report="of-{rank}")
    for rank in range(2):
        found = events(job.report(f"of-{rank}"), "observation")
        assert {line["rank"] for line in found} == {rank}
