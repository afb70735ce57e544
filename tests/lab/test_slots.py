"""Slots keep labs apart: names, addresses, and at most sixteen at once."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
from pathlib import Path

import pytest

from tests.lab import slots
from tests.lab.errors import LabError


@pytest.fixture(autouse=True)
def no_other_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the slots lie in a folder of the test's own, and touch no links."""
    monkeypatch.setattr(slots, "root", lambda: tmp_path / "labs")
    monkeypatch.setattr(slots, "_sweep", lambda _: None)


def test_no_two_slots_share_an_address() -> None:
    """Links, pods and services of all slots are networks that do not overlap."""
    networks = [
        network
        for slot in slots.ALL
        for network in (
            ipaddress.IPv4Network(f"{slot.host_address}/24", strict=False),
            slot.pods,
            slot.services,
        )
    ]
    for one, other in itertools.combinations(networks, 2):
        assert not one.overlaps(other)


def test_names_of_links_fit_the_kernel() -> None:
    """No name of a link is longer than 15 characters."""
    assert max(len(slot.host_link) for slot in slots.ALL) <= 15


def test_all_slots_taken_is_explained() -> None:
    """The seventeenth lab gets a message on how to see and end the others."""
    with contextlib.ExitStack() as labs:
        numbers = [labs.enter_context(slots.take()).number for _ in slots.ALL]
        assert numbers == list(range(16))
        with pytest.raises(LabError, match=r"all 16 slots .* are taken: .* status"):
            labs.enter_context(slots.take())


def test_a_slot_is_free_again_after_its_lab() -> None:
    """A slot is taken while its lock is held, and leaves nothing behind."""
    with slots.take() as slot:
        assert slots.is_taken(slot)
        slot.state.rmdir()
    assert not slots.is_taken(slot)
    assert not slots.root().exists()
