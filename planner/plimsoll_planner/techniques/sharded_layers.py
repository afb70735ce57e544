"""Gradients, or parameters as well, divided over the replicas of a stage (ZeRO-2, 3).

A replica keeps a D-th of what is divided. A layer has the rest while it is at work: in
each forward pass its parameters are gathered, in each backward pass again, and its
gradients are reduced to their owners as soon as they are computed. With p', g' and n'
as in `divided_state`:

    level         state                               forward    backward
    gradients     p' + g' / D + buffers + o n' / D               + g'
    parameters    (p' + g') / D + buffers + o n' / D  + p'       + p' + g'

The last layer is whole until the loss is computed, and from the loss's backward pass
on. One layer is whole at a time, nothing is gathered ahead. Layers that share a
parameter with others, that are not divided, or that have several buffers, are as in
`divided_state`.

On the wire each forward pass takes half of an all-reduce of p, each backward pass as
much and half of one of g (with gloo, all of one of g). Seconds of both are added to
those of the pass: nothing is computed meanwhile. Source: Rajbhandari et al., ZeRO, SC
2020 (stages 2 and 3); measured on real ranks, docs/decisions/0031.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Flags, Ints
from plimsoll_planner.memory.chain_bytes import WIDEST, ChainBytes, countable_bytes
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.techniques.divided_state import VECTOR, DividedOptimizer, known
from plimsoll_planner.techniques.technique import Choice


@dataclass(frozen=True, slots=True)
class LayersAtWork(Choice):
    """Bytes of layers while they are at work, for any number of replicas.

    Numbers that pad a buffer count for the upper bound, as for the most replicas.
    """

    level: Sharding
    most: int
    """Replicas, at most."""

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Those of each pass are added."""
        found = known(chain)
        is_sharded = sharded(chain, self.most if chain.bound is Bound.LOWER else 2)
        padding = VECTOR * self.most * WIDEST if chain.bound is Bound.UPPER else 0
        zero = np.zeros_like(chain.gradient)
        parameter, gradient = zero, chain.gradient + padding
        if self.level is Sharding.PARAMETERS:
            parameter = found.num_numbers * found.computed + padding
        forward: Ints = np.where(is_sharded, parameter, zero)
        backward: Ints = np.where(is_sharded, parameter + gradient, zero)
        return replace(
            chain,
            forward_transient=chain.forward_transient + forward,
            backward_transient=chain.backward_transient + backward,
            backward_transient_at_end=chain.backward_transient_at_end + backward,
        )


@dataclass(frozen=True, slots=True)
class ShardedLayers(DividedOptimizer):
    """Layers of a stage divided over D replicas."""

    work: LayersAtWork

    @property
    def stated(self) -> dict[str, Any]:
        """See the base."""
        return {"sharding": self.work.level}

    @property
    def at_work(self) -> Choice:
        """See the base."""
        return self.work

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """State of the layers, and what they need at work; see the module's text."""
        found, degree = known(chain), self.data_degree
        divided = DividedOptimizer.bytes(self, self.work.bytes(chain))
        is_sharded = sharded(chain, degree)
        gathered = found.num_numbers * found.computed // 2
        reduced = chain.gradient // 2 if self.in_place else chain.gradient

        def where_sharded(value: Ints, other: Ints) -> Ints:
            return np.asarray(np.where(is_sharded, countable_bytes(value), other))

        own = -(-found.num_numbers // (VECTOR * degree)) * VECTOR
        nothing = np.zeros_like(gathered)
        divided = replace(
            divided,
            gradient=where_sharded(own * found.added, divided.gradient),
            exchanged=where_sharded(gathered, divided.exchanged),
            exchanged_backward=where_sharded(reduced, nothing),
        )
        if self.work.level is Sharding.GRADIENTS:
            return divided
        frozen = found.parameter - found.num_numbers * found.computed
        return replace(
            divided,
            parameter=where_sharded(frozen + own * found.computed, divided.parameter),
            exchanged=where_sharded(nothing, divided.exchanged),
            exchanged_forward=where_sharded(gathered, nothing),
            exchanged_backward=where_sharded(gathered + reduced, nothing),
        )


def sharded(chain: ChainBytes, data_degree: int) -> Flags:
    """[L]: whether so many replicas divide the gradients or parameters of a layer."""
    found = known(chain)
    has_enough = found.smallest_buffer >= VECTOR * data_degree
    is_sharded: Flags = has_enough & (found.num_buffers == 1)
    for tie in chain.ties:
        if tie.parameter or tie.gradient:
            is_sharded[tie.members] = False
    return is_sharded
