"""Rules for the whole suite: its plugins, and what a skip means."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest

from tools.ci import IN_CI

pytest_plugins = ["tests.lab.fixtures", "tests.support.drawing"]

# Tests start torch some hundred times. If Python is set to keep no compiled
# modules, as in many images, each start compiles them anew: some 8 s more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What torch and others make as they are imported stays. Until all tests are collected
# nothing looks for garbage in it.
gc.disable()

NEEDS_GPU = ("needs", "a GPU")
"""In what is reported of a test that was skipped for that."""


def pytest_collection_finish() -> None:
    """Let torch compute with one thread, as ranks and probers do.

    Beside other programs its threads wait for each other without letting go of a core:
    40 steps of a small Llama took 33.8 s of CPU with two of them, and 1.9 s with one.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skip fail in CI, where everything must be there but a GPU."""
    report = yield
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("gpu")
    if report.skipped and item.get_closest_marker("gpu"):
        report.user_properties.append(NEEDS_GPU)
    if IN_CI and report.skipped and not expected:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        report.outcome = "failed"
        report.longrepr = f"in CI a skip is a failure: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of skipped tests that need a GPU, for `tools.part_queue`."""
    skipped = terminalreporter.stats.get("skipped", ())
    if num := sum(NEEDS_GPU in report.user_properties for report in skipped):
        terminalreporter.write_line(f"{num} need a GPU")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[
    None, pytest.CollectReport, pytest.CollectReport
]:
    """Let the skip of a whole file name a command, and fail in CI as well."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if reason.startswith("Skipped: could not import"):
            report.longrepr = (path, line, f"{reason}: run `make test`, which adds it")
    if IN_CI and report.skipped:
        report.outcome = "failed"
    return report
