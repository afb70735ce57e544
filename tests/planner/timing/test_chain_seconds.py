"""Measured seconds where there are any, estimates elsewhere, and no guesses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.offer import ComputeRate
from plimsoll_planner.timing.chain_seconds import chain_seconds
from tests.support.builders import a_recipe, an_offer
from tests.support.chains import Layer, chain_profile

LAYERS = [Layer(forward_s=0.5, backward_s=1.0, recompute_s=0.25, step_s=0.125)] * 2
RATED = an_offer(
    device_product="L4",
    compute_rates=(ComputeRate(precision=Precision.BF16, flop_per_s=1024.0),),
    memory_bandwidth_bytes_per_s=64.0,
)


def test_measured_seconds_are_those_of_the_profile() -> None:
    """Lines at b = 2, with the interval of the measurement."""
    profile = chain_profile(LAYERS, time_error=0.5)
    found = {
        bound: chain_seconds(profile, an_offer(), bound, 2).forward[1]
        for bound in Bound
    }
    assert found == {Bound.LOWER: 0.5, Bound.EXPECTED: 1.0, Bound.UPPER: 1.5}
    expected = chain_seconds(profile, an_offer(), Bound.EXPECTED, 2)
    assert expected.backward.tolist() == [2.0, 2.0]
    assert expected.recompute.tolist() == [0.5, 0.5]
    assert expected.optimizer_step.tolist() == [0.125, 0.125]
    assert expected.total == 6.0
    assert not expected.is_estimated


def test_another_product_is_estimated_from_work() -> None:
    """Roofline: 512 FLOP at 1024 a second and 16 bytes at 64 a second, backward twice.

    lower max(0.5, 0.25); expected 0.75 / 0.6; upper 0.75 / 0.5.
    """
    profile = chain_profile([Layer(flop=512.0, traffic=16.0)])
    for bound, forward_s in (
        (Bound.LOWER, 0.5),
        (Bound.EXPECTED, 1.25),
        (Bound.UPPER, 1.5),
    ):
        found = chain_seconds(profile, RATED, bound, 1)
        assert found.is_estimated
        assert found.forward[0] == pytest.approx(forward_s, abs=1e-9)
        assert found.backward[0] == pytest.approx(2 * forward_s, abs=1e-9)
        assert found.recompute[0] == found.forward[0]


def test_work_that_nobody_counted_widens_the_estimate() -> None:
    """By an assumption, 1,024 FLOPs at one sample: none, those, or 16 times those."""
    known = chain_profile([Layer(flop=512.0, traffic=16.0)])
    work = replace(
        known.costs.forward_work,
        uncounted_flop_constant=(0.0,),
        uncounted_flop_per_sample=(1024.0,),
    )
    profile = replace(known, costs=replace(known.costs, forward_work=work))
    for bound, more_s in (
        (Bound.LOWER, 0.0),
        (Bound.EXPECTED, 1.0 / 0.6),
        (Bound.UPPER, 16.0 / 0.5),
    ):
        counted, wider = (
            chain_seconds(made, RATED, bound, 1).forward[0] for made in (known, profile)
        )
        assert wider - counted == pytest.approx(more_s, abs=1e-8)


def test_an_offer_without_the_rate_is_named() -> None:
    """The message says which rate is missing, and what to do."""
    offer = an_offer(name="mystery", device_product="X", compute_rates=())
    with pytest.raises(CannotPlanError, match="offer mystery: no bf16 rate") as found:
        chain_seconds(chain_profile(LAYERS), offer, Bound.EXPECTED, 1)
    assert "state the rate" in str(found.value)


@pytest.mark.parametrize(
    "precision", ["bf16-pure", "bf16-autocast", "fp16", "fp16-autocast"]
)
def test_products_of_two_bytes_have_the_rate_of_bf16(precision: str) -> None:
    """Whatever parameters are in; fp16 has its own where an offer states one."""
    recipe = a_recipe(precision=Precision(precision))
    known, same = (
        chain_seconds(
            chain_profile([Layer(flop=512.0)], recipe=of), RATED, Bound.LOWER, 1
        )
        for of in (recipe, a_recipe())
    )
    assert known.forward[0] == same.forward[0] > 0
    twice = ComputeRate(precision=Precision.FP16, flop_per_s=2048.0)
    faster = replace(RATED, compute_rates=(*RATED.compute_rates, twice))
    found = chain_seconds(
        chain_profile([Layer(flop=512.0)], recipe=recipe), faster, Bound.LOWER, 1
    )
    speed = 2 if "fp16" in precision else 1
    assert found.forward[0] * speed == pytest.approx(known.forward[0], rel=1e-6)


def test_a_profile_without_times_is_refused() -> None:
    """Zero seconds in all would make every plan equally fast."""
    silent = chain_profile([Layer(forward_s=0.0, backward_s=0.0)])
    with pytest.raises(CannotPlanError, match="the profile has no times"):
        chain_seconds(silent, an_offer(), Bound.EXPECTED, 1)
    with pytest.raises(CannotPlanError, match="the profile has no times"):
        chain_seconds(chain_profile(LAYERS, timed=False), RATED, Bound.EXPECTED, 1)
