"""Leaves out offers of unknown speed, with a warning.

In: a problem. Out: the same with the offers whose seconds are known, and a warning for
each of the others. Called by `explore`, before anything is searched.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.timing.chain_seconds import chain_seconds

MOST_NAMED = 3
"""Offers that are left out for one reason and named; the others are counted."""


def with_known_seconds(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """Problem of the offers that can be planned, and why others cannot.

    Raises:
        CannotPlanError: no offer is left; says what the first one lacks.
    """
    found = {clock(offer): lack(problem, offer) for offer in problem.offers}
    missing: dict[str, list[str]] = {}
    for offer in problem.offers:
        if error := found[clock(offer)]:
            missing.setdefault(error, []).append(offer.name)
    known = tuple(offer for offer in problem.offers if not found[clock(offer)])
    if not known:
        raise CannotPlanError(f"offer {problem.offers[0].name}: {next(iter(missing))}")
    if not missing:
        return problem, ()
    return replace(problem, offers=known), tuple(
        f"{names_text(names)} left out: {error}" for error, names in missing.items()
    )


def clock(offer: Offer) -> Hashable:
    """Key of the seconds of whole layers on an offer: all that they depend on.

    Those of parts depend on the link inside a node as well.
    """
    return (
        offer.device_product,
        offer.compute_rates,
        offer.memory_bandwidth_bytes_per_s,
    )


def lack(problem: Problem, offer: Offer) -> str:
    """Reason why the seconds on an offer are not known; empty if they are."""
    profile = problem.profile
    try:
        chain_seconds(profile, offer, Bound.EXPECTED, profile.least_micro_batch)
    except CannotPlanError as error:
        return str(error).removeprefix(f"offer {offer.name}: ")
    return ""


def names_text(names: list[str]) -> str:
    """Names of offers, as in `offer a, b, c and 4 others`."""
    more = len(names) - MOST_NAMED
    text = ", ".join(names[:MOST_NAMED])
    return f"offer {text} and {more} others" if more > 0 else f"offer {text}"
