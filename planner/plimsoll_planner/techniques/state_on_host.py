"""Optimizer state of a stage in the memory of the machine instead of the device.

After the last backward pass the gradients that a rank steps on go to the host, layer by
layer, the optimizer steps there, and parameters come back:

    device  = p + g + buffers           nothing on top of a step but scalars of the norm
    host    = o n + (g' + p') n         n numbers stepped on; o their optimizer state,
                                        masters included; a copy of gradient and
                                        parameter (in fp32: the parameter stepped on)
    seconds = max(to host, step, from host)   where all three overlap: lower bound
              their sum                       one after the other

If replicas divide the optimizer state, n is a replica's part. Source: Ren et al.,
ZeRO-Offload, USENIX ATC 2021; measured to the byte on real ranks, docs/decisions/0026.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import WIDEST, ChainBytes, countable_bytes
from plimsoll_planner.memory.host_memory import copied_bytes
from plimsoll_planner.memory.layer_state import Tie
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.model_profile import NUMBER_BYTES
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.techniques.technique import (
    SCALARS_BYTES,
    Chains,
    Choice,
    Technique,
    lack_of_host,
)
from plimsoll_planner.timing.stage_runs import EndSeconds


@dataclass(frozen=True, slots=True)
class OnHost(Choice):
    """Optimizer state of a stage on the host."""

    copied_bytes: int
    """Of each number stepped on, besides its optimizer state."""
    sums_are_widest: bool
    """Whether gradients are added up in the type of their norm."""

    @property
    def uses_host(self) -> bool:
        """See the base."""
        return True

    @property
    def stated(self) -> dict[str, Any]:
        """See the base."""
        return {"optimizer_home": OptimizerHome.HOST}

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """The device keeps parameters, gradients and buffers."""
        transient = chain.optimizer_transient
        if chain.bound is Bound.LOWER:
            transient = np.zeros_like(transient)
        elif self.sums_are_widest:
            transient = np.minimum(transient, SCALARS_BYTES)
        host = chain.optimizer + self.copied_bytes * chain.owned
        return replace(
            chain,
            optimizer=np.zeros_like(chain.optimizer),
            optimizer_transient=transient,
            host=countable_bytes(host),
            ties=tuple(map(self._tie, chain.ties)),
        )

    def _tie(self, tie: Tie) -> Tie:
        host = tie.optimizer + self.copied_bytes * tie.owned
        return replace(tie, optimizer=0, host=host)

    def end_s(self, end: EndSeconds, bound: Bound) -> EndSeconds:
        """See the module's text."""
        if bound is Bound.LOWER:
            takes = np.maximum(end.host_step, np.maximum(end.to_host, end.from_host))
        else:
            takes = end.host_step + (end.to_host + end.from_host) * end.sharing
        return replace(end, optimizer=takes)


class OptimizerOnHost(Technique):
    """See the module's text."""

    name: ClassVar[str] = "optimizer on the host"

    def unavailable(self, problem: Problem) -> str:
        """See the base."""
        if OptimizerHome.HOST not in problem.limits.optimizer_homes:
            return "the limits leave it out"
        if problem.override.optimizer_home is OptimizerHome.DEVICE:
            return "`override.optimizer_home` is device"
        if OptimizerHome.HOST not in problem.engine.can.optimizer_homes:
            return f"{problem.engine.engine} cannot run it"
        recipe = problem.profile.recipe
        if recipe.steps_on_host is False:
            return f"{recipe.optimizer} cannot step on tensors of the CPU"
        return lack_of_host(problem)

    def missing(self, problem: Problem) -> str:
        """See the base."""
        is_demanded = problem.override.optimizer_home is OptimizerHome.HOST
        is_only = OptimizerHome.DEVICE not in problem.limits.optimizer_homes
        reason = self.unavailable(problem)
        if reason and (is_demanded or is_only):
            return f"an optimizer on the host is asked for, but {reason}"
        return ""

    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> Iterable[Choice]:
        """Both homes: the host takes longer, the device more of its memory."""
        del strategy, chains
        if self.unavailable(problem):
            return [Choice()]
        is_fixed = problem.override.optimizer_home is not None
        if is_fixed or OptimizerHome.DEVICE not in problem.limits.optimizer_homes:
            return [on_host(problem)]
        return [Choice(), on_host(problem)]

    def choice_of(self, stage: Stage, problem: Problem) -> Choice:
        """See the base."""
        if stage.optimizer_home is OptimizerHome.DEVICE:
            return Choice()
        return on_host(problem)


def on_host(problem: Problem) -> OnHost:
    """Choice for the numbers of a recipe."""
    recipe = problem.profile.recipe
    widest = NUMBER_BYTES[recipe.sums_in] == WIDEST
    return OnHost(copied_bytes(recipe), sums_are_widest=widest)


TECHNIQUE = OptimizerOnHost()
