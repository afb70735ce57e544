"""What is kept of what pods tell.

In: documents that were judged. Out: rows in the store, whole or none; a `StoreError`
where it cannot be. Called by `server`. What belongs to a namespace is kept within it,
but for replays where namespaces share them; the rest is found by the uid of a plan, or
by a request key that holds the namespace.
"""

from __future__ import annotations

from plimsoll_operator.ingest.identity import Reporter
from plimsoll_operator.store.learning import learn_rehearsal
from plimsoll_operator.store.profiles import KnownProfile
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import PhasePeak
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.task import End


class Records:
    """Where reports go."""

    def __init__(self, store: Store, *, shares: bool) -> None:
        """Keep reports in a store.

        Args:
            store: of any scope.
            shares: a replay serves all namespaces.
        """
        self._store = store
        self._shares = shares

    async def profile(self, request_key: str) -> KnownProfile | None:
        """Which profile answers a request."""
        return await self._store.profiles.known(request_key)

    async def keep_profile(self, profile: ModelProfile, made_s: float) -> None:
        """Keep a profile in place of the one that answered its request before."""
        await self._store.profiles.save(profile, made_s)

    async def keep_replay(self, reporter: Reporter, replay: Replay) -> None:
        """Keep a replay; the first one of a plan wins."""
        await self._within(reporter).replays.save(replay)

    async def asked_rehearsal(self, reporter: Reporter) -> AskedRehearsal | None:
        """The rehearsal that a reporter's Job was asked for; None: it is forgotten."""
        rehearsals = self._store.rehearsals
        return await rehearsals.asked(reporter.plan_uid, reporter.subject)

    async def keep_rehearsal(
        self, reporter: Reporter, rehearsal: Rehearsal, now_s: float
    ) -> None:
        """Keep a rehearsal, and what it teaches; the first one of a plan wins."""
        store = self._within(reporter)
        await learn_rehearsal(store, reporter.plan_uid, rehearsal, now_s)

    async def keep_observation(
        self,
        reporter: Reporter,
        observation: Observation,
        predicted: PhasePeak,
        micro_batch: int,
        now_s: float,
    ) -> None:
        """Keep what a rank used; the report with the most steps wins.

        Args:
            reporter: whose rank it is.
            observation: what it used.
            predicted: its largest peak in the plan of record.
            micro_batch: of that plan.
            now_s: seconds since 1970.
        """
        await self._within(reporter).observations.save(
            reporter.plan_uid, observation, predicted, micro_batch, now_s
        )

    async def keep_end(self, reporter: Reporter, end: End) -> None:
        """Keep how the processes of a pod ended; the first end of a pod wins."""
        await self._store.pod_ends.save(
            reporter.plan_uid,
            reporter.attempt,
            reporter.pod_index,
            reporter.pod_uid,
            end,
        )

    def _within(self, reporter: Reporter) -> Store:
        """The part of the store that a reporter's namespace learns from."""
        return self._store.within(reporter.namespace, shares=self._shares)
