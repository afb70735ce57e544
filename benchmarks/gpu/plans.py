"""Plans that are measured, and what is predicted of their ranks.

In: profiles of a model, a device. Out: plans fixed in all but their cuts, with the
seconds that each stage is busy. The bytes come from the traced profile, which needs no
GPU; the seconds that choose the cuts are the measured ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.gpu.device import MeasuredDevice
from plimsoll_planner.engines import engine_named
from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible
from plimsoll_planner.search.answer import solve_as_fixed
from plimsoll_planner.text.explain import infeasible_lines
from plimsoll_planner.timing.chain_seconds import measured

BATCHES_PER_STAGE = 2
"""Micro-batches of a step for each stage: 1F1B repeats itself from one on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Fixed parts of a plan."""

    num_stages: int
    micro_batch: int
    recomputes: bool = False
    """Every layer does, or none."""

    def __str__(self) -> str:
        what = "all recomputed" if self.recomputes else "none recomputed"
        return f"P={self.num_stages} b={self.micro_batch}, {what}"


CHOICES = (
    Choice(num_stages=1, micro_batch=1),
    Choice(num_stages=2, micro_batch=1),
    Choice(num_stages=4, micro_batch=1),
    Choice(num_stages=4, micro_batch=4),
    Choice(num_stages=2, micro_batch=2, recomputes=True),
)


def with_seconds_of(traced: ModelProfile, timed: ModelProfile) -> ModelProfile:
    """A traced profile with the seconds of a measured one of the same model."""
    return replace(
        traced,
        device_product=timed.device_product,
        costs=replace(
            traced.costs,
            forward=timed.costs.forward,
            backward=timed.costs.backward,
            recompute=timed.costs.recompute,
            optimizer_step_s=timed.costs.optimizer_step_s,
        ),
    )


def plan_for(
    profile: ModelProfile,
    device: MeasuredDevice,
    choice: Choice,
    *,
    cuts: tuple[int, ...] = (),
    capacity_bytes: int = 0,
) -> HybridPlan:
    """The plan of a choice, whether it fits or not.

    Args:
        profile: with seconds.
        device: that it is for.
        choice: what is fixed.
        cuts: first layer of each stage; empty: the search chooses.
        capacity_bytes: of the device, where it is to count as another; else 0.

    Raises:
        CannotPlanError: there is no such plan.
    """
    offer = device.offer(capacity_bytes)
    problem = Problem(
        profile=profile,
        overheads=with_built_in((), (offer,)),
        offers=(offer,),
        engine=engine_named("plimsoll", profile.fingerprint.torch_version),
        global_batch_size=choice.micro_batch * BATCHES_PER_STAGE * choice.num_stages,
        limits=Limits(max_gpus=choice.num_stages),
        objective=Objective(),
        override=fixed(profile, choice, cuts),
    )
    answer = solve_as_fixed(problem, clock=lambda: 0.0)
    if isinstance(answer, Infeasible):
        raise CannotPlanError("; ".join(infeasible_lines(answer)))
    return answer.plan


def fixed(profile: ModelProfile, choice: Choice, cuts: tuple[int, ...]) -> Override:
    """A choice as the search takes it."""
    costs = profile.costs
    may = dict(zip(costs.kind, costs.recomputable, strict=True))
    chosen = [at for at, kind in enumerate(profile.layers.kind) if may[kind]]
    return Override(
        num_gpus=choice.num_stages,
        num_stages=choice.num_stages,
        data_degree=1,
        micro_batch=choice.micro_batch,
        cuts=cuts,
        recomputed_layers=tuple(chosen) if choice.recomputes else (),
    )


def cuts_of(plan: HybridPlan) -> tuple[int, ...]:
    """First layer of each stage."""
    return tuple(stage.chunks[0].first_layer for stage in plan.stages)


def busy_s(
    profile: ModelProfile, plan: HybridPlan, stage: Stage, bound: Bound
) -> float:
    """Seconds in which a stage computes in a step: all but what it waits.

    Args:
        profile: with seconds.
        plan: which the stage is of.
        stage: of one chunk.
        bound: which of the three.
    """
    seconds = measured(profile, plan.offers[0], bound, plan.micro_batch)
    chunk = stage.chunks[0]
    own = slice(chunk.first_layer, chunk.end_layer)
    each = float(seconds.forward[own].sum() + seconds.backward[own].sum())
    each += sum(float(seconds.recompute[at]) for at in stage.recomputed_layers)
    return plan.num_micro_batches * each + float(seconds.optimizer_step[own].sum())
