"""Small valid results of `make gpu`; a test overrides what it is about."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.results import EdgeRow, ModelResult, ProfileRow, RankRow

MIB = 2**20


def a_rank(**fields: Any) -> RankRow:
    """A rank that ran as predicted, alone."""
    given: dict[str, Any] = {
        "plan": "P=1 b=1, none recomputed",
        "rank": 0,
        "micro_batch": 1,
        "allocated": (MIB, MIB, MIB),
        "allocated_by_measured": (MIB, MIB, MIB),
        "device": (3 * MIB, 3 * MIB, 3 * MIB),
        "replayed_bytes": MIB,
        "phases": {"steady": (MIB, 2 * MIB, 3 * MIB)},
        "busy_s": (1.0, 1.0, 1.0),
        "step_s": (1.0, 1.0),
        "other_bytes": 0,
    }
    return RankRow(**given | fields)


def an_edge_row(**fields: Any) -> EdgeRow:
    """A micro-batch that was predicted to fit, and did."""
    given: dict[str, Any] = {
        "micro_batch": 7,
        "predicted": "fits",
        "ran": True,
        "device": (MIB, MIB, MIB),
        "peak_device_bytes": MIB,
    }
    return EdgeRow(**given | fields)


def a_profile_row(**fields: Any) -> ProfileRow:
    """A quantity that was traced as it was measured."""
    given: dict[str, Any] = {
        "quantity": "saved",
        "largest_error": 0.0,
        "where": "block, b=1",
        "num_compared": 1,
        "largest_error_bytes": 0,
    }
    return ProfileRow(**given | fields)


def a_result(model: str, **fields: Any) -> ModelResult:
    """A model of which everything was measured."""
    given: dict[str, Any] = {
        "model": model,
        "num_parameters": 1_000_000,
        "num_plans": 5,
        "versions": {"torch": "2.15.0", "driver": "600.1"},
        "wall_s": 60.0,
        "profile": (a_profile_row(),),
        "ranks": (a_rank(),),
        "edge": (an_edge_row(),),
    }
    return ModelResult(**given | fields)
