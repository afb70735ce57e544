"""The routes that pods post to, over real connections and into a real store.

Only the cluster is in memory; tests/lab/test_ingest_on_a_server.py has a real one.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll_operator import names
from plimsoll_operator.ingest import bodies, server
from plimsoll_operator.ingest.server import Clocks, Ingest, serving
from plimsoll_operator.kube.api import CONFIG_MAPS, PODS
from plimsoll_operator.objects.bounded import bounded_document
from plimsoll_operator.rules.observed_state import (
    RecordedRevision,
    RevisionState,
    TaskKind,
)
from plimsoll_operator.store.profiles import Profiles
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.records.document import digest_of, to_text
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.task import End, Exit
from tests.support.builders import (
    DIGEST,
    a_failed_rehearsal,
    a_plan,
    a_profile,
    a_rehearsal,
    a_replay,
    a_revision,
    an_observation,
)
from tests.support.reporting_pods import (
    NAMESPACE,
    PLAN_UID,
    POD_UID_0,
    ClusterInMemory,
    a_result,
)

MIB = 2**20
NOW_S = 1000.0
TOKEN = {"Authorization": "Bearer good"}
END = End(at_s=5.0, exits=(Exit(status=0),) * 4)


@dataclass
class World:
    """A server that runs, and all around it."""

    cluster: ClusterInMemory
    store: Store
    port: int
    session: aiohttp.ClientSession
    notified: list[tuple[str, str]]
    counted: list[tuple[str, int]]
    answer: dict[str, Any] = field(default_factory=dict)
    """Body of the latest answer."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the latest answer."""

    async def post(self, what: str, body: Any, **headers: str) -> int:
        """Post to a route; return the status of the answer."""
        data = json.dumps(body) if isinstance(body, dict) else body
        async with self.session.post(
            f"http://127.0.0.1:{self.port}/v1/{what}",
            data=data,
            headers=TOKEN | {"Content-Type": "application/json"} | headers,
        ) as reply:
            text = await reply.text()
            self.answer = json.loads(text) if text else {}
            self.headers = dict(reply.headers)
            return reply.status


@asynccontextmanager
async def running(
    path: Path, cluster: ClusterInMemory, *, shares: bool = False
) -> AsyncGenerator[World]:
    """Run a server on a store."""
    notified: list[tuple[str, str]] = []
    counted: list[tuple[str, int]] = []
    async with open_store(path) as store:
        ingest = Ingest(
            cluster,
            store,
            shares=shares,
            notify=notified.append,
            counted=lambda route, status: counted.append((route, status)),
            clocks=Clocks(now=lambda: NOW_S, steady=lambda: 0.0),
        )
        async with (
            serving(ingest.app(), host="127.0.0.1") as port,
            aiohttp.ClientSession() as session,
        ):
            yield World(cluster, store, port, session, notified, counted)


def in_world(
    folder: Path,
    work: Callable[[World], Awaitable[None]],
    cluster: ClusterInMemory | None = None,
    *,
    shares: bool = False,
) -> None:
    """Work with a server that runs."""

    async def worked() -> None:
        made = cluster or ClusterInMemory()
        async with running(folder / "store.db", made, shares=shares) as world:
            await work(world)

    asyncio.run(worked())


def observed(**fields: Any) -> dict[str, object]:
    """Report of a rank of the plan of record."""
    plan_digest = digest_of(a_plan())
    return an_observation(**({"plan_digest": plan_digest} | fields)).to_json()


def is_empty(folder: Path) -> bool:
    """Whether no report at all is stored."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        tables = (
            *("profile", "replay", "rehearsal", "observation"),
            *("observed_peak", "shortage", "pod_end"),
        )
        counts = [
            connection.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608 - of the list above
            for table in tables
        ]
    return not any(counts)


def test_an_observation_is_kept_with_what_was_predicted(tmp_path: Path) -> None:
    """In the scope of the namespace; the plan is woken up, the answer is empty."""

    async def work(world: World) -> None:
        assert await world.post("observation", observed()) == 204
        assert world.answer == {}
        assert world.notified == [(NAMESPACE, "tiny")]
        assert world.counted == [("/v1/observation", 204)]
        within = world.store.within(NAMESPACE).observations
        (found,) = await within.of(PLAN_UID, 1)
        assert found.to_json() == observed()
        assert await world.store.observations.of(PLAN_UID, 1) == ()
        assert await within.news(NOW_S) == {PLAN_UID}

    in_world(tmp_path, work)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        row = connection.execute(
            "select micro_batch, predicted_upper_bytes from observation"
        ).fetchone()
    assert row == (1, 10 * MIB)


@pytest.mark.parametrize("shares", [True, False])
def test_namespaces_share_where_the_operator_is_told_to(
    shares: bool, tmp_path: Path
) -> None:
    """A replay then serves all of them."""

    async def work(world: World) -> None:
        assert await world.post("replay", a_replay().to_json()) == 204
        other = world.store.within("other", shares=shares)
        assert (await other.replays.find(DIGEST) is not None) is shares

    cluster = ClusterInMemory(TaskKind.REPLAY, DIGEST)
    in_world(tmp_path, work, cluster, shares=shares)


def test_what_was_observed_stays_with_its_namespace(tmp_path: Path) -> None:
    """Also where they share."""

    async def work(world: World) -> None:
        assert await world.post("observation", observed()) == 204
        for scope, number in ((NAMESPACE, 1), ("other", 0), ("", 0)):
            within = world.store.within(scope, shares=True)
            assert len(await within.observations.of(PLAN_UID, 1)) == number

    in_world(tmp_path, work, shares=True)


def test_a_report_is_answered_with_the_revision_of_the_plan(tmp_path: Path) -> None:
    """Until the rank has answered; what it then reports is held to that plan."""
    revision = a_revision()
    digest = digest_of(revision.plan)

    async def work(world: World) -> None:
        revisions = world.store.revisions
        by_revision = observed(plan_digest=digest, revision=2)
        assert await world.post("observation", by_revision) == 409
        await revisions.record(PLAN_UID, 1, revision, NOW_S)
        assert await world.post("observation", observed()) == 200
        assert world.answer == revision.to_json()
        assert world.notified == [(NAMESPACE, "tiny")]
        assert await world.post("observation", by_revision) == 204
        [seen] = await world.store.within(NAMESPACE).observations.of(PLAN_UID, 1)
        assert (seen.plan_digest, seen.revision) == (digest, 2)
        refusal = {"refused_revision": 2, "refusal": "no room"}
        assert await world.post("observation", observed(**refusal)) == 204
        settled = RecordedRevision(
            revision=revision, made_s=NOW_S, state=RevisionState.FOLLOWED
        )
        await revisions.settle(PLAN_UID, 1, settled)
        assert await world.post("observation", observed(rank=1)) == 204

    in_world(tmp_path, work)


def test_before_its_first_step_a_rank_has_used_nothing(tmp_path: Path) -> None:
    """It says that it is there; nothing is stored, nobody is woken up."""

    async def work(world: World) -> None:
        assert await world.post("observation", observed(peaks=(), step_s=())) == 200
        assert world.notified == []

    in_world(tmp_path, work)
    assert is_empty(tmp_path)


def test_an_end_is_kept_by_its_pod(tmp_path: Path) -> None:
    """The first one of a pod; told again it is taken, and changes nothing."""

    async def work(world: World) -> None:
        assert await world.post("end", END.to_json()) == 204
        later = End(at_s=9.0, exits=(Exit(status=1),))
        assert await world.post("end", later.to_json()) == 204
        ends = await world.store.pod_ends.of(PLAN_UID, 1)
        assert {uid: one.end for uid, one in ends.items()} == {POD_UID_0: END}

    in_world(tmp_path, work)


def test_a_replay_is_kept(tmp_path: Path) -> None:
    """Of the plan that its Job was asked to replay."""

    async def work(world: World) -> None:
        assert await world.post("replay", a_replay().to_json()) == 204
        found = await world.store.within(NAMESPACE).replays.find(DIGEST)
        assert found == a_replay()

    in_world(tmp_path, work, ClusterInMemory(TaskKind.REPLAY, DIGEST))


REHEARSED = digest_of(a_plan())
ASKED = AskedRehearsal(plan=a_plan(), capacity_bytes=2**40)


def of_plan(found: Rehearsal) -> Rehearsal:
    """Make a rehearsal one of the plan that was asked for."""
    seen = replace(found.observation, plan_digest=REHEARSED)
    return replace(found, observation=seen)


@pytest.mark.parametrize("made", [a_rehearsal(), a_failed_rehearsal()])
def test_a_rehearsal_is_kept_and_teaches_its_namespace(
    made: Rehearsal, tmp_path: Path
) -> None:
    """Of the plan that asked; told again it is taken, and changes nothing."""
    found = of_plan(made)

    async def work(world: World) -> None:
        await world.store.rehearsals.ask(PLAN_UID, ASKED)
        for _ in range(2):
            assert await world.post("rehearsal", found.to_json()) == 204
        assert world.notified == [(NAMESPACE, "tiny")] * 2
        assert await world.store.rehearsals.find(PLAN_UID, REHEARSED) == found
        [known] = await world.store.within(NAMESPACE).calibrations.all()
        assert known.num_observations == int(found.fits)
        assert known.num_shortages == int(not found.fits)
        assert await world.store.calibrations.all() == ()

    in_world(tmp_path, work, ClusterInMemory(TaskKind.REHEARSAL, REHEARSED))


def test_a_rehearsal_that_nobody_asks_for_any_more_is_refused(tmp_path: Path) -> None:
    """Its plan was deleted; nothing is learned from it."""

    async def work(world: World) -> None:
        found = of_plan(a_rehearsal())
        await world.store.rehearsals.ask("another", ASKED)
        assert await world.post("rehearsal", found.to_json()) == 409
        assert "is asked for any more" in world.answer["error"]
        await world.store.forget("another")

    in_world(tmp_path, work, ClusterInMemory(TaskKind.REHEARSAL, REHEARSED))
    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (a_rehearsal(), 403),
        (
            of_plan(
                a_rehearsal(observation=an_observation(num_communicators=0, rank=3))
            ),
            422,
        ),
    ],
)
def test_a_rehearsal_of_something_else_is_refused(
    found: Rehearsal, status: int, tmp_path: Path
) -> None:
    """Of another plan, or of a rank that was not to be rehearsed."""

    async def work(world: World) -> None:
        await world.store.rehearsals.ask(PLAN_UID, ASKED)
        assert await world.post("rehearsal", found.to_json()) == status
        assert await world.store.rehearsals.find(PLAN_UID, REHEARSED) is None
        assert await world.store.within(NAMESPACE).calibrations.all() == ()

    in_world(tmp_path, work, ClusterInMemory(TaskKind.REHEARSAL, REHEARSED))


def test_the_first_profile_of_a_job_wins(tmp_path: Path) -> None:
    """The same again is known already, another one is a conflict."""
    other = a_profile(tokens_per_sample=1)

    async def work(world: World) -> None:
        assert await world.post("profile", a_profile().to_json()) == 204
        assert await world.post("profile", a_profile().to_json()) == 200
        assert await world.post("profile", other.to_json()) == 409
        assert "there is another profile" in world.answer["error"]
        found = await world.store.profiles.find(DIGEST)
        assert found is not None
        assert (found.profile, found.made_s) == (a_profile(), NOW_S)
        assert world.notified == [(NAMESPACE, "tiny")]

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


@pytest.mark.parametrize("after_s", [500.0, NOW_S, 2000.0])
def test_a_profile_that_was_asked_for_anew_is_later(
    tmp_path: Path, after_s: float
) -> None:
    """Than what made the old one stale, by whatever clock; so it takes its place."""
    cluster = ClusterInMemory(TaskKind.PROFILE, DIGEST)
    cluster.job["metadata"]["annotations"][names.AFTER_ANNOTATION] = str(after_s)
    old = a_profile(tokens_per_sample=1)

    async def work(world: World) -> None:
        await world.store.profiles.save(old, after_s)
        assert await world.post("profile", a_profile().to_json()) == 204
        found = await world.store.profiles.find(DIGEST)
        assert found is not None
        assert found.profile == a_profile()
        assert found.made_s > after_s
        assert found.made_s >= NOW_S

    in_world(tmp_path, work, cluster)


def test_profiles_that_come_at_once_are_one(tmp_path: Path) -> None:
    """Whichever of them it is, the others learn that there is one."""
    profiles = [a_profile(tokens_per_sample=1 + place) for place in range(6)]

    async def work(world: World) -> None:
        posts = (world.post("profile", one.to_json()) for one in profiles)
        assert sorted(await asyncio.gather(*posts)) == [204] + [409] * 5

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


Change = Callable[[ClusterInMemory], None]


def gone(cluster: ClusterInMemory) -> None:
    """Take the pod away."""
    cluster.drop(PODS, cluster.pod)


def ended(cluster: ClusterInMemory) -> None:
    """Decide the end of the attempt."""
    cluster.put(CONFIG_MAPS, a_result("disrupted"))


def profiling(cluster: ClusterInMemory) -> None:
    """Let the Job be another kind of task."""
    cluster.job["metadata"]["labels"][names.TASK_LABEL] = "profile"


def away(cluster: ClusterInMemory) -> None:
    """Stop the API server."""
    cluster.is_down = True


@pytest.mark.parametrize(
    ("change", "body", "headers", "status", "said"),
    [
        (None, {}, {"Authorization": ""}, 401, "no valid token"),
        (None, {}, {"Authorization": "Basic good"}, 401, "no valid token"),
        (None, {}, {"Authorization": "Bearer bad"}, 401, "no valid token"),
        (gone, {}, {}, 403, "the pod tiny-train-1-0 is gone"),
        (profiling, {}, {}, 403, "is of the kind profile"),
        (None, {"rank": 4}, {}, 403, "Observation.rank"),
        (None, {"attempt": 2}, {}, 409, "belongs to attempt 1"),
        (None, {"plan_digest": DIGEST}, {}, 409, "the plan of record is"),
        (ended, {}, {}, 409, "attempt 1 is over: it ended as disrupted"),
        (None, {"step_s": [float("nan")]}, {}, 422, "Observation.step_s[0]: got nan"),
        (None, {"mast": 1}, {}, 422, "Observation.mast: no such field"),
        (None, {"schema_version": 2}, {}, 422, "Observation.schema_version: got 2"),
        (None, {"device_kind": "emulated"}, {}, 422, "Observation.device_kind"),
        (None, {}, {"Content-Encoding": "gzip"}, 422, "the body is no gzip"),
        (None, {}, {"Content-Encoding": "br"}, 422, "send the document as it is"),
        (away, {}, {}, 503, "the API server does not answer now"),
    ],
)
def test_what_is_refused_is_told_why_and_stored_nowhere(
    tmp_path: Path,
    change: Change | None,
    body: dict[str, Any],
    headers: dict[str, str],
    status: int,
    said: str,
) -> None:
    """Each answer has its status and a reason in JSON; nobody is woken up."""
    cluster = ClusterInMemory()

    async def work(world: World) -> None:
        assert await world.post("observation", observed() | body, **headers) == status
        assert said in world.answer["error"]
        assert ("Retry-After" in world.headers) is (status == 503)
        assert world.notified == []
        assert world.counted == [("/v1/observation", status)]

    if change:
        change(cluster)
    in_world(tmp_path, work, cluster)
    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    "what", ["observation", "end", "replay", "rehearsal", "profile"]
)
@pytest.mark.parametrize("body", [b"", b"{", b"null", b"\x00", b"[" * 99_999])
def test_no_document_is_a_422_on_every_route(
    tmp_path: Path, what: str, body: bytes
) -> None:
    """Whatever bytes come."""
    is_of_a_gang = what in ("observation", "end")
    kind = TaskKind.TRAIN if is_of_a_gang else TaskKind(what)
    cluster = ClusterInMemory(kind, DIGEST)

    async def work(world: World) -> None:
        assert await world.post(what, body) == 422
        assert len(world.answer["error"]) <= 1000

    in_world(tmp_path, work, cluster)
    assert is_empty(tmp_path)


@pytest.mark.parametrize("num_bytes", [None, 40])
def test_a_compressed_report_is_taken(tmp_path: Path, num_bytes: int | None) -> None:
    """As pods of the release before send a profile; not if it was cut off."""
    sent = gzip.compress(to_text(a_profile()).encode())[:num_bytes]

    async def work(world: World) -> None:
        status = await world.post("profile", sent, **{"Content-Encoding": "gzip"})
        found = await world.store.profiles.find(DIGEST)
        if num_bytes is None:
            assert status == 204
            assert found is not None
            assert found.profile == a_profile()
        else:
            assert (status, found) == (422, None)
            assert "no whole gzip" in world.answer["error"]

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


async def zeros(num_mib: int) -> AsyncGenerator[bytes]:
    """Send without saying how much it will be."""
    for _ in range(num_mib):
        yield bytes(MIB)


@pytest.mark.parametrize("way", ["stated", "streamed", "compressed"])
def test_a_hundred_megabytes_are_a_413(tmp_path: Path, way: str) -> None:
    """By what is stated, by what has come, or by what it inflates to."""

    async def work(world: World) -> None:
        body: Any = {
            "stated": io.BytesIO(bytes(100 * MIB)),
            "streamed": zeros(100),
            "compressed": gzip.compress(bytes(100 * MIB)),
        }[way]
        encoding = {"Content-Encoding": "gzip"} if way == "compressed" else {}
        assert await world.post("profile", body, **encoding) == 413
        assert "larger than the 33554432 bytes" in world.answer["error"]
        # Nothing of it is held on to: as much fits in as before.
        assert await world.post("profile", a_profile().to_json()) == 204

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


def test_all_but_profiles_are_small(tmp_path: Path) -> None:
    """A MiB is much for what a rank has to tell."""

    async def work(world: World) -> None:
        for num_bytes, status in ((MIB + 1, 413), (MIB, 422)):
            body = io.BytesIO(bytes(num_bytes))
            assert await world.post("observation", body) == status

    in_world(tmp_path, work)


async def raw(port: int, *parts: bytes) -> list[bytes]:
    """Send bytes as they are, wait for the end, and return the lines of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    lines = (await reader.read()).splitlines()
    writer.close()
    return lines


HEAD = (
    b"POST /v1/end HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
    b"Connection: close\r\n"
)


def test_a_body_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow senders do not pile up; others are served meanwhile."""
    monkeypatch.setattr(bodies, "PAUSE_S", 1.0)
    monkeypatch.setattr(server, "LINGER_S", 0.1)

    async def work(world: World) -> None:
        slow = raw(world.port, HEAD + b"Content-Length: 100\r\n\r\n", b"{")
        waiting = [asyncio.create_task(slow)]
        assert await world.post("end", END.to_json()) == 204
        (lines,) = await asyncio.gather(*waiting)
        assert lines[0] == b"HTTP/1.1 408 Request Timeout"
        assert b"the body took too long" in lines[-1]

    in_world(tmp_path, work)


def test_a_body_in_drops_is_given_up_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is in time, but not the whole."""
    monkeypatch.setattr(bodies, "WHOLE_S", 0.5)
    monkeypatch.setattr(server, "LINGER_S", 0.1)

    async def work(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
        answer = asyncio.create_task(reader.readline())
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        assert await answer == b"HTTP/1.1 408 Request Timeout\r\n"
        writer.close()

    in_world(tmp_path, work)


def test_a_request_that_never_begins_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a header keeps a connection open for a while, not for ever."""
    monkeypatch.setattr(server, "IDLE_S", 0.3)

    async def work(world: World) -> None:
        for head in (b"", b"POST /v1/end HTT", HEAD):
            async with asyncio.timeout(60):
                assert await raw(world.port, head) == []

    in_world(tmp_path, work)


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 100\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{",
    ],
)
def test_who_hangs_up_leaves_no_trace(
    tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a row nor a traceback; the next one is served."""

    async def work(world: World) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(HEAD + body)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert await world.post("observation", observed(peaks=(), step_s=())) == 200

    in_world(tmp_path, work)
    assert is_empty(tmp_path)
    assert not [one for one in caplog.records if one.exc_info]


def test_a_pod_that_tells_too_often_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the seconds after which it may again."""
    monkeypatch.setattr(server, "PER_MIN", 3)

    async def work(world: World) -> None:
        found = [await world.post("end", END.to_json()) for _ in range(4)]
        assert found == [204, 204, 204, 429]
        assert world.headers["Retry-After"] == "20"
        assert "more than 3 times a minute" in world.answer["error"]

    in_world(tmp_path, work)


def test_bodies_have_so_much_memory_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes beyond it is told to come again."""
    monkeypatch.setattr(server, "MOST_BYTES_EACH", 3 * MIB // 2)

    async def work(world: World) -> None:
        refused = asyncio.Event()

        async def held() -> AsyncGenerator[bytes]:
            yield bytes(MIB)
            await refused.wait()

        both = {asyncio.create_task(world.post("profile", held())) for _ in range(2)}
        (first,), others = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert await first == 429
        assert world.headers["Retry-After"] == "2"
        refused.set()
        assert [await other for other in others] == [422]
        assert await world.post("profile", zeros(1)) == 422

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


def test_documents_wait_unparsed_while_the_store_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is parsed, one waits as it was sent, and for a third one there is no room."""
    monkeypatch.setattr(server, "MOST_BYTES_EACH", 5 * MIB // 2)
    monkeypatch.setattr(server, "MOST_PARSED_BYTES", 3 * MIB // 2)
    goes_on, parsed = asyncio.Event(), [0]
    keep, parse = Profiles.save, bounded_document

    async def kept_later(self: Profiles, *given: Any) -> None:
        await goes_on.wait()
        await keep(self, *given)

    def counted(*given: Any) -> Any:
        parsed[0] += 1
        return parse(*given)

    monkeypatch.setattr(Profiles, "save", kept_later)
    monkeypatch.setattr(server, "bounded_document", counted)
    body = to_text(a_profile()).ljust(MIB)

    async def work(world: World) -> None:
        posts = {asyncio.create_task(world.post("profile", body)) for _ in range(3)}
        (first,), others = await asyncio.wait(
            posts, return_when=asyncio.FIRST_COMPLETED
        )
        assert await first == 429
        while not parsed[0]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert parsed == [1]
        goes_on.set()
        assert sorted([await other for other in others]) == [200, 204]
        assert await world.post("profile", body) == 200

    in_world(tmp_path, work, ClusterInMemory(TaskKind.PROFILE, DIGEST))


def test_a_store_that_is_away_is_a_503(tmp_path: Path) -> None:
    """The pod learns no more than that, and comes again; then it is taken."""
    path, aside = tmp_path / "store.db", tmp_path / "aside.db"

    async def work(world: World) -> None:
        path.rename(aside)
        assert await world.post("end", END.to_json()) == 503
        assert world.answer["error"] == "the store does not answer now: send it again"
        assert world.headers["Retry-After"] == "10"
        assert world.notified == []
        aside.rename(path)
        assert await world.post("end", END.to_json()) == 204

    in_world(tmp_path, work)


def test_refusals_are_logged_with_their_plan_but_not_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod that tells nonsense all day fills no disk; no token is ever written."""

    async def work(world: World) -> None:
        for _ in range(20):
            assert await world.post("end", b"{") == 422
            assert await world.post("end", b"{", Authorization="Bearer bad") == 401

    caplog.set_level(logging.DEBUG)
    in_world(tmp_path, work)
    said = [one for one in caplog.records if one.name == server.__name__]
    assert {one.levelname for one in said} == {"WARNING"}
    plans = [vars(one).get("plan", "") for one in said]
    assert sorted(plans) == [""] * 6 + ["tiny"] * 6
    assert {vars(one)["status"] for one in said} == {401, 422}
    assert not [one for one in caplog.records if "Bearer" in one.getMessage()]


def test_other_paths_and_verbs_are_none(tmp_path: Path) -> None:
    """There is nothing to read here."""

    async def statuses(world: World, calls: Sequence[tuple[str, str]]) -> list[int]:
        found: list[int] = []
        for verb, path in calls:
            url = f"http://127.0.0.1:{world.port}{path}"
            async with world.session.request(verb, url, headers=TOKEN) as reply:
                found.append(reply.status)
        return found

    async def work(world: World) -> None:
        calls = [("GET", "/v1/profile"), ("POST", "/"), ("GET", "/metrics")]
        assert await statuses(world, calls) == [405, 404, 404]

    in_world(tmp_path, work)
