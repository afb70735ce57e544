"""Amounts as people read them; exact ones stay in JSON."""

from __future__ import annotations

from plimsoll_cli.options.types import UNITS


def format_bytes(num_bytes: int) -> str:
    """Bytes as people read them, `80.0 GiB`; exact bytes stay in JSON."""
    for unit, size in reversed(UNITS.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"


def format_flop(flop: float) -> str:
    """Arithmetic as people read it, `6.32 TFLOP`, in powers of 1000."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flop >= size:
            return f"{flop / size:.3g} {unit}FLOP"
    return f"{flop:.3g} FLOP"
