"""What else could be had: plans that no other one beats in everything.

In: the plans that the search walked, and a few more. Out: at most `MOST` of them.
Called by `answer`. Compared are GPUs, peak, throughput and price; the plans asked for
besides those already found (the fewest GPUs at any speed, the best rate per GPU) are
the best rates of twice, four times, ... the chosen count, and the slimmest plan at the
floor of the chosen count.
"""

from __future__ import annotations

from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.tuple_search import Found
from plimsoll_planner.search.verdicts import Floor

MOST = 5


def pareto_front(explorer: Explorer, chosen: Found, floor: Floor) -> list[Found]:
    """Return the front without the chosen plan, by number of GPUs."""
    pool = list(explorer.search.fastest_of.values())
    count = chosen.candidate.num_gpus
    most_gpus = explorer.problem.limits.max_gpus
    while count < most_gpus:
        count = min(count * 2, most_gpus)
        most = explorer.best_rate(c for c in explorer.fitting if c.num_gpus == count)
        pool.extend([most] if most else [])
    needed = floor.expected(chosen.candidate.num_gpus)
    base = explorer.search.fastest(chosen.candidate)
    if base is not None and explorer.rate(base) >= needed:
        pool.append(explorer.slimmest(base, needed))
    front: list[Found] = []
    scores = {id(found): score(explorer, found) for found in [*pool, chosen]}
    taken = [scores[id(chosen)]]
    for found in sorted(pool, key=lambda found: scores[id(found)]):
        mine = scores[id(found)]
        if any(beats(scores[id(other)], mine) for other in [*pool, chosen]):
            continue
        if mine not in taken:
            taken.append(mine)
            front.append(found)
    return spread(front)


def score(explorer: Explorer, found: Found) -> tuple[float, ...]:
    """Return GPUs, peak, seconds of a step, price: smaller is better in each."""
    return (
        found.candidate.num_gpus,
        explorer.device_peak(found),
        found.step_s,
        explorer.price_per_hour(found.candidate),
    )


def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Tell whether one is nowhere larger and somewhere smaller."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def spread(front: list[Found]) -> list[Found]:
    """Return at most `MOST` plans of a front, evenly from its first to its last."""
    if len(front) <= MOST:
        return front
    last = len(front) - 1
    return [front[round(place * last / (MOST - 1))] for place in range(MOST)]
