"""Seconds that the other way of a stage adds to the passes of its layers.

In: seconds and bytes of a chain for one bound, an offer. Out: an `AddedSeconds`. Called
by `variant_tables`. What is recomputed counts in the backward pass; what goes to the
host and comes back is as `techniques/offloaded_activations` has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.chain_bytes import RECOMPUTED, ChainBytes
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.timing.chain_seconds import ChainSeconds, rounded
from plimsoll_planner.timing.topology import hop


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AddedSeconds:
    """Arrays over the layers, shape [L]."""

    forward: Floats
    backward: Floats

    @property
    def both(self) -> Floats:
        """Of both passes."""
        return self.forward + self.backward

    @property
    def is_in_forward(self) -> bool:
        """Whether some of it is in forward passes."""
        return bool(self.forward.any())

    @property
    def in_forward(self) -> tuple[float, float]:
        """Smallest and largest part of a layer's that its forward pass takes."""
        is_some = self.both > 0
        if not is_some.any():
            return 0.0, 0.0
        parts = self.forward[is_some] / self.both[is_some]
        return float(parts.min()), float(parts.max())


def added_seconds(
    seconds: ChainSeconds, chain: ChainBytes, offer: Offer, bound: Bound
) -> AddedSeconds:
    """Seconds of each layer that is not kept, for one bound."""
    recompute = seconds.recompute * chain.other.recomputes
    if not chain.other.offloads:
        return AddedSeconds(forward=np.zeros_like(recompute), backward=recompute)
    link = hop(offer.link_to_host)
    sharing = 1
    if offer.host_link_shared and bound is not Bound.LOWER:
        sharing = offer.devices_per_node
    num_bytes = chain.on_host[RECOMPUTED]
    alone = link.latency_s * (num_bytes > 0) + link.s_per_byte * num_bytes
    copies = np.array([rounded(one * sharing, bound) for one in alone.tolist()])
    if bound is not Bound.LOWER:
        return AddedSeconds(forward=copies, backward=recompute + copies)
    backward = seconds.backward
    return AddedSeconds(
        forward=np.maximum(copies - seconds.forward, 0.0),
        backward=np.maximum(recompute, copies - backward),
    )
