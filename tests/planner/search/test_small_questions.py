"""Questions at the rim: counts, offers, currencies and bytes that used to break it."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal

import pytest

from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.records.bounds import MOST_GPUS
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.offer import ComputeRate, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.precision import NUMBERS
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.infeasible import more_gpus, most_tried
from plimsoll_planner.text.explain import certificate_lines
from plimsoll_planner.text.plans import nodes_text
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.questions import CHAIN, a_device, a_question, refused, solved

COUNTED = chain_profile(
    [replace(layer, flop=1e12) for layer in CHAIN],
    timed=False,
    device_kind=DeviceKind.EMULATED,
)
RATES = tuple(ComputeRate(precision=one, flop_per_s=1e14) for one in NUMBERS)


def test_no_more_gpus_are_advised_than_are_searched() -> None:
    """Near the largest limit the next 64 counts would break the limit's own bound."""
    assert most_tried(16) == 64
    assert most_tried(MOST_GPUS - 10) == MOST_GPUS
    limits = Limits(max_gpus=MOST_GPUS, pipeline_degrees=(1,), data_degrees=(1,))
    assert more_gpus(a_question(1, limits=limits)) is None


def test_an_offer_without_rates_is_left_out_and_named() -> None:
    """The others are planned; an error only where none is left."""
    named = a_device(900, name="known", compute_rates=RATES)
    bare = a_device(900, name="bare", device_product="Other", compute_rates=())
    answer = solved(a_question(profile=COUNTED, offers=(bare, named)))
    assert answer.certificate.space.offers == answer.plan.offers == (named,)
    assert any(w.startswith("offer bare left out: no ") for w in answer.warnings)
    with pytest.raises(CannotPlanError, match="offer bare: no "):
        refused(a_question(profile=COUNTED, offers=(bare,)))


def priced(name: str, price: str | None, currency: str | None) -> Offer:
    """Build an offer with a price."""
    offer: Offer = a_device(
        900,
        name=name,
        price_per_node_hour=None if price is None else Decimal(price),
        currency=currency,
    )
    return offer


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ((priced("a", "10", "USD"), priced("b", "9", "USD")), "b"),
        ((priced("a", "10", "USD"), priced("b", "9", "EUR")), "a"),
        ((priced("a", "10", "USD"), priced("b", None, None)), "a"),
        (
            tuple(
                priced(*o)
                for o in (("a", "10", "USD"), ("b", "9", "EUR"), ("c", "8", "USD"))
            ),
            "c",
        ),
    ],
)
def test_prices_break_ties_in_one_currency_only(
    offers: tuple[Offer, ...], chosen: str
) -> None:
    """9 EUR are not less than 10 USD, and no price is not a low one.

    With a second currency the dearer offer of one machine was taken.
    """
    answer = solved(a_question(offers=offers))
    assert answer.plan.offers[0].name == chosen
    currencies = {offer.currency for offer in offers if offer.currency}
    is_warned = any("EUR, USD are not compared" in text for text in answer.warnings)
    assert is_warned is (len(currencies) > 1)


TEN = Decimal(10)


def test_alternatives_of_another_currency_are_not_beaten() -> None:
    """A plan that is worse in everything else stays, for nobody knows its price."""
    dollars, euros = (
        a_device(memory, name=currency, price_per_node_hour=TEN, currency=currency)
        for memory, currency in ((900, "USD"), (899, "EUR"))
    )
    answer = solved(a_question(offers=(dollars, euros)))
    found = {plan.currency for plan in (answer.plan, *answer.alternatives)}
    assert found == {"USD", "EUR"}
    same = replace(euros, currency="USD")
    answer = solved(a_question(offers=(dollars, same)))
    found = {plan.offers[0].name for plan in (answer.plan, *answer.alternatives)}
    assert found == {"USD"}


@pytest.mark.parametrize("num_layers", [4, 64])
def test_bytes_above_any_device_are_memory_that_binds(num_layers: int) -> None:
    """Sums beyond 2^53, and beyond 2^63, neither overflow nor pass for small ones."""
    huge = Layer(
        parameters=2**52,
        optimizer=2**53 - 1,
        boundary=2**50,
        kept=Activation(saved=2**52, backward=2**52),
    )
    answer = refused(
        a_question(
            profile=chain_profile(
                [huge] * num_layers,
                device_kind=DeviceKind.EMULATED,
                byte_error=0.1,
                input_bytes_per_sample=2**52,
            ),
            global_batch_size=4096,
            limits=Limits(max_gpus=4),
        )
    )
    assert answer.binding is Binding.MEMORY
    assert answer.nearest_change == "none was found: change the model or its limits"
    assert answer.nearest_miss is not None
    assert (answer.nearest_miss.needed_bytes or 0) > 2**40


def test_limits_that_contradict_each_other_are_refused_in_one_line() -> None:
    """Degrees that need more devices than are allowed; fixed ones that are not."""
    with pytest.raises(InvalidFieldError, match="at least 12, which pipeline_degrees"):
        Limits(max_gpus=8, pipeline_degrees=(4, 5), data_degrees=(3,))
    with pytest.raises(InvalidFieldError, match="one that the limits allow: 2, 4"):
        a_question(
            limits=Limits(max_gpus=8, pipeline_degrees=(2, 4)),
            override=Override(num_stages=3),
        )


def many_offers(number: int) -> Problem:
    """Ask for machines of four sizes at many prices."""
    return a_question(
        offers=tuple(
            a_device(
                (700, 900, 1100, 1300)[place % 4],
                name=f"machine-{place}",
                price_per_node_hour=Decimal(10 + place % 97),
                currency="USD",
            )
            for place in range(number)
        )
    )


def test_machines_that_differ_by_price_alone_are_searched_once() -> None:
    """The cheapest is chosen, and every tuple of every offer has its row."""
    few, many = many_offers(4), many_offers(240)
    explorer = Explorer(many)
    assert len(explorer.open) == len(Explorer(few).open)
    answer = solved(many)
    assert answer.certificate.is_proof
    (chosen,) = answer.plan.offers
    assert chosen.price_per_node_hour == min(
        offer.price_per_node_hour or 0
        for offer in many.offers
        if offer.device_memory_bytes == chosen.device_memory_bytes
    )
    members = sum(answer.certificate.counts[0].decisions.num_members)
    of_few = sum(solved(few).certificate.counts[0].decisions.num_members)
    assert members == 60 * of_few


def test_a_batch_of_many_divisors_is_answered() -> None:
    """720,720 has 240 of them; far below a minute of CPU time."""
    began_s = time.process_time()
    question = a_question(
        global_batch_size=720_720,
        limits=Limits(max_gpus=6),
        objective=Objective(goal=Goal.MINIMIZE_GPUS),
    )
    assert solved(question).plan.num_gpus == 3
    assert time.process_time() - began_s < 20


@pytest.mark.parametrize("goal", Goal)
def test_whole_nodes_are_refused_where_no_goal_counts_them(goal: Goal) -> None:
    """The certificate listed the limit, and 10 GPUs of 3 nodes were chosen for memory.

    A cost is that of whole nodes in any case.
    """
    limits = Limits(max_gpus=4, whole_nodes=True)
    objective = Objective(goal=goal)
    priced = (a_device(900, price_per_node_hour=Decimal(2), currency="EUR"),)
    if goal in (Goal.MINIMIZE_GPUS, Goal.MINIMIZE_COST):
        a_question(limits=limits, objective=objective, num_steps=1, offers=priced)
        return
    with pytest.raises(InvalidFieldError, match=f"whole_nodes: .* false with {goal}, "):
        a_question(limits=limits, objective=objective)


def test_whole_nodes_are_what_is_least_where_they_are_paid_for() -> None:
    """On nodes of 5, 9 devices need 3, for pods are equal; 10 devices stand on 2.

    So 10 are chosen, 9 fit too, and every tuple that pays for fewer than 10 fails.
    """
    degrees = Limits(max_gpus=10, pipeline_degrees=(9, 10), data_degrees=(1,))
    question = a_question(
        offers=(a_device(900, devices_per_node=5),),
        global_batch_size=16,
        limits=degrees,
    )
    used = solved(question)
    paid = solved(replace(question, limits=replace(degrees, whole_nodes=True)))
    assert (used.plan.num_gpus, used.plan.num_nodes) == (9, 3)
    assert (paid.plan.num_gpus, paid.plan.num_nodes) == (10, 2)
    certificate = paid.certificate
    assert certificate.is_proof
    assert (certificate.paid_gpus, certificate.fewest_at_floor) == (10, 9)
    text = "fewest paid for: 10 devices, 10 used; every plan that pays for fewer fails"
    assert certificate_lines(certificate)[0] == text
    assert nodes_text(used.plan).endswith(
        "15 paid for, 9 used (pods are equal, 3 of 3; 10 stand on 2)"
    )
