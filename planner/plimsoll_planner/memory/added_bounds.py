"""Least seconds that recomputing adds, from sums over layers alone.

In: bytes of a chain, seconds that recomputing adds, what is around a stage. Out: lower
bounds [A, B] over all runs of layers, next to nothing to compute. Called by the search
before it builds options, which are exact (`stage_peaks.least_seconds`).

Letters as in `rank_peak`. Let x_l be what layer l holds of a micro-batch from forward
to backward: s, and the boundary behind it if that stays whatever the layer behind does.
All micro-batches in flight but one hold those of the whole run, and so does the last
one when its backward pass begins, at layer B - 1; without that layer itself

    peak >= start + k (sum of x_l, A <= l < B - 1)

Let d be how much less x is if a layer recomputes, and t what that adds. Within a
capacity C the layers that recompute must make up for what is too much,

    sum of d >= (sum of x, all kept) - (C - start) / k = E

and then, for any price p >= 0 of a byte (Lagrange),

    sum of t >= p E - (sum of max(p d - t, 0) over all layers)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import (
    KEPT,
    LARGEST_BYTES,
    RECOMPUTED,
    ChainBytes,
)

NUM_PRICES = 8
ROUNDING = 1e-9
"""Relative; sums of seconds are exact, products with prices are not."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeldBytes:
    """Bytes that each layer holds from forward to backward, [L]."""

    kept: Ints
    """x, if nothing recomputes that can be kept."""
    spared: Ints
    """d, at least 0."""


def held_bytes(chain: ChainBytes) -> HeldBytes:
    """Bytes that stay whatever other layers do."""
    every: Flags = np.all(chain.keeps_input | ~chain.allowed, axis=0)
    wanted: Flags = np.append(every[1:], False)
    stays: Ints = chain.saved + chain.boundary * (chain.keeps_output | wanted)
    more: Ints = (stays[KEPT] - stays[RECOMPUTED]) * chain.allowed[KEPT]
    can: Flags = chain.allowed[KEPT] & chain.allowed[RECOMPUTED]
    spared: Ints = np.maximum(more, 0) * can
    return HeldBytes(kept=stays[RECOMPUTED] + more, spared=spared)


def prices(spared: Ints, added_s: Floats) -> Floats:
    """Seconds for a byte that some layers take; the best price is that of a layer."""
    can = spared > 0
    ratios = np.unique(added_s[can] / spared[can])
    if len(ratios) <= NUM_PRICES:
        return np.asarray(ratios)
    places = np.linspace(0, len(ratios) - 1, NUM_PRICES).astype(np.int64)
    return np.asarray(ratios[places])


def least_added(
    held: HeldBytes, added_s: Floats, in_flight: int, room: Ints, bounds: Ints
) -> Floats:
    """[A, B]: lower bounds of what recomputing adds, infinite if nothing fits.

    [1] What is too much. [2] Runs that fit in no way. [3] The best of some prices.

    Args:
        held: what layers hold.
        added_s: [L], seconds that recomputing adds.
        in_flight: k.
        room: [A, B], C - start; see `stage_peaks.room_of`.
        bounds: [A], layers that a stage may begin with; L comes last.
    """
    first, last = bounds[:-1, None], np.maximum(bounds - 1, 0)[None, :]

    def sums(values: Ints | Floats) -> Floats:
        before = np.append(0.0, np.cumsum(values))
        return np.asarray(before[last] - before[first])

    # [1] excess
    is_run: Flags = bounds[None, :] > first
    of_each = room / in_flight
    kept = sums(held.kept)
    excess = kept - of_each
    # [2] impossible
    fits = kept - sums(held.spared) <= of_each * (1 + ROUNDING) + 1
    possible = is_run & (room > -LARGEST_BYTES) & fits
    # [3] prices
    found = np.zeros(excess.shape)
    for price in prices(held.spared, added_s):
        worth = np.maximum(price * held.spared - added_s, 0.0)
        np.maximum(found, price * excess - sums(worth), out=found)
    return np.where(possible, found * (1 - ROUNDING), np.inf)
