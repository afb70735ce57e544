"""The page as a whole: what it says, what it leaves out, and that it is alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report import report_html
from tests.support.reports import a_record, a_run


def test_a_run_is_told_from_the_plan_to_the_loss() -> None:
    """Plan, memory, step, proof and course are on one page."""
    page = report_html(a_run())
    for told in ("Succeeded", "Memory by rank", "One step", "Why not fewer", "The run"):
        assert told in page


def test_what_is_not_there_is_left_out() -> None:
    """Before anything is known there is a name and a state, and no empty section."""
    record = replace(a_record(), problem=None, answer=None)
    page = report_html(record)
    assert "No plan yet" in page
    for absent in ("Memory by", "One step", "Why not", "Attempts"):
        assert absent not in page


def test_what_users_write_is_escaped() -> None:
    """A name is text, wherever it stands."""
    page = report_html(replace(a_run(), name="<script>alert(1)</script>"))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
