"""The routes that pods post to.

In: HTTP requests of pods. Out: rows in the store, a wake-up for the plan, an answer.
Made by the operator's entry point, on every replica. Nothing is read of a body before
it is known whose it is, and nothing is stored of a report that is refused.

    200, 204   known already; taken
    401        no token, or none for us
    403        not a pod of ours, or not its business
    408, 413   too slow; larger than it may be
    409        the attempt is over, or something else is on record
    422        no proper document; the text names the field
    429, 503   too many reports at a time; store or API server away: again, later
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from aiohttp import http_exceptions, web

from plimsoll_operator.errors import ClusterError, OperatorError, RefusedReportError
from plimsoll_operator.ingest import reports
from plimsoll_operator.ingest.bodies import read_body
from plimsoll_operator.ingest.identity import Asks, Identities, Reporter
from plimsoll_operator.ingest.limits import Budget, Rates, Room
from plimsoll_operator.ingest.offered_revisions import OfferedRevisions
from plimsoll_operator.ingest.recorded_attempts import RecordedAttempts
from plimsoll_operator.names import PlanKey
from plimsoll_operator.objects.bounded import bounded_document
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_operator.store.learning import learn_rehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import Document, digest_of, to_text
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.task import End

MIB = 2**20
MOST_BYTES, MOST_BYTES_EACH = 96 * MIB, 48 * MIB
"""Of all bodies in work, and of those of one namespace, until they are kept."""
MOST_PARSED_BYTES = 34 * MIB
"""Of bodies that are documents by now: the largest one, which takes up to 260 MiB then
(measured), and about a thousand small ones. A store that hangs lets no more pile up."""
PER_MIN = 240
"""Reports of one pod: eight ranks, each every 2 s."""
MOST_PODS = 40_000
LOGGED_PER_MIN = 6
"""Refusals of one plan, and of strangers together."""
AGAIN_S = 10
"""After which a store or an API server may be back."""
IDLE_S = 75.0
"""That a connection may be open with no request on it; pods report every 60 s."""
LINGER_S = 2.0
"""For what a refused pod is still sending, so that it reads the answer."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """Kind of document that is posted to one path."""

    path: str
    document: type[Document]
    reported_by: TaskKind
    limit_bytes: int = MIB


ROUTES = (
    Route(
        path="/v1/profile",
        document=ModelProfile,
        reported_by=TaskKind.PROFILE,
        limit_bytes=32 * MIB,
    ),
    Route(path="/v1/replay", document=Replay, reported_by=TaskKind.REPLAY),
    Route(path="/v1/rehearsal", document=Rehearsal, reported_by=TaskKind.REHEARSAL),
    Route(path="/v1/observation", document=Observation, reported_by=TaskKind.TRAIN),
    Route(path="/v1/end", document=End, reported_by=TaskKind.TRAIN),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """The time, both ways."""

    now: Callable[[], float] = time.time
    """Seconds since 1970."""
    steady: Callable[[], float] = time.monotonic
    """Seconds that never go back."""


class Ingest:
    """The taking in of reports."""

    def __init__(
        self,
        api: Asks,
        store: Store,
        *,
        shares: bool,
        notify: Callable[[PlanKey], None],
        counted: Callable[[str, int], None] = lambda _path, _status: None,
        clocks: Clocks | None = None,
    ) -> None:
        """Begin with nothing known.

        If it `shares`, a replay serves all namespaces. `notify` is called with the plan
        of what was just stored, `counted` with path and status of every answer.
        """
        self._clocks = clocks or Clocks()
        self._identities = Identities(
            api, now=self._clocks.now, clock=self._clocks.steady
        )
        self._attempts = RecordedAttempts(api, clock=self._clocks.steady)
        self._revisions = OfferedRevisions(store)
        self._store, self._shares = store, shares
        self._notify = notify
        self._counted = counted
        self._room = Room(most_bytes=MOST_BYTES, most_bytes_each=MOST_BYTES_EACH)
        self._rates = Rates(
            per_min=PER_MIN, most_keys=MOST_PODS, clock=self._clocks.steady
        )
        self._log_rates = Rates(
            per_min=LOGGED_PER_MIN, most_keys=MOST_PODS, clock=self._clocks.steady
        )
        self._parsed = Budget(MOST_PARSED_BYTES)
        self._parsing = asyncio.Lock()
        self._saving_profile = asyncio.Lock()

    def app(self) -> web.Application:
        """The routes, for a server that leaves bodies as they were sent."""
        app = web.Application()
        for route in ROUTES:
            app.router.add_post(route.path, partial(self._answer, route))
        return app

    async def _answer(self, route: Route, request: web.Request) -> web.Response:
        """Take a report, or say why not."""
        reporter: Reporter | None = None
        try:
            reporter = await self._reporter(request)
            answer = await self._take(request, route, reporter)
        except (OperatorError, InvalidInputError) as error:
            answer = answer_to(error)
            self._log(route, reporter, answer.status, str(error))
        self._counted(route.path, answer.status)
        return answer

    async def _reporter(self, request: web.Request) -> Reporter:
        """Reporter of a request, unless its pod reports too often.

        Raises:
            RefusedReportError: it is none of ours, or reports too often.
            ClusterError: the API server cannot say.
        """
        bearer = await self._identities.bearer(token_in(request))
        wait_s = self._rates.take(bearer.pod_uid)
        if wait_s:
            raise RefusedReportError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"the pod reports more than {PER_MIN} times a minute",
                retry_after_s=math.ceil(wait_s),
            )
        return await self._identities.reporter(bearer)

    async def _take(
        self, request: web.Request, route: Route, reporter: Reporter
    ) -> web.Response:
        """Read, judge and keep a report; the answer may have a revision of the plan.

        Raises:
            RefusedReportError, InvalidInputError: it is not taken.
            ClusterError, StoreError: it cannot be, now.
        """
        reports.check_kind(reporter, route.reported_by)
        with self._room.claim(reporter.namespace) as claim:
            body = await read_body(request, route.limit_bytes, claim)
            async with self._parsed.share(len(body)):
                async with self._parsing:  # Python would take no two at once anyway
                    document = await asyncio.to_thread(
                        bounded_document, body, route.document
                    )
                del body  # while the store takes its time
                status = await self._keep(reporter, document)
        if status is HTTPStatus.NO_CONTENT:
            self._notify((reporter.namespace, reporter.plan_name))
        if isinstance(document, Observation):
            revision = await self._revisions.offered_to(reporter, document)
            if revision is not None:
                return web.json_response(text=to_text(revision))
        return web.Response(status=status)

    async def _keep(self, reporter: Reporter, document: Document) -> HTTPStatus:
        """Judge what a document says, and keep it."""
        match document:
            case ModelProfile():
                reports.check_profile(document, reporter)
                return await self._keep_profile(reporter, document)
            case Replay():
                reports.check_replay(document, reporter)
                await self._scope_of(reporter).replays.save(document)
            case Rehearsal():
                await self._keep_rehearsal(reporter, document)
            case Observation():
                return await self._keep_observation(reporter, document)
            case _:
                assert isinstance(document, End)  # noqa: S101 - there are five routes
                recorded = await self._attempts.plan(reporter)
                reports.check_end(document, reporter, recorded)
                await self._attempts.require_open(reporter)
                uid, attempt = reporter.plan_uid, reporter.attempt
                place, pod_uid = reporter.pod_index, reporter.pod_uid
                await self._store.pod_ends.save(uid, attempt, place, pod_uid, document)
        return HTTPStatus.NO_CONTENT

    def _scope_of(self, reporter: Reporter) -> Store:
        """The part of the store that a reporter's namespace learns from."""
        return self._store.within(reporter.namespace, shares=self._shares)

    async def _keep_profile(
        self, reporter: Reporter, profile: ModelProfile
    ) -> HTTPStatus:
        """Keep a profile, unless there is one since it was asked for.

        Raises:
            RefusedReportError: there is, and it is another one.
        """
        digest = await asyncio.to_thread(digest_of, profile)
        async with self._saving_profile:
            known = await self._store.profiles.known(profile.request_key)
            if known is not None and known.made_s > reporter.after_s:
                if known.digest == digest:
                    return HTTPStatus.OK
                raise RefusedReportError(
                    HTTPStatus.CONFLICT,
                    f"there is another profile since it was asked for: {known.digest}",
                )
            made_s = reports.made_s(reporter, self._clocks.now())
            await self._store.profiles.save(profile, made_s)
        return HTTPStatus.NO_CONTENT

    async def _keep_rehearsal(self, reporter: Reporter, found: Rehearsal) -> None:
        """Keep what a rank held, alone on a device.

        Raises:
            RefusedReportError: it was not asked for, or is not any more.
        """
        uid, digest = reporter.plan_uid, reporter.subject
        asked = await self._store.rehearsals.asked(uid, digest)
        if asked is None:
            text = f"no rehearsal of {digest} is asked for any more"
            raise RefusedReportError(HTTPStatus.CONFLICT, text)
        reports.check_rehearsal(found, reporter, asked.plan)
        store, now_s = self._scope_of(reporter), self._clocks.now()
        await learn_rehearsal(store, uid, found, now_s)

    async def _keep_observation(
        self, reporter: Reporter, observation: Observation
    ) -> HTTPStatus:
        """Keep what a rank used; before its first step that is nothing."""
        of_record = await self._attempts.plan(reporter)
        digest = observation.plan_digest
        recorded = await self._revisions.recorded(reporter, of_record, digest)
        reports.check_observation(observation, reporter, recorded)
        await self._attempts.require_open(reporter)
        predicted = recorded.peaks[observation.rank]
        if not observation.peaks or predicted is None:
            return HTTPStatus.OK
        uid, micro_batch = reporter.plan_uid, recorded.micro_batch
        observations, now_s = self._scope_of(reporter).observations, self._clocks.now()
        await observations.save(uid, observation, predicted, micro_batch, now_s)
        return HTTPStatus.NO_CONTENT

    def _log(
        self, route: Route, reporter: Reporter | None, status: int, text: str
    ) -> None:
        """Log that a report was refused; not every time if it is often."""
        where: dict[str, object] = {"route": route.path, "status": int(status)}
        if reporter is not None:
            where |= {
                "namespace": reporter.namespace,
                "plan": reporter.plan_name,
                "attempt": reporter.attempt,
            }
        if not self._log_rates.take(reporter.plan_uid if reporter else ""):
            logger.warning("refused a report: %s", text, extra=where)


def token_in(request: web.Request) -> str:
    """The bearer token of a request; empty where there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def answer_to(error: OperatorError | InvalidInputError) -> web.Response:
    """Answer to a pod for an error.

    Where we are at fault it learns no more than that: not which object, or file.
    """
    if isinstance(error, RefusedReportError):
        return refusal(error.status, str(error), error.retry_after_s)
    if isinstance(error, InvalidInputError):
        return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    what = "API server" if isinstance(error, ClusterError) else "store"
    text = f"the {what} does not answer now: send it again"
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, AGAIN_S)


def refusal(status: int, text: str, again_s: int = 0) -> web.Response:
    """An answer with a reason."""
    return web.json_response(
        {"error": text},
        status=status,
        headers={"Retry-After": str(again_s)} if again_s else None,
    )


def is_ours(record: logging.LogRecord) -> bool:
    """Whether an error is of our making: no connection that broke, or carries no HTTP.

    Anybody can make such, all day long, and nobody learns from their tracebacks.
    """
    error = record.exc_info and record.exc_info[1]
    return not isinstance(error, ConnectionError | http_exceptions.HttpProcessingError)


@asynccontextmanager
async def serving(
    app: web.Application, *, host: str | None = None, port: int = 0
) -> AsyncGenerator[int]:
    """Serve the routes, at every address and a free port by default; yields that."""
    wire = logging.getLogger(f"{__name__}.wire")
    wire.addFilter(is_ours)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=wire,
        auto_decompress=False,  # inflates without a bound
        keepalive_timeout=IDLE_S,
        lingering_time=LINGER_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
