"""Memory of Plimsoll's trainer follows from the profile's torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.engines import (
    BY_TORCH,
    PLIMSOLL,
    PLIMSOLL_ON_TORCH_2_11,
    engine_named,
    places_operators,
)
from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.engine import EngineTraits, ReceiveBuffers


@pytest.mark.parametrize(
    ("torch_version", "traits", "version"),
    [
        ("2.11.0+cu130", PLIMSOLL_ON_TORCH_2_11, "torch 2.11"),
        ("2.12.1", PLIMSOLL_ON_TORCH_2_11, "torch 2.12"),
        ("2.13.0+cpu", PLIMSOLL_ON_TORCH_2_11, "torch 2.13"),
        ("2.14.1", PLIMSOLL_ON_TORCH_2_11, "torch 2.14"),
        ("2.15.0+cu132", PLIMSOLL, "torch 2.15"),
        ("2.15.3", PLIMSOLL, "torch 2.15"),
    ],
)
def test_a_known_torch_has_its_own_traits(
    torch_version: str, traits: EngineTraits, version: str
) -> None:
    """Those of the releases that real ranks were held against, by minor number."""
    assert engine_named("plimsoll", torch_version) == replace(traits, version=version)


def test_engine_graph_alone_places_operators() -> None:
    """And what is no engine does not."""
    names = ("plimsoll", "graph", "other")
    assert [places_operators(name) for name in names] == [False, True, False]


def test_old_releases_keep_buffers_and_outputs() -> None:
    """And can do the same: the two differ in what they hold alone."""
    old = PLIMSOLL_ON_TORCH_2_11
    assert old.holds.receive_buffers is ReceiveBuffers.ALL_MICRO_BATCHES
    assert old.holds.stage_outputs_kept
    assert PLIMSOLL.holds.receive_buffers is ReceiveBuffers.JUST_IN_TIME
    assert not PLIMSOLL.holds.stage_outputs_kept
    assert replace(old, version=PLIMSOLL.version, holds=PLIMSOLL.holds) == PLIMSOLL


@pytest.mark.parametrize(
    ("torch_version", "before", "version"),
    [
        ("2.16.0", (2, 15), "torch 2.16"),
        ("3.0.0+cu140", (2, 15), "torch 3.0"),
        ("2.15.0a0+gitabc", (2, 11), "torch 2.15a0"),
        ("2.15.0.dev20261001", (2, 11), "torch 2.15.dev20261001"),
        ("2.15rc2", (2, 11), "torch 2.15rc2"),
        ("2.15.1rc1", (2, 15), "torch 2.15rc1"),
        ("2.16.0a0+gitabc", (2, 15), "torch 2.16a0"),
        ("2.11.0a0+nv26.02", (2, 11), "torch 2.11a0"),
        ("2.14.0.dev20260901+cu130", (2, 11), "torch 2.14.dev20260901"),
        ("2.12.0rc3", (2, 11), "torch 2.12rc3"),
    ],
)
def test_a_torch_nobody_looked_at_is_not_relied_on(
    torch_version: str, before: tuple[int, int], version: str
) -> None:
    """It counts as the release before it, unverified, which widens its bytes."""
    found = engine_named("plimsoll", torch_version)
    known = BY_TORCH[before]
    assert (found.version, found.holds, found.can) == (version, known.holds, known.can)
    assert not found.verified


@pytest.mark.parametrize("torch_version", ["2.10.0+cu128", "1.13.1", "none", "unknown"])
def test_a_torch_that_is_too_old_is_refused(torch_version: str) -> None:
    """The line names the version found, the oldest that works, and what to do."""
    with pytest.raises(CannotPlanError) as caught:
        engine_named("plimsoll", torch_version)
    assert str(caught.value) == (
        f"the profile was made with torch {torch_version}, and plimsoll trains with "
        "2.11 or newer: profile again with such a torch"
    )
