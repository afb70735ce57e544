"""Optimizer state divided over the replicas of a stage (ZeRO-1), in place.

The trained parameters of a layer lie in one buffer for each pair of types, and so do
the sums of their gradients. A buffer has n numbers, padded to n' = whole multiples of
16 D; replica d owns the d-th of D equal parts. Gradients are reduced to the owner, who
steps the optimizer on its part, and parameters are gathered from the owners:

    state = p' + g' + buffers + o n' / D       p', g' of n' numbers, o of one number

Nothing is held on top. A layer with a buffer of fewer than 16 D numbers stays whole.
Source: Rajbhandari et al., ZeRO, SC 2020 (stage 1); measured to the byte on real ranks,
docs/decisions/0024.

On the wire the reduction takes half of an all-reduce of g, and the gathering half of
one of p, if both work in place as with NCCL. Gloo needs scratch for them, so there the
trainer sums all of g and then sends each part to all: one all-reduce of g, and half of
one of p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import WIDEST, ChainBytes, countable_bytes
from plimsoll_planner.memory.layer_state import DividedBytes, Tie
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.techniques.technique import SCALARS_BYTES, Choice
from plimsoll_planner.timing.stage_runs import EndSeconds
from plimsoll_planner.timing.ticks import TICKS_PER_S

VECTOR = 16
"""Numbers that each parameter, and each replica's part, is a multiple of."""


@dataclass(frozen=True, slots=True)
class DividedOptimizer(Choice):
    """Optimizer state of a stage divided over D replicas."""

    data_degree: int
    """D."""
    in_place: bool
    """Whether gradients are reduced and parameters are gathered in place."""

    @property
    def stated(self) -> dict[str, Any]:
        """See the base."""
        return {"sharding": Sharding.OPTIMIZER}

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """State of the layers that are long enough; see the module's text."""
        found = known(chain)
        multiple = VECTOR * self.data_degree
        is_divided = found.smallest_buffer >= multiple
        padded = self._padded(found, chain.bound)
        more = padded - found.num_numbers
        several = found.num_buffers > 1
        of_parameter = np.where(several, WIDEST, found.computed)
        of_gradient = np.where(several, WIDEST, found.added)
        gathered = found.num_numbers * found.computed
        sent = (
            gathered + (chain.gradient if self.in_place else 2 * chain.gradient)
        ) // 2
        part = -(-padded // self.data_degree)

        def divided(value: Ints, whole: Ints) -> Ints:
            return np.asarray(np.where(is_divided, countable_bytes(value), whole))

        return replace(
            chain,
            parameter=divided(found.parameter + more * of_parameter, chain.parameter),
            gradient=divided(chain.gradient + more * of_gradient, chain.gradient),
            optimizer=divided(self._optimizer(found, part, chain), chain.optimizer),
            exchanged=divided(sent, chain.exchanged),
            owned=divided(part, chain.owned),
            optimizer_transient=divided(
                self._transient(found, part, chain), chain.optimizer_transient
            ),
            ties=tuple(self._tie(tie, is_divided, found, chain) for tie in chain.ties),
        )

    def _padded(self, found: DividedBytes, bound: Bound) -> Ints:
        """n'; of several buffers only their sum is known, so each may be padded."""
        multiple = VECTOR * self.data_degree
        padded = -(-found.num_numbers // multiple) * multiple
        others = np.maximum(found.num_buffers - 1, 0)
        if bound is Bound.LOWER:
            return np.asarray(np.where(others > 0, found.num_numbers, padded))
        if bound is Bound.UPPER:
            return np.asarray(padded + others * multiple)
        return np.asarray(padded)

    def _optimizer(self, found: DividedBytes, part: Ints, chain: ChainBytes) -> Ints:
        """Optimizer state of the fullest replica, whose part has `part` numbers.

        Some of the numbers that a parameter is rounded up by may be among them, which
        have no state. What each parameter has once is with the replicas that have some
        of it: at least a D-th of them on one replica, at most all.
        """
        count = found.num_parameters
        each = found.optimizer_rest // np.maximum(count, 1)
        least = -(-count // self.data_degree)
        if chain.bound is Bound.LOWER:
            true = np.maximum(found.num_numbers - (VECTOR - 1) * count, 0)
            own = -(-true // self.data_degree)
            return np.asarray(own * found.optimizer_per_number + least * each)
        most = count if chain.bound is Bound.UPPER else np.minimum(least + 1, count)
        return np.asarray(part * found.optimizer_per_number + most * each)

    def _transient(self, found: DividedBytes, part: Ints, chain: ChainBytes) -> Ints:
        """Bytes on top of norm and step, for a part of the numbers.

        A few scalars are no number's; only the upper bound counts them.
        """
        whole = chain.optimizer_transient
        own = part * found.transient_per_number
        if chain.bound is Bound.LOWER:
            part_of_whole = np.maximum(whole - SCALARS_BYTES, 0) // self.data_degree
            return np.asarray(np.minimum(part_of_whole, own))
        if chain.bound is Bound.UPPER:
            own = own + SCALARS_BYTES
        return np.asarray(np.minimum(whole, own))

    def _tie(
        self, tie: Tie, is_divided: Flags, found: DividedBytes, chain: ChainBytes
    ) -> Tie:
        """The copy that several layers share, as it is taken from their sum.

        Without it the other layers' buffers end elsewhere, so as many numbers as a
        buffer may be padded by are more or less.
        """
        if tie.num_numbers == 0 or not is_divided[tie.members].all():
            return tie
        margin = VECTOR * self.data_degree
        sign = {Bound.LOWER: 1, Bound.EXPECTED: 0, Bound.UPPER: -1}[chain.bound]
        numbers = max(tie.num_numbers + sign * margin, 0)
        of_gradient = tie.gradient // tie.num_numbers
        own = tie.num_numbers // self.data_degree + sign * margin
        exchanged = tie.num_numbers * found.computed
        exchanged += tie.gradient if self.in_place else 2 * tie.gradient
        return replace(
            tie,
            parameter=numbers * found.computed,
            gradient=numbers * of_gradient,
            optimizer=max(own, 0) * tie.optimizer_per_number,
            exchanged=exchanged // 2,
            owned=max(own, 0),
        )

    def end_s(self, end: EndSeconds, bound: Bound) -> EndSeconds:
        """The optimizer steps on a part; at worst that takes as long as on all."""
        if bound is Bound.UPPER:
            return end
        whole = np.floor if bound is Bound.LOWER else np.ceil

        def part(seconds: Floats) -> Floats:
            ticks = seconds * (TICKS_PER_S / self.data_degree)
            return np.asarray(whole(ticks) / TICKS_PER_S)

        return replace(
            end, optimizer=part(end.optimizer), host_step=part(end.host_step)
        )


def known(chain: ChainBytes) -> DividedBytes:
    """Columns of divided layers, which the profile has where any are offered."""
    if chain.divided is None:
        raise AssertionError("the profile says what divided layers hold")
    return chain.divided
