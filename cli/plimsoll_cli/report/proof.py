"""Why not fewer: the certificate, count by count.

In: an answer. Out: a `ProofView`. Called by `page`. The sentences are those of
`plimsoll explain`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from plimsoll_cli.report.scales import ByteScale
from plimsoll_planner.explain import (
    RULES,
    certificate_lines,
    ending_text,
    offer_text,
    reason_text,
    space_text,
    why_text,
)
from plimsoll_planner.records.certificate import Certificate, CountVerdict, Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution

MOST_ROWS = 24
"""Counts that are listed at sight; of more, the first ones are folded away."""
FIELD = re.compile(r" \(objective\.\w+\)")
"""A field of a problem, which only files and command lines have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """The least that a count needs on its fullest rank, against the load line."""

    where: str
    needed: str
    has: str
    short: str
    bar: float
    """Percent of the width; the load line stands at `line`."""
    line: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CountRow:
    """One number of GPUs."""

    num_gpus: int
    verdict: Verdict
    reason: str
    """Where it is not memory."""
    need: Need | None
    decided: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofView:
    """The certificate."""

    sentences: tuple[str, ...]
    folded: tuple[CountRow, ...]
    rows: tuple[CountRow, ...]
    rules: tuple[tuple[str, str], ...]
    space: str
    warnings: tuple[str, ...]


def proof_view(answer: Solution | Infeasible, problem: Problem | None) -> ProofView:
    """Return the certificate in words and rows."""
    certificate = answer.certificate
    sentences = certificate_lines(certificate)
    if isinstance(answer, Solution):
        why = [] if problem is None else [why_text(problem, answer)]
        sentences = [*sentences, *why, ending_text(answer)]
    most = max(map(overload, certificate.counts), default=1.0)
    rows = tuple(row_of(certificate, count, most) for count in certificate.counts)
    used = {rule for count in certificate.counts for rule in count.decisions.rule}
    return ProofView(
        sentences=tuple(sentence(line) for line in sentences),
        folded=rows[:-MOST_ROWS],
        rows=rows[-MOST_ROWS:],
        rules=tuple((str(rule), RULES[rule]) for rule in Rule if rule in used),
        space=space_text(certificate.space),
        warnings=answer.warnings,
    )


def sentence(line: str) -> str:
    """Return a line of `explain` as a sentence of prose."""
    line = FIELD.sub("", line)
    return f"{line[:1].upper()}{line[1:]}."


def overload(count: CountVerdict) -> float:
    """Return the least need of a count as a multiple of what there is."""
    miss = count.nearest_miss
    if miss is None or not miss.needed_bytes or not miss.capacity_bytes:
        return 1.0
    return miss.needed_bytes / miss.capacity_bytes


def row_of(certificate: Certificate, count: CountVerdict, most: float) -> CountRow:
    """Return one count; `most` is the largest overload of all."""
    offers = certificate.space.offers
    rules = Counter(count.decisions.rule).most_common()
    need = need_of(certificate, count, most)
    return CountRow(
        num_gpus=count.num_gpus,
        verdict=count.verdict,
        reason="" if need is not None else reason_text(count, offers),
        need=need,
        decided=", ".join(f"{number} {rule}" for rule, number in rules),
    )


def need_of(certificate: Certificate, count: CountVerdict, most: float) -> Need | None:
    """Return by how much memory a count fails; None where memory is not the reason."""
    miss, offers = count.nearest_miss, certificate.space.offers
    if miss is None or not miss.short_bytes:
        return None
    needed, has = miss.needed_bytes or 0, miss.capacity_bytes or 0
    scale = ByteScale.up_to(has)
    on = (
        "" if len(offers) == 1 or miss.offer is None else offer_text(offers[miss.offer])
    )
    return Need(
        where=", ".join(filter(None, (on, f"rank {miss.rank}", str(miss.phase)))),
        needed=scale.up(needed),
        has=scale.down(has),
        short=scale.up(miss.short_bytes),
        bar=round(100 * overload(count) / most, 2),
        line=round(100 / most, 2),
    )
