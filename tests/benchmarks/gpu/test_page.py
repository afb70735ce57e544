"""The page of results says what its numbers rest on."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.gpu.page import page
from benchmarks.gpu.results import ModelResult, Results
from tests.benchmarks.gpu.made import MIB, a_rank, a_result

LEFT_OUT = "Ranks beside another process: 1."


def page_of(*models: ModelResult) -> str:
    """The page of some models."""
    results = Results(
        date="2026-11-24",
        device="h100, torch 2.15.0",
        kind="cuda",
        capacity_bytes=2**36,
        is_tiny=False,
        models={model.model: model for model in models},
    )
    return page(results, "build/gpu.json")


def test_ranks_beside_another_process_say_nothing_of_the_device() -> None:
    """They are left out of its two figures, and the page says how many and why."""
    beside = a_rank(
        rank=1, other_bytes=MIB, phases={"steady": (MIB, 2 * MIB, 99 * MIB)}
    )
    text = page_of(a_result("own", ranks=(a_rank(), beside)))
    summary = next(line for line in text.splitlines() if line.startswith("| own |"))
    assert "| 2 of 2 | 1 of 1 |" in summary
    assert "| 1 | 1 | 1.00 MiB | 1.00 MiB |" in text
    assert LEFT_OUT in text
    assert LEFT_OUT not in page_of(a_result("own"))


def test_a_model_without_ranks_keeps_the_rest() -> None:
    """Its profile and its edge."""
    text = page_of(a_result("own", ranks=(), errors=("P=1: no plan",)))
    assert "- not measured: P=1: no plan" in text
    assert "| saved | 0 % (+0 B) | block, b=1 |" in text
    assert "- micro-batch 7 on one device" in text


def test_a_model_without_a_profile_has_no_table_of_it() -> None:
    """A head without rows would look like a mistake."""
    text = page_of(a_result("own", profile=(), ranks=(), edge=(), errors=("no",)))
    assert "traced beside measured" not in text


def test_each_model_names_what_it_was_measured_with() -> None:
    """A driver may be replaced between two of them."""
    later = a_result("new", versions={"torch": "2.15.0", "driver": "601.2"})
    text = page_of(a_result("own"), later)
    assert "### own\n\nMeasured with torch 2.15.0, driver 600.1.\n" in text
    assert "### new\n\nMeasured with torch 2.15.0, driver 601.2.\n" in text
