"""Question, answer and reports of a plan, published as ConfigMaps for its pages.

In: a plan as it was observed, and the status that was decided. Out: its ConfigMaps
(`objects.page_maps`), written where they differ from what is there. Called by
`reconcile` before a decision is carried out, so that a plan that runs has them. A plan
goes on without them: whoever reads says what is missing.

Reports of ranks change with every step. They are published anew where the peaks, the
number of ranks or the revisions do, and otherwise once in `EVERY_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll_operator.api.status import Status
from plimsoll_operator.control.observe import ClusterState
from plimsoll_operator.errors import (
    ApiDeniedError,
    ApiRefusedError,
    NameConflictError,
    StoreError,
)
from plimsoll_operator.kube.api import CONFIG_MAPS, Api
from plimsoll_operator.objects.manifests import Owner
from plimsoll_operator.objects.owned_objects import OwnedObjects
from plimsoll_operator.objects.page_maps import (
    ANSWER,
    QUESTION,
    RECORDED,
    REPORTS,
    page_map,
    page_name,
    subject_of,
)
from plimsoll_operator.objects.rank_reports import rank_reports
from plimsoll_operator.objects.record_maps import note
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution

EVERY_S: Final = 600.0
"""Between reports of ranks whose peaks stay as they are."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A document that pages show, and the ConfigMap that it lies in."""

    kind: str
    subject: str
    """Digest; see `PublishedMap`."""
    document: Document
    notes: Mapping[str, str]
    """Annotations."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes what pages show."""

    api: Api
    store: Store
    """Of the plan's namespace."""

    async def publish(
        self, owner: Owner, state: ClusterState, status: Status, now_s: float
    ) -> None:
        """Write what is not there, and remove what it takes the place of.

        Raises:
            ClusterError: the API server cannot do it now; asked again, it may.
        """
        try:
            answered = await self._answered(owner, state)
            if answered:
                await self._put(owner, state, answered, now_s)
            if is_open(state):
                reports = reports_of(state, status, now_s)
                await self._put(owner, state, reports, now_s)
            else:
                await self._remove(owner, state, {REPORTS}, keep=set())
        except (ApiDeniedError, ApiRefusedError, NameConflictError) as error:
            logger.warning("pages of %s will lack a part: %s", owner.name, error)
        except StoreError:
            return  # the pass reports it

    async def _answered(self, owner: Owner, state: ClusterState) -> list[Page]:
        """The latest question that is answered, with its answer; empty: none.

        Where an attempt is open nothing is asked; by what it was planned is published
        unless it is, for the operator may be newer than the plan.
        """
        asked, answer = state.asked, state.answer
        if asked is not None and answer is not None:
            version = (answer.num_rounds, answer.is_certified, answer.unreplayed)
            return answered_pages(asked.problem, asked.digest, answer.answer, version)
        if not state.attempts or any(one.kind == ANSWER for one in state.published):
            return []
        digest = state.attempts[-1].problem_digest
        found = await self.store.answers.find(digest)
        problem = await self.store.questions.problem(owner.uid, digest)
        if found is None or problem is None:
            return []
        version = (found.num_rounds, found.is_certified, found.unreplayed)
        return answered_pages(problem, digest, found.answer, version)

    async def _put(
        self, owner: Owner, state: ClusterState, pages: Sequence[Page], now_s: float
    ) -> None:
        """Make ConfigMaps that are not there, then remove others of their kinds."""
        there = {one.name for one in state.published}
        objects, keep = OwnedObjects(self.api), set[str]()
        for page in pages:
            name = page_name(owner, page.kind, page.subject)
            keep.add(name)
            if name not in there:
                notes = {RECORDED: repr(now_s), **page.notes}
                made = await asyncio.to_thread(
                    page_map, owner, page.kind, page.subject, page.document, notes
                )
                await objects.create(CONFIG_MAPS, owner, made)
        await self._remove(owner, state, {page.kind for page in pages}, keep=keep)

    async def _remove(
        self, owner: Owner, state: ClusterState, kinds: set[str], *, keep: set[str]
    ) -> None:
        """Remove ConfigMaps of some kinds but those to keep."""
        for one in state.published:
            if one.kind in kinds and one.name not in keep:
                await OwnedObjects(self.api).delete(CONFIG_MAPS, owner, one.name)


def is_open(state: ClusterState) -> bool:
    """Whether an attempt has no end yet."""
    return bool(state.attempts) and state.attempts[-1].ending is None


def answered_pages(
    problem: Problem,
    digest: str,
    answer: Solution | Infeasible,
    version: tuple[object, ...],
) -> list[Page]:
    """A question with its digest, and its answer.

    Answers to one question differ by their `version`.
    """
    subject = subject_of(digest, *version)
    notes = {note("problem-digest"): digest}
    return [
        Page(kind=QUESTION, subject=digest, document=problem, notes={}),
        Page(kind=ANSWER, subject=subject, document=answer, notes=notes),
    ]


def reports_of(state: ClusterState, status: Status, now_s: float) -> list[Page]:
    """Reports of the ranks of the open attempt; empty before there are any."""
    running, observed = state.running, status.observed
    if running is None or not (running.reports or running.revisions):
        return []
    facts = (
        state.attempts[-1].number,
        sum(bool(one.peaks) for one in running.reports),
        observed and (observed.peak_bytes, observed.error_percent),
        [(one.number, one.state) for one in running.revisions],
        now_s // EVERY_S,
    )
    return [
        Page(
            kind=REPORTS,
            subject=subject_of(*facts),
            document=rank_reports(running.reports, running.revisions),
            notes={note("attempt"): str(state.attempts[-1].number)},
        )
    ]
