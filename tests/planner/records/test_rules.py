"""Rules between the fields of a record: each is broken once, and named."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.certificate import Binding, NearestMiss
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval, Verdict
from plimsoll_planner.records.model_profile import (
    EdgeColumns,
    LayerColumns,
    Precision,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.offer import ComputeRate
from plimsoll_planner.records.plan import Chunk, Phase, PodShape
from plimsoll_planner.records.problem import Goal, Objective
from plimsoll_planner.records.solution import Termination
from tests.support import builders as b

BROKEN: list[tuple[str, Callable[[], Any], str]] = [
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
        "an edge backwards",
        lambda: EdgeColumns(source=(0, 2), target=(1, 1)),
        "EdgeColumns.target[1]",
    ),
    (
        "an edge without a target",
        lambda: EdgeColumns(source=(0,), target=()),
        "EdgeColumns.target",
    ),
    (
        "a column too short",
        lambda: b.layer_costs(saved=b.byte_columns(2)),
        "LayerCosts.saved.constant_bytes",
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
        "an edge to nowhere",
        lambda: b.a_profile(edges=EdgeColumns(source=(0,), target=(4,))),
        "ModelProfile.edges.target",
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
        "pods of another size",
        lambda: b.a_plan(
            pods=PodShape(num_pods=1, gpus_per_pod=8, host_memory_bytes_per_pod=0)
        ),
        "HybridPlan.pods",
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
        "undecided without a plan",
        lambda: changed(b.a_count(1, Verdict.UNDECIDED), num_undecided=0),
        "CountVerdict.num_undecided",
    ),
    (
        "a count left out",
        lambda: b.a_certificate(counts=(b.a_count(1), b.a_count(3))),
        "Certificate.counts",
    ),
    (
        "cut off, but exhaustive",
        lambda: b.a_certificate(cut_off="P above 8"),
        "Certificate.cut_off",
    ),
    (
        "more GPUs for less speed",
        lambda: b.a_certificate(fewest_at_any_speed=5),
        "Certificate.fewest_at_any_speed",
    ),
    (
        "optimal without looking",
        lambda: b.a_solution(
            certificate=b.a_certificate(exhaustive=False, cut_off="P above 8")
        ),
        "Solution.termination",
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
    """100 + 10 b + 50 c, off by 5 and 10 %: at b = 2, c = 1 it is 170 -+ 22."""
    line = type(b.an_overhead().outside)(
        constant_bytes=100,
        bytes_per_sample=10,
        bytes_per_communicator=50,
        residual_bytes=5,
        relative_error=0.1,
    )
    interval = line.at(2, 1)
    assert interval == ByteInterval(
        lower_bytes=148, expected_bytes=170, upper_bytes=192
    )


def test_a_plan_knows_its_size_and_mesh() -> None:
    """Two stages of two data-parallel ranks are 4 GPUs, a mesh of 2 x 2 x 1."""
    plan = b.a_plan()
    assert plan.num_gpus == 4
    assert plan.mesh() == (2, 2, 1)
    assert list(plan.stages[1].layers()) == [2, 3]


def test_uneven_stages_have_no_mesh() -> None:
    """Stages that differ in their degrees are a plan, but no mesh."""
    tensor = b.a_stage(
        2, 4, (1, 2), data_degree=1, variant=Variant(tensor_degree=2), peaks=()
    )
    pods = PodShape(num_pods=3, gpus_per_pod=1, host_memory_bytes_per_pod=0)
    plan = b.a_plan(
        stages=(b.a_stage(0, 2, (0,)), tensor), num_micro_batches=8, pods=pods
    )
    assert plan.mesh() is None
    assert tensor.peak() is None


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
    cut = b.a_certificate(exhaustive=False, cut_off="P above 8")
    solution = b.a_solution(
        termination=Termination.TIME_LIMIT, gap=0.2, certificate=cut
    )
    assert solution.termination is Termination.TIME_LIMIT
