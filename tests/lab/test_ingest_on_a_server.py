"""Whose tokens a real API server vouches for, and whose reports are taken for that.

Tokens are minted by the TokenRequest API and bound to pods that its controllers made;
the pods wait for a node and need none.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll_operator import names
from plimsoll_operator.ingest.server import Ingest, serving
from plimsoll_operator.kube.api import open_api
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.records.document import digest_of
from plimsoll_trainer.pod.report_client import Deadline, ReportClient
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.tokens import lasting, resigned, signing_key
from tests.support.builders import DIGEST, a_plan, a_profile, an_observation
from tests.support.reporting_pods import PLAN, a_job, a_plan_of_record, a_result
from tests.support.specs import LEAST

pytestmark = pytest.mark.control_plane

DEFINITION = f"{names.PLURAL}.{names.GROUP}"
OBSERVED = an_observation(plan_digest=digest_of(a_plan())).to_json()


def a_definition() -> dict[str, Any]:
    """Kind TrainingPlan, with any content."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {"plural": names.PLURAL, "kind": names.KIND},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that knows TrainingPlans, as it did or by a kind of ours."""
    known = control_plane.run("kubectl", "get", "crd", DEFINITION, check=False)
    is_ours = bool(known.returncode)
    if is_ours:
        control_plane.apply(a_definition())
    control_plane.wait(f"crd/{DEFINITION}", "condition=Established")
    lists = ("kubectl", "get", DEFINITION)
    control_plane.wait_until(
        "plans", lambda: not control_plane.run(*lists, check=False).returncode
    )
    yield control_plane
    if is_ours:
        control_plane.kubectl("delete", "crd", DEFINITION)


@dataclass(frozen=True, kw_only=True)
class Gang:
    """A plan in a namespace, its Job, and the pod of that."""

    cluster: Cluster
    namespace: str
    plan_uid: str
    job: str
    pod: str

    def token(self, audience: str = names.TOKEN_AUDIENCE, *, bound: bool = True) -> str:
        """Mint a token of the pod's account."""
        pod = ("--bound-object-kind", "Pod", "--bound-object-name", self.pod)
        return self.cluster.kubectl(
            *("create", "token", "default", "-n", self.namespace),
            *("--audience", audience),
            *(pod if bound else ()),
        ).strip()

    def patch(self, what: str, change: dict[str, Any]) -> None:
        """Merge a change into an object."""
        how = ("--type=merge", "-p", json.dumps(change))
        self.cluster.kubectl("patch", what, "-n", self.namespace, *how)

    def delete(self, what: str, *how: str) -> None:
        """Delete an object, and wait until it is gone."""
        self.cluster.kubectl("delete", what, "-n", self.namespace, *how)


def a_gang(
    cluster: Cluster,
    namespace: str,
    kind: TaskKind = TaskKind.TRAIN,
    *,
    is_owned: bool = True,
) -> Gang:
    """Make a plan, its plan of record, a Job, and wait for the Job's pod.

    Args:
        cluster: where.
        namespace: where.
        kind: of the Job.
        is_owned: the plan controls the Job, and not somebody's own object.
    """
    plan = {"apiVersion": names.API_VERSION, "kind": names.KIND, "spec": LEAST}
    cluster.apply(plan | {"metadata": {"name": PLAN}}, namespace=namespace)
    found = cluster.get(f"{DEFINITION}/{PLAN}", namespace=namespace)
    plan_uid = found["metadata"]["uid"]
    attempt = 1 if kind is TaskKind.TRAIN else 0
    job = a_job(kind, DIGEST, plan_uid=plan_uid, attempt=attempt)
    if not is_owned:
        del job["metadata"]["ownerReferences"]
    container = {"name": "trainer", "image": "none.example/none"}
    job["spec"] = {
        "completionMode": "Indexed",
        "completions": 1,
        "parallelism": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    name = job["metadata"]["name"]
    record = a_plan_of_record(plan_uid=plan_uid)
    cluster.apply(job, record, namespace=namespace)
    chosen = ("pods", "-l", f"batch.kubernetes.io/job-name={name}")
    cluster.wait_until(
        "a pod", lambda: bool(cluster.get(*chosen, namespace=namespace)["items"])
    )
    (pod,) = cluster.get(*chosen, namespace=namespace)["items"]
    return Gang(
        cluster=cluster,
        namespace=namespace,
        plan_uid=plan_uid,
        job=name,
        pod=pod["metadata"]["name"],
    )


@dataclass(frozen=True, kw_only=True)
class Post:
    """The way to an ingest."""

    url: str
    session: aiohttp.ClientSession

    async def __call__(
        self, what: str, body: dict[str, Any], token: str
    ) -> tuple[int, str]:
        """Send a report, and return what is answered."""
        url, headers = f"{self.url}/v1/{what}", {"Authorization": f"Bearer {token}"}
        async with self.session.post(url, json=body, headers=headers) as reply:
            return reply.status, await reply.text()


def ingesting(
    gang: Gang, folder: Path, work: Callable[[Post, Store], Awaitable[None]]
) -> None:
    """Run the ingest on the cluster of a gang, and work with it."""

    async def worked() -> None:
        async with (
            open_api(str(gang.cluster.kubeconfig)) as api,
            open_store(folder / "store.db") as store,
        ):
            app = Ingest(api, store, shares=False, notify=lambda _: None).app()
            async with (
                serving(app, host="127.0.0.1") as port,
                aiohttp.ClientSession() as session,
            ):
                post = Post(url=f"http://127.0.0.1:{port}", session=session)
                await work(post, store)

    event_loops.run(worked())


def test_a_pod_of_a_gang_is_taken_at_its_token(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Plan, attempt and namespace come from the objects that control the pod."""
    gang = a_gang(server, namespace)

    async def work(post: Post, store: Store) -> None:
        assert await post("observation", OBSERVED, gang.token()) == (204, "")
        within = store.within(namespace).observations
        (found,) = await within.of(gang.plan_uid, 1)
        assert found.to_json() == OBSERVED
        status, said = await post("profile", a_profile().to_json(), gang.token())
        assert (status, "is of the kind train" in said) == (403, True)

    ingesting(gang, tmp_path, work)


def test_a_profile_is_taken_from_a_pod_that_profiles(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Of the request that its Job is about."""
    gang = a_gang(server, namespace, TaskKind.PROFILE)

    async def work(post: Post, store: Store) -> None:
        assert await post("profile", a_profile().to_json(), gang.token()) == (204, "")
        found = await store.profiles.find(DIGEST)
        assert found is not None
        assert found.profile == a_profile()

    ingesting(gang, tmp_path, work)


def test_other_tokens_are_none(server: Cluster, namespace: str, tmp_path: Path) -> None:
    """Of another audience, of no pod, expired, or signed by somebody else."""
    gang = a_gang(server, namespace)
    good = gang.token()
    signs = signing_key(server)
    foreign = tmp_path / "foreign.key"
    subprocess.run(["openssl", "genrsa", "-out", foreign], check=True)
    now_s = int(time.time())

    async def work(post: Post, _: Store) -> None:
        for token, status in (
            ("", 401),
            ("no.token.at-all", 401),
            (gang.token("https://kubernetes.default.svc"), 401),
            (gang.token("somebody.else"), 401),
            (resigned(good, signs, now_s - 120), 401),  # it forgives a minute
            (resigned(good, foreign, now_s + 600), 401),
            # Signed anew it is as good as before: it was the time that was wrong.
            (resigned(good, signs, now_s + 600), 204),
            (gang.token(bound=False), 403),
        ):
            found, said = await post("observation", OBSERVED, token)
            assert found == status, said

    ingesting(gang, tmp_path, work)


def test_a_letter_waits_for_a_token_that_is_taken(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """A pod whose token has expired tells it as soon as the kubelet has another one."""
    gang = a_gang(server, namespace)
    good, file = gang.token(), tmp_path / "token"
    file.write_text(lasting(server, good, -1.0))
    warnings: list[str] = []

    def renew(said: str) -> None:
        warnings.append(said)
        file.write_text(lasting(server, good, 60.0))

    async def work(post: Post, store: Store) -> None:
        client, body = (
            ReportClient(url=post.url, token=file),
            json.dumps(OBSERVED).encode(),
        )
        send = ("/v1/observation", body, Deadline(), renew)
        answer = await asyncio.to_thread(client.send_until, *send)
        assert (answer.is_taken, len(warnings)) == (True, 1)
        assert "401" in warnings[0]
        (found,) = await store.within(namespace).observations.of(gang.plan_uid, 1)
        assert found.to_json() == OBSERVED

    ingesting(gang, tmp_path, work)


def test_the_token_of_a_deleted_pod_is_refused_at_once(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The API server goes on to vouch for it for a moment, and it is known here."""
    gang = a_gang(server, namespace)
    token = gang.token()

    async def work(post: Post, _: Store) -> None:
        assert (await post("observation", OBSERVED, token))[0] == 204
        gang.delete(f"pod/{gang.pod}", "--force", "--grace-period=0")
        await asyncio.sleep(2)  # POD_KNOWN_S
        status, said = await post("observation", OBSERVED, token)
        assert (status, "is gone" in said) == (403, True)

    ingesting(gang, tmp_path, work)


def test_a_pod_that_is_being_deleted_still_tells(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """As long as something keeps it; a finalizer stands in for a kubelet."""
    gang = a_gang(server, namespace)
    keep(gang, f"pod/{gang.pod}")
    token = gang.token()

    async def work(post: Post, _: Store) -> None:
        gang.delete(f"pod/{gang.pod}", "--wait=false")
        pod = server.get(f"pod/{gang.pod}", namespace=namespace)
        assert pod["metadata"]["deletionTimestamp"]
        assert (await post("observation", OBSERVED, token))[0] == 204

    ingesting(gang, tmp_path, work)
    let_go(gang, f"pod/{gang.pod}")


def keep(gang: Gang, what: str, **fields: Any) -> None:
    """Let an object stay when it is deleted, and change its metadata."""
    change = {"metadata": {"finalizers": ["lab.plimsoll.dev/keep"], **fields}}
    gang.patch(what, change)


def let_go(gang: Gang, what: str) -> None:
    """Let an object that was kept go when it is deleted."""
    gang.patch(what, {"metadata": {"finalizers": None}})


def test_a_pod_of_somebody_elses_job_is_refused(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """All labels are those of a gang; what controls the Job is no plan."""
    gang = a_gang(server, namespace, is_owned=False)

    async def work(post: Post, _: Store) -> None:
        status, said = await post("observation", OBSERVED, gang.token())
        assert (status, "no TrainingPlan controls" in said) == (403, True)

    ingesting(gang, tmp_path, work)


def test_the_plan_of_another_namespace_is_not_reported_to(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Anybody may write its uid into a Job of their own: it is not theirs there."""
    elsewhere = f"{namespace}-other"
    server.kubectl("create", "namespace", elsewhere)
    server.wait("serviceaccount/default", "create", namespace=elsewhere)
    theirs, mine = a_gang(server, namespace), a_gang(server, elsewhere)
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": PLAN,
        "uid": theirs.plan_uid,
        "controller": True,
    }
    token = mine.token()
    # Kept, for the garbage collector finds out as well, a moment later.
    keep(mine, f"pod/{mine.pod}")
    keep(mine, f"job/{mine.job}", ownerReferences=[owner])

    async def work(post: Post, store: Store) -> None:
        status, said = await post("observation", OBSERVED, token)
        assert status == 403
        assert "is gone" in said
        for scope in (namespace, elsewhere):
            within = store.within(scope).observations
            assert await within.of(theirs.plan_uid, 1) == ()

    ingesting(mine, tmp_path, work)
    let_go(mine, f"pod/{mine.pod}")
    let_go(mine, f"job/{mine.job}")
    server.kubectl("delete", "namespace", elsewhere, "--wait=false")


def test_an_attempt_that_is_over_is_fenced(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """From the moment that its end stands in the result that the plan owns."""
    gang = a_gang(server, namespace)
    result = a_result("disrupted", plan_uid=gang.plan_uid)

    async def work(post: Post, _: Store) -> None:
        assert (await post("observation", OBSERVED, gang.token()))[0] == 204
        server.apply(result, namespace=namespace)
        await asyncio.sleep(2)  # ENDING_KNOWN_S
        status, said = await post("observation", OBSERVED, gang.token())
        assert (status, "it ended as disrupted" in said) == (409, True)

    ingesting(gang, tmp_path, work)
