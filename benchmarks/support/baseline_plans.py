"""Plans under a memory cap on 8 devices: two baselines, and the search.

In: a family, a cap. Out: plans with their throughput, each of one micro-batch b. Called
by `vpipe`. All have one global batch, so M = batch / b, and M is at least P.

    GPipe     everything recomputed, cuts that balance the seconds of both passes and
              of recomputing; `gpipe` has its bytes and seconds
    1F1B      nothing recomputed, cuts that balance the seconds of both passes: the rule
              `time` of `plimsoll compare`
    ours      the plan of the most samples per second that the search finds

A baseline's cuts and ways are fixed, so each b has one plan, whatever the cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from benchmarks.support import gpipe
from benchmarks.support.families import FAMILIES, SMALL
from benchmarks.support.family_profiles import profile_of
from benchmarks.support.gpipe import Form
from benchmarks.support.no_overhead import nothing_besides
from benchmarks.support.ways import CPU
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import UNSPLIT
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.offer import ComputeRate, Link, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.baselines import balanced
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.choose import most_throughput
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.verdicts import Floor

NUM_STAGES = NUM_DEVICES = 8
BATCH, SMALL_BATCH = 64, 32
"""Samples in a step; the second of models that are trained as well."""
MIB = 2**20
AMPLE_HOST_BYTES = 2**44
"""Room for what all stages offload."""
RTX_2080_TI = Offer(
    name="2 nodes of 4 RTX 2080 Ti",
    device_product="RTX-2080-Ti",
    device_memory_bytes=LARGEST_DEVICE_BYTES,
    devices_per_node=4,
    nodes_available=2,
    link_in_node=Link(bandwidth_bytes_per_s=12e9),
    link_between_nodes=Link(bandwidth_bytes_per_s=5e9),
    compute_rates=(ComputeRate(precision=Precision.FP32, flop_per_s=13.4e12),),
    memory_bandwidth_bytes_per_s=616e9,
    host_memory_bytes=AMPLE_HOST_BYTES,
    link_to_host=Link(bandwidth_bytes_per_s=12e9),
)
"""The machines of vPipe's evaluation, by the vendor's rates: PCIe 3.0 x16 inside, 40
Gbit/s between. Their memory is the cap, in the place of 11 GB."""
ON_8_STAGES = Override(num_gpus=NUM_DEVICES, num_stages=NUM_STAGES, data_degree=1)
PLAIN: dict[str, Any] = {"in_flight_caps": False, "offload": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Choices that the search has."""

    name: str
    limits: dict[str, Any] = field(default_factory=dict)
    """Fields of `Limits` that keep out what it does not have."""
    fixed: Override = ON_8_STAGES


RECOMPUTE = Way(name="cuts + recompute", limits=PLAIN)
"""As in the published plans of vPipe."""
ON_DEVICE = Way(name="without offload", limits={"offload": False})
OFFLOADING = Way(name="with offload")
ANY_MESH = Way(
    name="any mesh",
    limits={"offload": False},
    fixed=Override(num_gpus=NUM_DEVICES),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A plan with its figures."""

    found: Found
    search: Explorer
    needed_bytes: int
    """Upper bound on the fullest device."""
    step_s: float
    """Walked, expected seconds."""
    open_part: float = 0.0
    """How much shorter, for all that is proven, the step of another plan may be."""

    @property
    def micro_batch(self) -> int:
        """Samples in a micro-batch, b."""
        return self.found.candidate.micro_batch

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.search.problem.global_batch_size / self.step_s

    @property
    def plan(self) -> HybridPlan:
        """The plan in full; of GPipe its cuts and ways, with the peaks of 1F1B."""
        return build_plan(self.search.search, self.found)


def explorer(
    family: str,
    fixed: Override,
    cap_bytes: int = LARGEST_DEVICE_BYTES,
    **limits: Any,
) -> Explorer:
    """Search of a family's plans on devices of a cap, whatever `fixed` leaves open."""
    made = profile_of(family, FAMILIES[family].depth)
    rates = CPU if family in SMALL else RTX_2080_TI
    offer = replace(rates, device_memory_bytes=cap_bytes)
    return Explorer(
        Problem(
            profile=made,
            overheads=(nothing_besides(offer.device_product, made),),
            offers=(offer,),
            engine=PLIMSOLL,
            global_batch_size=SMALL_BATCH if family in SMALL else BATCH,
            limits=Limits(
                max_gpus=NUM_DEVICES,
                optimizer_homes=(OptimizerHome.DEVICE,),
                **limits,
            ),
            objective=Objective(goal=Goal.MAXIMIZE_THROUGHPUT),
            override=fixed,
        )
    )


def fixed_plans(
    family: str, recomputed: tuple[int, ...], forward_passes: int
) -> list[tuple[Explorer, Found]]:
    """Plan of every b, of cuts that balance so many forward passes and a backward one.

    They are on devices that hold anything.
    """
    ways = replace(ON_8_STAGES, recomputed_layers=recomputed, offloaded_layers=())
    seconds = explorer(family, ways, **PLAIN).search.tables.of(UNSPLIT)
    chain = seconds.seconds(0, Bound.EXPECTED, 1)
    weights = [float(one) for one in forward_passes * chain.forward + chain.backward]
    cuts = balanced(weights)(NUM_STAGES)
    search = explorer(family, replace(ways, cuts=cuts), **PLAIN)
    found = (
        search.search.fastest(one)
        for one in search.tuples_of(NUM_DEVICES)
        if one.rule is None
    )
    return [(search, one) for one in found if one is not None]


@cache
def one_f_one_b(family: str) -> tuple[Judged, ...]:
    """Plans of 1F1B without recompute, one for each b."""
    return tuple(
        Judged(
            found=found,
            search=search,
            needed_bytes=search.device_peak(found),
            step_s=found.step_s,
        )
        for search, found in fixed_plans(family, (), 1)
    )


@cache
def of_gpipe(family: str, form: Form = Form.PUBLISHED) -> tuple[Judged, ...]:
    """Plans of GPipe, one for each b.

    Raises:
        AssertionError: a layer cannot recompute, so that this would not be GPipe.
    """
    made = profile_of(family, FAMILIES[family].depth)
    if not all(made.costs.recomputable):
        raise AssertionError(f"{family}: a layer cannot recompute")
    every = tuple(range(len(made.layers.name)))
    return tuple(
        Judged(
            found=found,
            search=search,
            needed_bytes=gpipe.device_bytes(search.search, found, form),
            step_s=gpipe.step_s(search.search, found),
        )
        for search, found in fixed_plans(family, every, 2)
    )


def largest(plans: Sequence[Judged], cap_bytes: int) -> Judged | None:
    """Plan of the largest b that fits; None if none fits."""
    return chosen(plans, cap_bytes, lambda one: one.micro_batch)


def best(plans: Sequence[Judged], cap_bytes: int) -> Judged | None:
    """Fastest plan that fits; None if none fits."""
    return chosen(plans, cap_bytes, lambda one: one.samples_per_s)


def chosen(
    plans: Sequence[Judged], cap_bytes: int, key: Callable[[Judged], float]
) -> Judged | None:
    """Plan of the highest key that fits."""
    fitting = [one for one in plans if one.needed_bytes <= cap_bytes]
    return max(fitting, key=key, default=None)


def ours(family: str, cap_bytes: int, way: Way) -> Judged | None:
    """Plan of the most samples per second within a cap; None if none fits."""
    search = explorer(family, way.fixed, cap_bytes, **way.limits)
    choice = most_throughput(search, Floor())
    if choice is None:
        return None
    return Judged(
        found=choice.found,
        search=search,
        needed_bytes=search.device_peak(choice.found),
        step_s=choice.found.step_s,
        open_part=choice.gap,
    )


def cap_bytes_of(family: str, part: float) -> int:
    """Cap: a part of what 1F1B without recompute needs at b = 1, in whole MiB."""
    [least, *_] = one_f_one_b(family)
    return math.ceil(part * least.needed_bytes / MIB) * MIB
