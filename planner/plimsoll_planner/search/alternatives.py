"""Alternatives: plans that no other one beats in everything.

In: the plans that the search walked, and a few more. Out: at most `MOST` of them.
Called by `answer`. Compared are GPUs, peak, throughput and price; the plans asked for
besides those already found (the fewest GPUs at any speed, the best rate per GPU) are
the best rates of counts up to the most (`counts_above`), and the plan of the least
memory at the floor of the chosen count.
"""

from __future__ import annotations

import math
from dataclasses import replace

from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.front import unbeaten
from plimsoll_planner.search.verdicts import Floor

MOST = 5


def pareto_front(explorer: Explorer, chosen: Found, floor: Floor) -> list[Found]:
    """Front without the chosen plan, by number of GPUs."""
    cheapest = {explorer.search.alike(one): one for one in explorer.open}
    pool = [
        replace(found, candidate=cheapest[explorer.search.alike(found.candidate)])
        for found in explorer.search.fastest_of.values()
    ]
    fewest, most_gpus = chosen.candidate.num_gpus, explorer.problem.limits.max_gpus
    for count in counts_above(fewest, most_gpus):
        most = explorer.best_rate(c for c in explorer.open if c.num_gpus == count)
        pool.extend([most] if most else [])
    needed = floor.expected(chosen.candidate.num_gpus)
    base = explorer.search.fastest(chosen.candidate)
    if base is not None and explorer.rate(base) >= needed:
        slow = explorer.search.least_memory(base, explorer.target_s(needed))
        pool.append(slow.found)
    plans = [chosen, *sorted(pool, key=lambda found: numbers(explorer, found))]
    offers = explorer.problem.offers
    front: list[Found] = []
    # Prices in two currencies, or without one, cannot be compared.
    for currency in dict.fromkeys(offer.currency for offer in offers):
        mine = [p for p in plans if offers[p.candidate.offer].currency == currency]
        front += unbeaten(mine, lambda found: numbers(explorer, found))
    others = [found for found in front if found is not chosen]
    return spread(sorted(others, key=lambda found: numbers(explorer, found)))


def counts_above(fewest: int, most: int) -> list[int]:
    """Twice, four times, ... a count, up to the most.

    Where these are more than can be shown, in larger steps: four, 16, ... times it.
    """
    num_doublings = math.ceil(math.log2(most / fewest))
    doublings_each = max(1, math.ceil(num_doublings / MOST))
    steps = range(doublings_each, num_doublings + doublings_each, doublings_each)
    return [min(fewest * 2**step, most) for step in steps]


def numbers(explorer: Explorer, found: Found) -> tuple[float, ...]:
    """GPUs, peak, seconds of a step, price: smaller is better in each."""
    candidate = found.candidate
    return (
        candidate.num_gpus,
        explorer.device_peak(found),
        found.step_s,
        float(explorer.search.price_per_hour(candidate) or 0),
    )


def spread(front: list[Found]) -> list[Found]:
    """At most `MOST` plans of a front, evenly from its first to its last."""
    if len(front) <= MOST:
        return front
    last = len(front) - 1
    return [front[round(place * last / (MOST - 1))] for place in range(MOST)]
