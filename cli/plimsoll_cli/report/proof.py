"""The certificate, count by count: why not fewer.

In: an answer. Out: a `ProofView`. Called by `page`. The sentences are those of
`plimsoll explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from plimsoll_planner.records.certificate import CountVerdict, Rule
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import device_noun
from plimsoll_planner.text.explain import (
    certificate_lines,
    decided_text,
    ending_text,
    is_searched,
    need_text,
    offer_text,
    place_of,
    reason_text,
    why_text,
)
from plimsoll_planner.text.rules import RULE_NAMES, RULES, combination_text
from plimsoll_planner.text.space import space_text
from plimsoll_planner.units import at_least, at_most
from plimsoll_planner.vocabulary import IN_SPEC, Vocabulary

MOST_ROWS = 24
"""Counts that are listed at sight; of more, the first ones are folded away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """Memory that a count needs on its fullest device, against the load line."""

    text: str
    short: str
    """By how much it does not fit; empty where it does."""
    within: float
    """Percent of the width, as all places: what is below the load line."""
    over: float
    """The part beyond it."""
    line: float
    """Position of the load line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountRow:
    """One number of devices, or several in a row with the same reason."""

    first: int
    last: int
    verdict: Verdict
    is_left_out: bool
    """The limits, or what was fixed, leave it no plan: nothing is claimed of it."""
    reason: str
    """Set if it is not memory."""
    need: Need | None
    decided: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofView:
    """The certificate."""

    sentences: tuple[str, ...]
    noun: str
    """Word for a device."""
    folded: tuple[CountRow, ...]
    rows: tuple[CountRow, ...]
    combination: str
    """A sentence on the parts of a combination."""
    rules: tuple[tuple[str, str], ...]
    space: str
    warnings: tuple[str, ...]


def proof_view(
    answer: Solution | Infeasible,
    problem: Problem | None,
    plan: HybridPlan | None,
    words: Vocabulary = IN_SPEC,
) -> ProofView:
    """The certificate in words and rows.

    Args:
        answer: has it.
        problem: the question; None: not known.
        plan: the answer's, or an earlier one; None: none fits.
        words: names of the fields of the question.
    """
    certificate = answer.certificate
    noun = device_noun(certificate.space.offers)
    sentences = certificate_lines(certificate)
    if isinstance(answer, Solution):
        why = [] if problem is None else [why_text(problem, answer)]
        sentences = [*sentences, *why, ending_text(answer)]
        if plan is not None and plan.revision > answer.plan.revision:
            sentences.append(
                "this is proven of the plan that was launched; while it ran, it was "
                f"revised to revision {plan.revision}, on as many {noun}s"
            )
        elif plan is not None and plan != answer.plan:
            since = f"this is the newest answer, plan {digest_of(answer.plan)}"
            sentences.append(f"{since}; what is measured is of the plan before it")
    most = max(map(overload, certificate.counts), default=1.0)
    rows = joined([row_of(answer, count, most) for count in certificate.counts])
    used = {rule for count in certificate.counts for rule in count.decisions.rule}
    return ProofView(
        sentences=tuple(sentence(line, words) for line in sentences),
        noun=noun,
        folded=rows[:-MOST_ROWS],
        rows=rows[-MOST_ROWS:],
        combination=sentence(
            combination_text(
                has_tensor=certificate.has_tensor,
                is_placed=certificate.space.places_operators,
            )
        ),
        rules=tuple((RULE_NAMES[rule], RULES[rule]) for rule in Rule if rule in used),
        space=words.text(space_text(certificate.space)),
        warnings=tuple(map(words.text, answer.warnings)),
    )


def sentence(line: str, words: Vocabulary = IN_SPEC) -> str:
    """A line of `explain` as a sentence of prose."""
    line = words.text(line)
    return f"{line[:1].upper()}{line[1:]}."


def joined(rows: Sequence[CountRow]) -> tuple[CountRow, ...]:
    """The rows with those joined that say the same."""
    alike = groupby(rows, key=lambda row: replace(row, first=0, last=0))
    runs = (list(run) for _, run in alike)
    return tuple(replace(run[0], last=run[-1].last) for run in runs)


def overload(count: CountVerdict) -> float:
    """The least need of a count that fails, as a multiple of what there is."""
    miss = count.nearest_miss
    if miss is None or not miss.short_bytes:
        return 1.0
    return (miss.needed_bytes or 0) / max(miss.capacity_bytes or 0, 1)


def row_of(answer: Solution | Infeasible, count: CountVerdict, most: float) -> CountRow:
    """One count; `most` is the largest overload of all."""
    offers = answer.certificate.space.offers
    need = shortfall(count, offers, most)
    if isinstance(answer, Solution) and answer.plan.num_gpus == count.num_gpus:
        need = fill(answer, most)
    return CountRow(
        first=count.num_gpus,
        last=count.num_gpus,
        verdict=count.verdict,
        is_left_out=not is_searched(count),
        reason="" if need is not None else reason_text(count, answer.certificate.space),
        need=need,
        decided=decided_text(count),
    )


def shortfall(count: CountVerdict, offers: Sequence[Offer], most: float) -> Need | None:
    """Memory that a count lacks; None if memory is not the reason."""
    miss = count.nearest_miss
    if miss is None or not miss.short_bytes:
        return None
    is_one_of_several = len(offers) > 1 and miss.offer is not None
    parts = [
        offer_text(offers[miss.offer or 0]) if is_one_of_several else "",
        place_of(miss, count.num_gpus),
    ]
    where = ", ".join(filter(None, parts))
    return Need(
        text=f"{where}: {need_text(miss)}" if where else need_text(miss),
        short=at_least(miss.short_bytes),
        within=round(100 / most, 2),
        over=round(100 * (overload(count) - 1) / most, 2),
        line=round(100 / most, 2),
    )


def fill(answer: Solution, most: float) -> Need | None:
    """Memory of the plan's fullest device; None if that is more than full.

    A plan that a person fixed need not fit.
    """
    plan = answer.plan
    has = answer.certificate.space.limits.usable_bytes(
        plan.offers[0].device_memory_bytes
    )
    needed = plan.peak_bytes or 0
    if not 0 < needed <= has:
        return None
    return Need(
        text=f"this plan: needs {at_least(needed)} at most, has {at_most(has)}",
        short="",
        within=round(100 * needed / has / most, 2),
        over=0.0,
        line=round(100 / most, 2),
    )
