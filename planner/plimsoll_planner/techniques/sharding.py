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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from plimsoll_planner.memory.chain_bytes import (
    WIDEST,
    Bound,
    ChainBytes,
    DividedBytes,
    Flags,
    Ints,
    Tie,
    countable_bytes,
)
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.techniques import state_on_host
from plimsoll_planner.techniques.technique import (
    SCALARS_BYTES,
    Chains,
    Choice,
    Technique,
)
from plimsoll_planner.timing.stage_runs import EndSeconds

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
        found = chain.divided
        if found is None:
            raise AssertionError("the profile says what divided layers hold")
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
        """Bytes on top of norm and step, for a part of the numbers."""
        whole = chain.optimizer_transient
        if chain.bound is Bound.LOWER:
            return np.asarray(whole // self.data_degree)
        own = part * found.transient_per_number
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
        return replace(
            end,
            optimizer=end.optimizer / self.data_degree,
            host_step=end.host_step / self.data_degree,
        )


class ShardedOptimizer(Technique):
    """See the module's text."""

    name: ClassVar[str] = "sharded optimizer"

    def unavailable(self, problem: Problem) -> str:
        """See the base."""
        can, allowed = problem.engine.can, problem.limits.shardings
        if Sharding.OPTIMIZER not in allowed:
            return "the limits leave it out"
        if problem.override.sharding is Sharding.NONE:
            return "`override.sharding` is none"
        if not {*can.shardings} & {*can.shardings_with_pipeline} & {Sharding.OPTIMIZER}:
            return f"{problem.engine.engine} cannot run it"
        if problem.profile.recipe.elementwise is False:
            return f"{problem.profile.recipe.optimizer} mixes numbers of a tensor"
        if problem.profile.costs.divided is None:
            return "the profile is of before it was asked, profile again"
        return ""

    def missing(self, problem: Problem) -> str:
        """See the base."""
        is_demanded = problem.override.sharding is Sharding.OPTIMIZER
        is_only = Sharding.NONE not in problem.limits.shardings
        reason = self.unavailable(problem)
        if reason and (is_demanded or is_only):
            return f"a sharded optimizer is asked for, but {reason}"
        return ""

    def falls_with_replicas(self, problem: Problem) -> bool:
        """See the base."""
        return not self.unavailable(problem)

    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> Iterable[Choice]:
        """Divided alone where that is nowhere worse than whole; else both.

        Sharded in place it takes no longer: half of an all-reduce of parameters is no
        more than half of one of gradients, and the step is one of a part. Where the
        state may be on the host, a device that has none of it still has the padding.
        """
        degree = strategy.mesh.data
        if degree == 1 or self.unavailable(problem):
            return [Choice()]
        divided = divided_optimizer(problem, degree)
        allowed = problem.limits.shardings
        if problem.override.sharding or Sharding.NONE not in allowed:
            return [divided]
        homes = state_on_host.TECHNIQUE.choices(strategy, problem, chains)
        if divided.in_place and all(
            is_no_more(home.bytes(divided.bytes(chain)), home.bytes(chain))
            for home, chain in product(homes, chains)
        ):
            return [divided]
        return [Choice(), divided]

    def choice_of(self, stage: Stage, problem: Problem) -> Choice:
        """See the base."""
        if stage.sharding is Sharding.NONE:
            return Choice()
        return divided_optimizer(problem, stage.data_degree)


def divided_optimizer(problem: Problem, data_degree: int) -> DividedOptimizer:
    """Choice of an engine that trains on the profile's kind of device."""
    in_place = problem.profile.device_kind is DeviceKind.CUDA
    return DividedOptimizer(data_degree, in_place=in_place)


def is_no_more(one: ChainBytes, other: ChainBytes) -> bool:
    """Whether no run of layers holds more in one chain than in another, nor on hosts.

    From a run with n layers of a tie, n - 1 copies are taken off, at most one for each.
    """
    state, host = np.zeros((2, one.num_layers), dtype=np.int64)
    for mine, theirs in zip(one.ties, other.ties, strict=True):
        state[mine.members] += max(theirs.state - mine.state, 0)
        host[mine.members] += max(theirs.host - mine.host, 0)
    return bool(
        (one.state + state <= other.state).all()
        and (one.host + host <= other.host).all()
        and (one.optimizer_transient <= other.optimizer_transient).all()
    )


TECHNIQUE = ShardedOptimizer()
