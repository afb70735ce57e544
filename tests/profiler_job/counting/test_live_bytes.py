"""Bytes of live tensors, counted at every operator."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_profiler.counting.live_bytes import LiveBytes


def test_views_are_not_counted_and_the_dead_are_taken_off() -> None:
    """1000 floats are 4000 bytes, however many views; the peak stays."""
    with LiveBytes() as live:
        first = torch.empty(1000)
        view = first.view(10, 100)
        assert live.current_bytes == 4000
        second = first + 1
        assert live.current_bytes == 8000
        del first, second
        assert live.current_bytes == 4000  # the view holds the first
        del view
        assert (live.current_bytes, live.peak_bytes) == (0, 8000)
        live.reset_peak()
        assert live.peak_bytes == 0


def test_blocks_are_rounded_up() -> None:
    """A byte takes a block of CUDA's allocator; nothing takes none."""
    with LiveBytes(block_bytes=512) as live:
        one = torch.empty(1, dtype=torch.uint8)
        assert live.current_bytes == 512
        none = torch.empty(0)
        assert live.current_bytes == 512
        del one, none


def test_a_tensor_from_before_counts_once() -> None:
    """Tensors from before the mode are added by hand, and only once."""
    old = torch.empty(10)
    with LiveBytes() as live:
        assert live.current_bytes == 0
        live.add(old)
        live.add(old.view(5, 2))
        assert live.current_bytes == 40
        old += 1
        assert live.current_bytes == 40


def test_shapes_without_storage_are_free() -> None:
    """A meta tensor holds nothing."""
    with LiveBytes() as live:
        example = torch.empty(1000, device="meta")
        assert live.current_bytes == 0
        del example


def test_a_pass_tells_what_it_would_take_with_its_input_held() -> None:
    """Where the input dies in the midst, and where it lives to the end."""
    with LiveBytes() as live:
        entering = torch.empty(1000)
        live.watch(entering)
        inner = entering + 1
        assert (live.peak_bytes, live.held_peak_bytes) == (8000, 8000)
        del entering
        outer = torch.empty(2000)
        assert (live.peak_bytes, live.held_peak_bytes) == (12000, 16000)
        live.reset_peak()
        assert (live.peak_bytes, live.held_peak_bytes) == (12000, 16000)
        live.watch(inner)
        del outer
        live.reset_peak()
        assert (live.peak_bytes, live.held_peak_bytes) == (4000, 4000)
