"""Rules between the fields of a record: each is broken once, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.carried import NO_BYTES
from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    Decisions,
    NearestMiss,
    Rule,
)
from plimsoll_planner.records.device_overhead import SeenAt
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval, Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    LayerColumns,
    Precision,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.offer import ComputeRate
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import Chunk, Phase, PodShape
from plimsoll_planner.records.solution import Termination
from plimsoll_planner.records.strategy import Mesh, Strategy
from plimsoll_planner.records.task import FullDevice
from tests.support import builders as b
from tests.support.carried import Value, carried_columns
from tests.support.chains import Messages, messages

FAST, SLOW = b.a_frontier().points
FAILS, FITS, LATE = b.a_grid().cells
BROKEN: list[tuple[str, Callable[[], Any], str]] = [
    ("a curve without a point", lambda: b.a_frontier(points=()), "Frontier.points"),
    (
        "a curve that rises",
        lambda: b.a_frontier(points=(FAST, replace(SLOW, peak_bytes=FAST.peak_bytes))),
        "Frontier.points",
    ),
    (
        "a curve that goes back",
        lambda: b.a_frontier(points=(SLOW, FAST)),
        "Frontier.points",
    ),
    (
        "a curve of plans that do not fit",
        lambda: b.a_frontier(capacity_bytes=FAST.peak_bytes - 1),
        "Frontier.points",
    ),
    (
        "a curve of other plans",
        lambda: b.a_frontier(num_gpus=2),
        "Frontier.points",
    ),
    (
        "a curve beside a plan of another size",
        lambda: b.a_solution(
            frontier=b.a_frontier(
                num_gpus=2, points=(replace(FAST, mesh=Mesh(pipeline=2)),)
            )
        ),
        "Solution.frontier",
    ),
    (
        "a bound above what was found",
        lambda: replace(FAST, least_peak_bytes=FAST.peak_bytes + 1),
        "FrontierPoint.least_peak_bytes",
    ),
    (
        "a point without all of its stages",
        lambda: replace(FAST, num_recomputed=(1,)),
        "FrontierPoint.num_recomputed",
    ),
    ("a grid without a cell", lambda: b.a_grid(cells=()), "Grid.cells"),
    ("a cell twice", lambda: b.a_grid(cells=(FITS, FITS)), "Grid.cells"),
    ("cells out of order", lambda: b.a_grid(cells=(FITS, FAILS)), "Grid.cells"),
    (
        "a cell of no offer",
        lambda: b.a_solution(grid=b.a_grid(cells=(replace(FITS, offer=1),))),
        "Solution.grid.cells.offer",
    ),
    (
        "a cell of no offer, where nothing fits",
        lambda: b.an_infeasible(grid=b.a_grid(cells=(replace(FITS, offer=1),))),
        "Infeasible.grid.cells.offer",
    ),
    (
        "a cell that fits without a plan",
        lambda: replace(LATE, verdict=Verdict.FITS),
        "GridCell.plan",
    ),
    (
        "a cell that fails for no reason",
        lambda: replace(LATE, verdict=Verdict.FAILS),
        "GridCell.binding",
    ),
    (
        "a price of no plan",
        lambda: replace(LATE, price_per_hour=Decimal(1)),
        "GridCell.price_per_hour",
    ),
    (
        "a plan of another count",
        lambda: replace(FITS, num_gpus=5),
        "GridCell.plan",
    ),
    (
        "a plan of another micro-batch",
        lambda: replace(FITS, micro_batch=FITS.micro_batch + 1),
        "GridCell.plan",
    ),
    (
        "a rehearsal of an attempt",
        lambda: b.a_rehearsal(
            observation=b.an_observation(num_communicators=0, attempt=2)
        ),
        "Rehearsal.observation.attempt",
    ),
    (
        "a rehearsed rank that talks in a group",
        lambda: b.a_rehearsal(observation=b.an_observation(num_communicators=1)),
        "Rehearsal.observation.num_communicators",
    ),
    (
        "a rehearsal that saw no peak",
        lambda: b.a_rehearsal(
            observation=b.an_observation(num_communicators=0, peaks=())
        ),
        "Rehearsal.observation.peaks",
    ),
    (
        "a rehearsal in which another rank ran out",
        lambda: b.a_rehearsal(
            full_device=FullDevice(rank=1, phase=Phase.BUILD, asked_bytes=1)
        ),
        "Rehearsal.full_device.rank",
    ),
    (
        "a rehearsal that ran out beside other processes",
        lambda: b.a_failed_rehearsal(other_bytes=1),
        "Rehearsal.other_bytes",
    ),
    (
        "a count's miss on an offer that is not there",
        lambda: b.a_certificate(
            counts=(b.a_count(1, nearest_miss=b.a_miss(offer=1)),),
            fewest_at_any_speed=None,
        ),
        "Certificate.counts",
    ),
    (
        "a miss on an offer that is not there",
        lambda: b.an_infeasible(nearest_miss=b.a_miss(offer=1)),
        "Infeasible.nearest_miss.offer",
    ),
    (
        "a fixed micro-batch above its limit",
        lambda: b.a_problem(
            limits=Limits(max_gpus=4, max_micro_batch=2),
            override=Override(micro_batch=4),
        ),
        "Problem.override.micro_batch",
    ),
    (
        "a fixed micro-batch below what was profiled",
        lambda: b.a_problem(
            profile=b.a_profile(probes=(b.a_probe(micro_batch=2),)),
            override=Override(micro_batch=1),
        ),
        "Problem.override.micro_batch",
    ),
    (
        "a value to a layer in front of its giver",
        lambda: carried_columns([Value(giver=2, takers=(1,))]),
        "CarriedColumns.takers[0]",
    ),
    (
        "a value that nobody takes",
        lambda: carried_columns([Value(takers=())]),
        "CarriedColumns.takers[0]",
    ),
    (
        "takers that are not in order",
        lambda: carried_columns([Value(takers=(3, 2))]),
        "CarriedColumns.takers[0]",
    ),
    (
        "a value without bytes",
        lambda: changed(carried_columns([Value()]), value=NO_BYTES),
        "CarriedColumns.value.constant_bytes",
    ),
    (
        "a name given twice",
        lambda: changed(carried_columns([Value(), Value()]), name=("a", "a")),
        "CarriedColumns.name",
    ),
    (
        "a gradient of an input of the model",
        lambda: carried_columns([Value(giver=-1)]),
        "CarriedColumns.needs_gradient[0]",
    ),
    (
        "a gradient of what nothing trained has made",
        lambda: b.a_profile(carried=carried_columns([Value()]), num_untrained=1),
        "ModelProfile.carried.needs_gradient[0]",
    ),
    (
        "a value for nobody in the chain",
        lambda: b.a_profile(carried=carried_columns([Value(takers=(4,))])),
        "ModelProfile.carried.takers",
    ),
    (
        "a carried value where sequences are split",
        lambda: b.a_profile(
            carried=carried_columns([Value()]),
            variants=(Variant(tensor_degree=2, sequence_parallel=True),),
        ),
        "ModelProfile.variants",
    ),
    (
        "a probe of nothing",
        lambda: b.a_profile(probes=(changed(b.a_profile().probes[0], kind=99),)),
        "ModelProfile.probes",
    ),
    (
        "a kind twice",
        lambda: b.a_profile(kinds=("block", "block", "head")),
        "ModelProfile.kinds",
    ),
    (
        "a variant without costs",
        lambda: b.a_profile(variants=(Variant(), Variant(tensor_degree=2))),
        "ModelProfile.costs.kind",
    ),
    ("tied alone", lambda: TiedLayers(layers=(1,)), "TiedLayers.layers"),
    ("tied to itself", lambda: TiedLayers(layers=(1, 1)), "TiedLayers.layers"),
    (
        "a library in two versions",
        lambda: b.a_fingerprint(libraries=b.a_fingerprint().libraries * 2),
        "Fingerprint.libraries",
    ),
    (
        "more allocated than reserved, predicted",
        lambda: changed(b.a_peak(), reserved=b.bytes_between(0, 1)),
        "PhasePeak.reserved.expected_bytes",
    ),
    (
        "layer 2^53 in a chunk",
        lambda: b.a_plan(
            stages=(b.a_stage(0, 2, (0, 1)), b.a_stage(3, 2**53 - 1, (2, 3)))
        ),
        "HybridPlan.stages",
    ),
    (
        "stages out of order",
        lambda: b.a_plan(stages=(b.a_stage(2, 4, (0, 1)), b.a_stage(0, 2, (2, 3)))),
        "HybridPlan.stages",
    ),
    (
        "two chunks without a schedule for them",
        lambda: b.a_plan(
            stages=(
                b.a_stage(0, 1, (0, 1), chunks=chunks((0, 1), (2, 3))),
                b.a_stage(1, 2, (2, 3), chunks=chunks((1, 2), (3, 4))),
            )
        ),
        "HybridPlan.stages",
    ),
    (
        "a cap above all there are",
        lambda: b.a_plan(
            stages=(b.a_stage(0, 2, (0, 1), in_flight_cap=5), b.a_stage(2, 4, (2, 3)))
        ),
        "HybridPlan.stages[0].in_flight_cap",
    ),
    (
        "a layer recomputed twice",
        lambda: b.a_stage(0, 2, (0,), recomputed_layers=(1, 1)),
        "Stage.recomputed_layers",
    ),
    (
        "sharded over one rank",
        lambda: b.a_stage(0, 1, (0,), sharding=Sharding.OPTIMIZER),
        "Stage.sharding",
    ),
    (
        "emulated beside real devices",
        lambda: b.a_plan(
            offers=(b.an_offer(), b.an_offer(device_kind=DeviceKind.EMULATED))
        ),
        "HybridPlan.offers",
    ),
    (
        "a price in no currency",
        lambda: b.a_plan(price_per_hour=Decimal(1)),
        "HybridPlan.currency",
    ),
    ("pods of another size", lambda: b.a_plan(pods=pods(1, 8)), "HybridPlan.pods"),
    (
        "a pod larger than a node",
        lambda: b.a_plan(offers=(b.an_offer(devices_per_node=2),)),
        "HybridPlan.pods.gpus_per_pod",
    ),
    (
        "a tensor group over two pods",
        lambda: b.a_plan(
            stages=(
                b.a_stage(
                    0, 4, (0, 1), data_degree=1, variant=Variant(tensor_degree=2)
                ),
            ),
            num_micro_batches=8,
            pods=pods(2, 1),
        ),
        "HybridPlan.pods.gpus_per_pod",
    ),
    ("no sharding", lambda: Limits(max_gpus=1, shardings=()), "Limits.shardings"),
    (
        "no memory to search in",
        lambda: Limits(max_gpus=1, headroom=1.0),
        "Limits.headroom",
    ),
    (
        "no schedule of the engine",
        lambda: b.a_problem(
            limits=Limits(max_gpus=1, schedules=(Schedule.DUAL_PIPE_V,))
        ),
        "Problem.limits.schedules",
    ),
    (
        "no tensor parallelism in the engine",
        lambda: b.a_problem(limits=Limits(max_gpus=8, tensor_degrees=(8,))),
        "Problem.limits.tensor_degrees",
    ),
    (
        "a fixed tensor degree that the engine has not",
        lambda: b.a_problem(override=Override(tensor_degree=2)),
        "Problem.override.tensor_degree",
    ),
    (
        "a fixed tensor degree that nobody profiled",
        lambda: b.a_problem(engine=PLIMSOLL, override=Override(tensor_degree=2)),
        "Problem.override.tensor_degree",
    ),
    (
        "a number that takes a tensor degree which is not fixed",
        lambda: Override(num_gpus=8, num_stages=2, data_degree=2),
        "Override.num_gpus",
    ),
    (
        "a number that is not the product of all degrees",
        lambda: Override(num_gpus=8, num_stages=2, data_degree=2, tensor_degree=1),
        "Override.num_gpus",
    ),
    (
        "sequences split in no group",
        lambda: Strategy(mesh=Mesh(pipeline=2), sequence_parallel=True),
        "Strategy.sequence_parallel",
    ),
    (
        "messages of one pass alone",
        lambda: b.layer_costs(1, backward_messages=messages([Messages(of_sample=1)])),
        "LayerCosts.backward_messages",
    ),
    (
        "a tie in a variant that is not there",
        lambda: b.a_profile(tied=(TiedLayers(layers=(0, 3), variant=1),)),
        "ModelProfile.tied",
    ),
    (
        "a deadline for no length",
        lambda: b.a_problem(objective=Objective(deadline_s=60.0)),
        "Problem.num_steps",
    ),
    (
        "an offer twice",
        lambda: b.a_problem(offers=(b.an_offer(),) * 2),
        "Problem.offers",
    ),
    (
        "a place twice",
        lambda: b.an_overhead(seen=(SeenAt(micro_batch=1, num_communicators=2),) * 2),
        "DeviceOverhead.seen",
    ),
    (
        "an overhead twice",
        lambda: b.a_problem(overheads=(b.an_overhead(),) * 2),
        "Problem.overheads",
    ),
    (
        "an emulated device for a CUDA profile",
        lambda: b.a_problem(offers=(b.an_offer(device_kind=DeviceKind.EMULATED),)),
        "Problem.offers",
    ),
    (
        "a miss that is none",
        lambda: b.a_miss(needed_bytes=1),
        "NearestMiss.needed_bytes",
    ),
    (
        "a rate that is not missed",
        lambda: NearestMiss(
            binding=Binding.RATE, samples_per_s=2.0, needed_samples_per_s=1.0
        ),
        "NearestMiss.samples_per_s",
    ),
    ("no tuple", lambda: b.decisions(1, rule=()), "Decisions.rule"),
    (
        "a tuple twice",
        lambda: Decisions(
            **{name: getattr(b.decisions(1), name) * 2 for name in Decisions.__slots__}
        ),
        "Decisions.rule",
    ),
    (
        "failed without looking",
        lambda: b.decisions(1, rule=(Rule.NOT_SEARCHED,)),
        "Decisions.verdict",
    ),
    (
        "degrees of another count",
        lambda: b.a_count(2, decisions=b.decisions(3)),
        "CountVerdict.decisions",
    ),
    (
        "fits, but fails on memory",
        lambda: changed(b.a_count(1, Verdict.FITS), binding=Binding.MEMORY),
        "CountVerdict.binding",
    ),
    (
        "misses what does not bind",
        lambda: b.a_count(1, binding=Binding.RATE),
        "CountVerdict.nearest_miss",
    ),
    (
        "counts above the limit",
        lambda: b.a_certificate(
            space=changed(b.a_certificate().space, limits=Limits(max_gpus=3))
        ),
        "Certificate.counts",
    ),
    (
        "a tuple on no offer",
        lambda: b.a_certificate(space=changed(b.a_certificate().space, offers=())),
        "Certificate.counts",
    ),
    (
        "skipped in silence",
        lambda: b.a_certificate(
            counts=(*map(b.a_count, (1, 2)), skipped(3), b.a_count(4, Verdict.FITS))
        ),
        "Certificate.cut_off",
    ),
    (
        "fewer GPUs than certified",
        lambda: b.a_solution(
            plan=b.a_plan(
                stages=(b.a_stage(0, 4, (0,)),), num_micro_batches=8, pods=pods(1, 1)
            )
        ),
        "Solution.plan",
    ),
    (
        "a plan where nothing fits",
        lambda: b.a_solution(certificate=b.an_infeasible().certificate),
        "Solution.plan",
    ),
    (
        "optimal without looking",
        lambda: b.a_solution(certificate=b.a_certificate(cut_off="P above 8")),
        "Solution.termination",
    ),
    (
        "optimal over an undecided count",
        lambda: b.a_solution(certificate=undecided_at_3()),
        "Solution.termination",
    ),
    (
        "infeasible, but it fits",
        lambda: b.an_infeasible(certificate=b.a_certificate()),
        "Infeasible.certificate",
    ),
    (
        "infeasible for another reason",
        lambda: b.an_infeasible(binding=Binding.RATE),
        "Infeasible.nearest_miss",
    ),
    (
        "interval out of order",
        lambda: ByteInterval(lower_bytes=2, expected_bytes=1, upper_bytes=3),
        "ByteInterval.expected_bytes",
    ),
    (
        "seconds out of order",
        lambda: SecondsInterval(lower_s=0.0, expected_s=2.0, upper_s=1.0),
        "SecondsInterval.expected_s",
    ),
    (
        "sequence parallelism alone",
        lambda: Variant(sequence_parallel=True),
        "Variant.sequence_parallel",
    ),
    ("no layers", lambda: LayerColumns(name=(), kind=()), "LayerColumns.name"),
    (
        "a layer without a kind",
        lambda: LayerColumns(name=("a", "b"), kind=(0,)),
        "LayerColumns.kind",
    ),
    (
        "two layers of one name",
        lambda: LayerColumns(name=("a", "a"), kind=(0, 0)),
        "LayerColumns.name",
    ),
    (
        "a column too short",
        lambda: b.layer_costs(boundary=b.byte_columns(2)),
        "LayerCosts.boundary.constant_bytes",
    ),
    (
        "times of the forward pass alone",
        lambda: b.layer_costs(backward=None),
        "LayerCosts.backward",
    ),
    (
        "a row twice",
        lambda: b.layer_costs(kind=(0, 1, 1)),
        "LayerCosts.kind",
    ),
    (
        "a kind that is not there",
        lambda: b.a_profile(kinds=("embedding", "block")),
        "ModelProfile.layers.kind",
    ),
    (
        "a kind without costs",
        lambda: b.a_profile(costs=b.layer_costs(2)),
        "ModelProfile.costs.kind",
    ),
    (
        "a variant that is not there",
        lambda: b.a_profile(costs=b.layer_costs(variant=(0, 0, 1))),
        "ModelProfile.costs.variant",
    ),
    (
        "tied to nowhere",
        lambda: b.a_profile(tied=(TiedLayers(layers=(0, 9)),)),
        "ModelProfile.tied",
    ),
    (
        "no schedule",
        lambda: b.an_engine(can=changed(b.an_engine().can, schedules=())),
        "EngineCapabilities.schedules",
    ),
    (
        "sharding only with a pipeline",
        lambda: changed(
            b.an_engine().can, shardings_with_pipeline=(Sharding.PARAMETERS,)
        ),
        "EngineCapabilities.shardings_with_pipeline",
    ),
    (
        "verified by nothing",
        lambda: b.an_engine(verified=True),
        "EngineTraits.num_verified_plans",
    ),
    (
        "a device without memory",
        lambda: b.an_offer(device_memory_bytes=0),
        "Offer.device_memory_bytes",
    ),
    (
        "a device with more memory than is counted",
        lambda: b.an_offer(device_memory_bytes=2**40 + 1),
        "Offer.device_memory_bytes",
    ),
    ("a price in nothing", lambda: b.an_offer(currency=None), "Offer.currency"),
    (
        "two rates for one precision",
        lambda: b.an_offer(
            compute_rates=(ComputeRate(precision=Precision.FP32, flop_per_s=1e12),) * 2
        ),
        "Offer.compute_rates",
    ),
    ("no offers", lambda: b.a_problem(offers=()), "Problem.offers"),
    (
        "cost without a price",
        lambda: b.a_problem(
            offers=(b.an_offer(price_per_node_hour=None, currency=None),),
            objective=Objective(goal=Goal.MINIMIZE_COST),
        ),
        "Problem.offers",
    ),
    (
        "cost without a length",
        lambda: b.a_problem(objective=Objective(goal=Goal.MINIMIZE_COST)),
        "Problem.num_steps",
    ),
    (
        "cost in two currencies",
        lambda: b.a_problem(
            offers=(b.an_offer(), b.an_offer(currency="EUR")),
            objective=Objective(goal=Goal.MINIMIZE_COST),
            num_steps=100,
        ),
        "Problem.offers",
    ),
    ("an empty chunk", lambda: Chunk(first_layer=2, end_layer=2), "Chunk.end_layer"),
    ("a stage of nothing", lambda: b.a_stage(0, 1, (0,), chunks=()), "Stage.chunks"),
    ("too few ranks", lambda: b.a_stage(0, 1, (0,), data_degree=2), "Stage.ranks"),
    (
        "recompute elsewhere",
        lambda: b.a_stage(0, 2, (0,), recomputed_layers=(2,)),
        "Stage.recomputed_layers",
    ),
    (
        "a phase twice",
        lambda: b.a_stage(0, 1, (0,), peaks=(b.a_peak(), b.a_peak())),
        "Stage.peaks",
    ),
    ("a plan of nothing", lambda: b.a_plan(stages=()), "HybridPlan.stages"),
    ("an offer that is not there", lambda: b.a_plan(offers=()), "HybridPlan.offers"),
    (
        "a layer twice",
        lambda: b.a_plan(stages=(b.a_stage(0, 2, (0, 1)), b.a_stage(1, 3, (2, 3)))),
        "HybridPlan.stages",
    ),
    (
        "a layer left out",
        lambda: b.a_plan(stages=(b.a_stage(0, 1, (0, 1)), b.a_stage(2, 3, (2, 3)))),
        "HybridPlan.stages",
    ),
    (
        "a rank twice",
        lambda: b.a_plan(stages=(b.a_stage(0, 1, (0, 1)), b.a_stage(1, 2, (1, 2)))),
        "HybridPlan.stages",
    ),
    (
        "a batch that does not multiply",
        lambda: b.a_plan(num_micro_batches=3),
        "HybridPlan.stages[0].data_degree",
    ),
    (
        "a miss of memory without bytes",
        lambda: b.a_miss(needed_bytes=None),
        "NearestMiss.needed_bytes",
    ),
    (
        "a miss of rate without rates",
        lambda: NearestMiss(binding=Binding.RATE),
        "NearestMiss.samples_per_s",
    ),
    (
        "decisions of two lengths",
        lambda: changed(b.a_count(1).decisions, micro_batch=(1, 2)),
        "Decisions.micro_batch",
    ),
    (
        "fails for no reason",
        lambda: changed(b.a_count(1), binding=None),
        "CountVerdict.binding",
    ),
    (
        "a count left out",
        lambda: b.a_certificate(counts=(b.a_count(1), b.a_count(3))),
        "Certificate.counts",
    ),
    (
        "more GPUs for less speed",
        lambda: b.a_certificate(fewest_at_any_speed=5),
        "Certificate.fewest_at_any_speed",
    ),
    ("optimal with a gap", lambda: b.a_solution(gap=0.1), "Solution.gap"),
    (
        "more allocated than reserved",
        lambda: ObservedPeak(
            phase=Phase.LOSS, allocated_bytes=2, reserved_bytes=1, device_bytes=3
        ),
        "ObservedPeak.reserved_bytes",
    ),
    (
        "more reserved than on the device",
        lambda: ObservedPeak(
            phase=Phase.LOSS, allocated_bytes=1, reserved_bytes=3, device_bytes=2
        ),
        "ObservedPeak.device_bytes",
    ),
    (
        "a phase observed twice",
        lambda: b.an_observation(peaks=b.an_observation().peaks * 2),
        "Observation.peaks",
    ),
]


def pods(num_pods: int, gpus_per_pod: int) -> PodShape:
    """Build a pod shape."""
    return PodShape(
        num_pods=num_pods, gpus_per_pod=gpus_per_pod, host_memory_bytes_per_pod=0
    )


def chunks(*runs: tuple[int, int]) -> tuple[Chunk, ...]:
    """Build chunks from first and end layers."""
    return tuple(Chunk(first_layer=first, end_layer=end) for first, end in runs)


def skipped(num_gpus: int) -> CountVerdict:
    """Build a count whose only tuple was not searched."""
    return b.a_count(
        num_gpus,
        Verdict.UNDECIDED,
        decisions=b.decisions(
            num_gpus, verdict=(Verdict.UNDECIDED,), rule=(Rule.NOT_SEARCHED,)
        ),
    )


def undecided_at_3() -> Certificate:
    """Build a certificate in which 3 GPUs may or may not be enough."""
    undecided = b.a_count(3, Verdict.UNDECIDED)
    counts = (*map(b.a_count, (1, 2)), undecided, b.a_count(4, Verdict.FITS))
    return b.a_certificate(counts=counts, fewest_at_any_speed=4)


def changed(record: Any, **fields: Any) -> Any:
    """Rebuild a record with other fields."""
    values = {name: getattr(record, name) for name in type(record).__slots__}
    return type(record)(**(values | fields))


@pytest.mark.parametrize(
    ("build", "path"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_broken_rule_names_its_field(build: Callable[[], Any], path: str) -> None:
    """Fields that contradict each other are refused when the record is made."""
    with pytest.raises(InvalidFieldError) as caught:
        build()
    assert caught.value.path == path


def test_verdicts_follow_the_bounds() -> None:
    """Fits on the upper bound, fails on the lower one, undecided between."""
    interval = ByteInterval(lower_bytes=10, expected_bytes=15, upper_bytes=20)
    assert interval.verdict(20) is Verdict.FITS
    assert interval.verdict(19) is Verdict.UNDECIDED
    assert interval.verdict(10) is Verdict.UNDECIDED
    assert interval.verdict(9) is Verdict.FAILS


def test_a_line_of_costs_is_read_at_a_micro_batch() -> None:
    """1000 + 10 b, off by 5 and 10 %: at b = 4 between (1040-5)*0.9 and 1045*1.1."""
    columns = b.byte_columns(
        1,
        constant_bytes=(1000,),
        slope_bytes_per_sample=(10,),
        residual_bytes=(5,),
        relative_error=(0.1,),
    )
    interval = columns.at(0, 4)
    assert interval.lower_bytes == 931
    assert interval.expected_bytes == 1040
    assert interval.upper_bytes == 1150


def test_a_line_of_seconds_is_read_at_a_micro_batch() -> None:
    """1 ms + 0.1 ms b, 5 % open: at b = 10 it is 2 ms."""
    interval = b.seconds_columns(1).at(0, 10)
    assert interval.expected_s == pytest.approx(2e-3)
    assert interval.lower_s == pytest.approx(1.9e-3)
    assert interval.upper_s == pytest.approx(2.1e-3)


def test_overhead_grows_with_batch_and_communicators() -> None:
    """100 + 10 b + 50 c, off by 5 and 10 %: 170 at b = 2 and c = 1."""
    line = type(b.an_overhead().outside)(
        constant_bytes=100,
        bytes_per_sample=10,
        bytes_per_communicator=50,
        residual_bytes=5,
        relative_error=0.1,
    )
    interval = line.at(2, 1)
    assert interval == ByteInterval(
        lower_bytes=148, expected_bytes=170, upper_bytes=193
    )


def test_a_plan_knows_its_size_and_mesh() -> None:
    """Two stages of two data-parallel ranks are 4 GPUs, a mesh of 2 x 2 x 1."""
    plan = b.a_plan()
    assert plan.num_gpus == 4
    assert plan.mesh == Mesh(pipeline=2, data=2)
    assert plan.samples_per_s == 8.0
    assert plan.peak_bytes == 10 * b.MIB


def test_uneven_stages_have_no_mesh() -> None:
    """Stages that differ in their degrees are a plan, but no mesh."""
    two = Variant(tensor_degree=2)
    first = b.a_stage(0, 2, (0, 1, 2, 3), data_degree=2, variant=two)
    last = b.a_stage(2, 4, (4, 5), peaks=())
    plan = b.a_plan(stages=(first, last), pods=pods(3, 2))
    assert plan.mesh is None
    assert plan.num_gpus == 6
    assert last.peak() is None


def test_the_peak_of_a_stage_is_its_worst_phase() -> None:
    """The largest upper bound on the device decides, whatever the order."""
    forward = b.a_peak(Phase.FORWARD, 5)
    step = b.a_peak(Phase.OPTIMIZER_STEP, 9)
    stage = b.a_stage(0, 1, (0,), peaks=(forward, step, b.a_peak(Phase.LOSS, 7)))
    assert stage.peak() == step


def test_a_miss_says_how_much_is_short() -> None:
    """Needed minus capacity; nothing where memory is not the reason."""
    assert b.a_miss().short_bytes == b.MIB
    rate = NearestMiss(
        binding=Binding.RATE, samples_per_s=1.0, needed_samples_per_s=2.0
    )
    assert rate.short_bytes == 0


def test_the_price_of_a_device_is_a_share_of_the_node() -> None:
    """80 for eight devices is 10 each, exactly."""
    assert b.an_offer().price_per_device_hour == Decimal(10)
    free = b.an_offer(price_per_node_hour=None, currency=None)
    assert free.price_per_device_hour is None


def test_termination_is_never_optimal_by_default() -> None:
    """A solution cut short by the clock is a valid one, and says so."""
    cut = b.a_certificate(cut_off="P above 8")
    solution = b.a_solution(
        termination=Termination.TIME_LIMIT, gap=0.2, certificate=cut
    )
    assert solution.termination is Termination.TIME_LIMIT
