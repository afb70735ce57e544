"""Pipelines of a model by cuts and techniques: what the benches of claims compare.

In: a model of a family, P, M, a way, and whether cuts are uniform. Out: a `Pipeline`,
which is asked for its plan of the least memory, at any speed or within a step's time.
P stages on P devices (D = 1), the family's micro-batch b, and the schedule 1F1B.

A way is what a plan may choose besides its cuts. A technique that the planner has is
one row of `WAYS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.support.families import LARGE, SMALL
from benchmarks.support.family_profiles import profile_of
from plimsoll_operator.nodes.this_machine import MEMORY_COPY
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import EMULATED_PRODUCT, ComputeRate, Link, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.baselines import uniform_cuts
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.choose import Chosen, least_device_peak, least_memory_of
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Choices of a plan besides its cuts."""

    name: str
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of `Override` that keep out what the way does not have."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Fields of `Limits` that let in what it has."""


NONE_RECOMPUTES: dict[str, Any] = {"recomputed_layers": ()}
NO_CAPS: dict[str, Any] = {"in_flight_caps": False}
NO_HOST: dict[str, Any] = {"optimizer_homes": (OptimizerHome.DEVICE,)}
CUTS_ALONE = Way(name="cuts", fixed=NONE_RECOMPUTES, limits=NO_CAPS | NO_HOST)
WAYS = (
    CUTS_ALONE,
    Way(name="cuts + caps", fixed=NONE_RECOMPUTES, limits=NO_HOST),
    Way(name="cuts + recompute", limits=NO_CAPS | NO_HOST),
    Way(name="cuts + host", fixed=NONE_RECOMPUTES, limits=NO_CAPS),
    Way(name="cuts + recompute + caps", limits=NO_HOST),
    Way(name="cuts + recompute + caps + host"),
)
"""From the fewest choices to the most; uniform cuts alone are the baseline."""

AMPLE_HOST_BYTES = 2**42
"""Room for the optimizer of any stage."""
CPU = Offer(
    name="emulated devices with a core each",
    device_kind=DeviceKind.EMULATED,
    device_product=EMULATED_PRODUCT,
    device_memory_bytes=LARGEST_DEVICE_BYTES,
    devices_per_node=8,
    nodes_available=1,
    compute_rates=(ComputeRate(precision=Precision.FP32, flop_per_s=50e9),),
    memory_bandwidth_bytes_per_s=10e9,
    host_memory_bytes=8 * AMPLE_HOST_BYTES,
    link_to_host=MEMORY_COPY,
)
H100 = Offer(
    name="a node of 8 H100",
    device_product="H100-80GB",
    device_memory_bytes=LARGEST_DEVICE_BYTES,
    devices_per_node=8,
    link_in_node=Link(bandwidth_bytes_per_s=450e9),
    compute_rates=(
        ComputeRate(precision=Precision.FP32, flop_per_s=67e12),
        ComputeRate(precision=Precision.BF16, flop_per_s=989e12),
    ),
    memory_bandwidth_bytes_per_s=3350e9,
    host_memory_bytes=8 * AMPLE_HOST_BYTES,
    link_to_host=Link(bandwidth_bytes_per_s=55e9),
)
"""Rates of examples/offers.csv. Both offers hold anything: plans are compared by what
they need."""


class Pipeline:
    """The plans of one model on P devices, for one way and one rule of cutting."""

    def __init__(self, problem: Problem) -> None:
        """Take a question that fixes P, D and b, so that it has one tuple."""
        self.explorer = Explorer(problem)
        [self.candidate] = [
            one
            for one in self.explorer.tuples_of(problem.limits.max_gpus)
            if one.rule is None
        ]

    def least_memory(self, step_s: float | None = None) -> Chosen | None:
        """Plan of the least peak within a step's time, None where all take longer."""
        batch = self.explorer.problem.global_batch_size
        needed_per_s = batch / step_s if step_s else 0.0
        return least_memory_of(self.explorer, [self.candidate], lambda _: needed_per_s)

    def least_device_bytes(self) -> int:
        """Upper bound on the fullest device of the plan of the least peak."""
        return least_device_peak(self.explorer, self.candidate)

    def least_memory_plan(self) -> HybridPlan:
        """The plan of the least peak at any speed."""
        choice = self.least_memory()
        if choice is None:
            raise AssertionError("devices that hold anything hold every plan")
        return self.plan(choice.found)

    def plan(self, found: Found) -> HybridPlan:
        """A plan in full."""
        return build_plan(self.explorer.search, found)


def pipeline(
    family: str,
    depth: int,
    num_stages: int,
    num_micro_batches: int,
    way: Way,
    *,
    is_uniform: bool,
) -> Pipeline:
    """Pipeline of a model, which has a layer for each stage."""
    own = (SMALL | LARGE)[family]
    made = profile_of(family, depth)
    num_layers = len(made.layers.name)
    offer = CPU if family in SMALL else H100
    fixed = Override(
        num_gpus=num_stages,
        num_stages=num_stages,
        data_degree=1,
        micro_batch=own.micro_batch,
        cuts=uniform_cuts(num_layers, num_stages) if is_uniform else (),
    )
    return Pipeline(
        Problem(
            profile=made,
            overheads=with_built_in((), (offer,)),
            offers=(offer,),
            engine=PLIMSOLL,
            global_batch_size=own.micro_batch * num_micro_batches,
            limits=Limits(max_gpus=num_stages, **way.limits),
            objective=Objective(rate_floor=0.0),
            override=replace(fixed, **way.fixed),
        )
    )


def tensor_bytes(plan: HybridPlan) -> int:
    """Expected peak of the tensors of the fullest rank."""
    return max(
        peak.allocated.expected_bytes for stage in plan.stages for peak in stage.peaks
    )
