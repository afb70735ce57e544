"""Spec to question, and answer to status."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_operator.api.status import ObservedStatus
from plimsoll_operator.rules.question import question_of, require_sound
from plimsoll_operator.rules.summary import (
    certificate_status,
    observed_status,
    plan_status,
    step_fault,
)
from plimsoll_planner.engines import engine_named
from plimsoll_planner.errors import InvalidFieldError, InvalidInputError
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, LayerStatistics
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.record import Record, shapes_of
from plimsoll_planner.units import at_least
from plimsoll_planner.vocabulary import IN_SPEC
from tests.support.builders import (
    a_fingerprint,
    a_plan,
    a_profile,
    a_solution,
    an_offer,
    an_overhead,
)
from tests.support.questions import a_device, a_question, solved
from tests.support.reports import told_by
from tests.support.specs import a_spec


def test_a_spec_becomes_a_question() -> None:
    """Every field has its place; offers of another kind of device do not count."""
    spec = a_spec(
        training={"globalBatchSize": 8, "steps": 60},
        search={
            "objective": "MinimizeCost",
            "maxGPUs": 4,
            "rateFloor": "0.25",
            "headroom": "0.1",
            "deadlineSeconds": 3600,
        },
        override={"data": 2},
    )
    emulated = an_offer(name="here", device_kind=DeviceKind.EMULATED)
    found = question_of(spec, a_profile(), (an_offer(), emulated), (an_overhead(),))
    assert found.offers == (an_offer(),)
    assert (found.num_steps, found.global_batch_size) == (60, 8)
    assert found.objective.goal is Goal.MINIMIZE_COST
    assert (found.objective.rate_floor, found.limits.headroom) == (0.25, 0.1)
    assert found.objective.deadline_s == 3600
    assert (found.limits.max_gpus, found.override.data_degree) == (4, 2)


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.15.0", "2.16.0"])
def test_the_engine_is_that_of_the_torch_that_was_profiled(version: str) -> None:
    """What its ranks hold differs; one that nobody looked at is unverified."""
    profile = a_profile(fingerprint=a_fingerprint(torch_version=version))
    found = question_of(a_spec(), profile, (an_offer(),), ())
    assert found.engine == engine_named("plimsoll", version)
    assert found.engine.verified is (version != "2.16.0")


def test_layers_over_a_micro_batch_need_one_that_is_fixed() -> None:
    """BatchNorm trains differently with each micro-batch: one line, two ways out.

    The same weights and data ended at a loss of 1.23 with a micro-batch of 8, and at
    1.77 with the one that the search had chosen.
    """
    norm = LayerStatistics(kind=1, what="BatchNorm1d")
    profile = replace(a_profile(), batch_statistics=(norm,))
    with pytest.raises(InvalidFieldError) as found:
        question_of(a_spec(), profile, (an_offer(),), ())
    said = str(found.value)
    assert said.startswith("spec.override.microBatch: got ")
    assert "trained in 'block.0' (BatchNorm1d), 'block.1' (BatchNorm1d); or" in said
    assert "set spec.training.batchStatistics to PerMicroBatch" in said
    for fields in (
        {"override": {"microBatch": 2}},
        {"training": {"globalBatchSize": 8, "steps": 1, "batchStatistics": PER}},
    ):
        found_now = question_of(a_spec(**fields), profile, (an_offer(),), ())
        assert found_now.profile == profile


PER = "PerMicroBatch"


def test_what_is_fixed_widens_the_default_limit() -> None:
    """Thirty-two GPUs fixed by hand are searched where nobody limited them."""
    found = question_of(a_spec(override={"gpus": 32}), a_profile(), (an_offer(),), ())
    assert found.limits.max_gpus == 32


def test_without_an_offer_of_the_kind_there_is_no_question() -> None:
    """A profile for CUDA and emulated devices: refused, never planned by accident."""
    emulated = an_offer(device_kind=DeviceKind.EMULATED)
    with pytest.raises(InvalidFieldError, match="offers"):
        question_of(a_spec(), a_profile(), (emulated,), ())


def test_a_status_names_the_plan_and_why_one_fewer_fails() -> None:
    """The load line is the device's memory less the headroom."""
    answer = a_solution()
    plan = plan_status(answer.plan, answer.certificate.space.limits)
    assert plan.gpus == answer.plan.num_gpus == 4
    assert plan.capacity_bytes == answer.plan.offers[0].device_memory_bytes
    assert plan.predicted_peak_bytes == answer.plan.peak_bytes
    assert plan.predicted_peak == at_least(plan.predicted_peak_bytes)
    told = certificate_status(answer)
    assert (told.smaller_gpus, told.verdict) == (3, Verdict.FAILS)
    assert told.reason == "rank 0, backward: needs 11.00 MiB, has 10.00 MiB"
    assert told.space.startswith("1 to 16 GPUs; 1 offer")


def test_a_status_says_what_is_paid_for_where_whole_nodes_are_counted() -> None:
    """On nodes of 5, 9 devices fit and need 3 of them, and 10 stand on 2.

    The status said under "why the count just below will not do" that 9 fit.
    """
    limits = Limits(
        max_gpus=10, pipeline_degrees=(9, 10), data_degrees=(1,), whole_nodes=True
    )
    offers = (a_device(900, devices_per_node=5),)
    answer = solved(a_question(offers=offers, global_batch_size=16, limits=limits))
    told = certificate_status(answer)
    assert (told.smaller_gpus, told.verdict, told.paid_gpus) == (9, Verdict.FITS, 10)
    assert told.reason == (
        "fewest paid for: 10 devices, 10 used; every plan that pays for fewer fails"
    )
    assert certificate_status(a_solution()).paid_gpus is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"override": {"data": 3}},
            "spec.training.globalBatchSize: got 8, allowed is a multiple of 3, which "
            "is spec.override.data",
        ),
        (
            {"override": {"data": 2, "microBatch": 3}},
            "a multiple of 6, which is spec.override.data times "
            "spec.override.microBatch",
        ),
        (
            {"override": {"gpus": 4, "pipeline": 3}},
            "spec.override.gpus: got 4, allowed is a multiple of 3, stages",
        ),
        (
            {"override": {"gpus": 2}, "search": {"maxGPUs": 1}},
            "spec.search.maxGPUs: got 1, allowed is at least 2, which what is fixed "
            "needs; or leave it out",
        ),
        (
            {"override": {"pipeline": 2, "data": 2}, "search": {"maxGPUs": 3}},
            "spec.search.maxGPUs: got 3, allowed is at least 4",
        ),
        (
            {"override": {"microBatch": 4}, "search": {"maxMicroBatch": 2}},
            "spec.override.microBatch: got 4, allowed is at most 2, which is "
            "spec.search.maxMicroBatch",
        ),
        ({"search": {"headroom": "1"}}, "spec.search.headroom: got 1.0, allowed is be"),
        (
            {"search": {"engine": "plimsol"}},
            "spec.search.engine: no engine plimsol; did you mean plimsoll?",
        ),
        (
            {"search": {"objective": "MinimizeCost"}},
            "spec.search.offers: got 'free', allowed is offers that all have a price",
        ),
        (
            {"search": {"objective": "MinimizeMemory", "wholeNodes": True}},
            "spec.search.wholeNodes: got True, allowed is false with MinimizeMemory, "
            "which counts no nodes: leave it out, or ask for MinimizeGPUs or "
            "MinimizeCost",
        ),
    ],
)
def test_what_contradicts_itself_is_told_before_a_profile_in_words_of_the_spec(
    parts: dict[str, Any], message: str
) -> None:
    """The same line with a profile and without one, and no name of a record in it."""
    free = an_offer(name="free", price_per_node_hour=None, currency=None)
    for ask in (
        lambda spec: require_sound(spec, (free,)),
        lambda spec: question_of(spec, a_profile(), (free,), ()),
    ):
        with pytest.raises(InvalidInputError) as refused:
            ask(a_spec(**parts))
        assert message in str(refused.value)


def test_a_trace_needs_rates_to_make_seconds_of_its_work() -> None:
    """A machine that states none is refused before it is profiled in vain."""
    bare = an_offer(name="bare", compute_rates=())
    require_sound(a_spec(profile={"source": "Traced"}), (an_offer(), bare))
    require_sound(a_spec(profile={"source": "Measured"}), (bare,))
    with pytest.raises(InvalidFieldError) as refused:
        require_sound(a_spec(profile={"source": "Traced"}), (bare,))
    assert str(refused.value) == (
        "spec.profile.source: got 'Traced', allowed is Auto or Measured: a trace has "
        "no seconds, and bare states no rate to make them from"
    )


def test_what_does_not_fit_the_profile_is_told_in_words_of_the_spec() -> None:
    """Layers that the workload does not have."""
    spec = a_spec(override={"cuts": [0, 99]})
    require_sound(spec, (an_offer(),))
    with pytest.raises(InvalidFieldError, match=r"^spec\.override\.cuts: got 99, allo"):
        question_of(spec, a_profile(), (an_offer(),), ())


@pytest.mark.parametrize("record", [Limits, Objective, Override])
def test_every_field_that_a_spec_sets_has_its_path(record: type[Record]) -> None:
    """A new field of a problem cannot leave an error in the words of the record."""
    set_by_no_spec = {
        *("pipeline_degrees", "data_degrees", "tensor_degrees", "schedules"),
        *("shardings", "optimizer_homes", "in_flight_caps", "max_tuples"),
        "offload",
    }
    spec = a_spec()
    for field in set(shapes_of(record)) - set_by_no_spec:
        opening, part, name = IN_SPEC.path(f"{record.__name__}.{field}").split(".")
        assert opening == "spec"
        assert name in getattr(spec, part).to_json()


def test_a_status_tells_the_fullest_rank_in_bytes_and_for_people() -> None:
    """Before a step is done no rank has come to its peak, and nothing is told."""
    plan = a_solution().plan
    told = [told_by(plan, rank, (rank + 1) * 2**30) for rank in range(2)]
    found = observed_status(plan, told)
    assert found is not None
    assert (found.peak_bytes, found.peak) == (2 * 2**30, "2.00 GiB")
    assert observed_status(plan, [replace(one, num_steps=0) for one in told]) is None


def test_a_short_step_needs_no_other_profile() -> None:
    """It was profiled seconds before; a step of 1.4 ms is overhead all the same."""

    def fault(step_s: str) -> str:
        observed = ObservedStatus(
            peak_bytes=1,
            peak="",
            error_percent=Decimal(0),
            step_seconds=Decimal(step_s),
        )
        return step_fault(a_plan(), observed)

    assert fault("1") == ""
    assert "profile the model again" in fault("3")
    assert fault("0.0014").endswith("or other work ran on the machine")
    assert "profile the model again" not in fault("0.0014")
