"""An operator whose token expires goes on with the next one, as a real server sees it.

Its token lasts seconds. Whoever keeps the file writes another one: a kubelet does, into
the folder that every pod has, or somebody whom a kubeconfig names. Connections are cut
when the first one has expired, so that kopf has to log in as well, and a plan that is
made then is heard of by its watch alone: lists come every ten minutes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.cluster import Cluster
from tests.lab.loops import A_SPEC, OFFERS, TABLE
from tests.lab.proxy import Proxy, proxied
from tests.lab.running import Operator, condition_of, settings_for
from tests.lab.tokens import lasting
from tests.lab.trainingplans import an_object

pytestmark = pytest.mark.control_plane

ACCOUNT = "operator"
SHORT_S, LONG_S = 8.0, 600.0
KNOWN_S = 120.0
"""The server remembers for 10 that a token was good; the rest is for a busy machine."""
HEARD_S = 240.0
"""From the creation of a plan until it is accepted, on a machine that is busy."""
EXPIRED_S = 30.0
"""Three times as long as a Lease that is not renewed is held."""
MOST_STARTS = 2
"""It loses the Lease, begins anew, and waits for a token then."""
FOLDER = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""
"""Script with the token at the path of pods' tokens, for one process alone."""


@dataclass(kw_only=True)
class Office:
    """An operator with a token that expires."""

    cluster: Cluster
    namespace: str
    proxy: Proxy
    operator: Operator
    folder: Path
    """Holds `token`."""
    issued: str
    """Token from the API server."""
    renewing: asyncio.Task[None] | None = None
    """Gives out a new token every few seconds."""

    def give(self, life_s: float) -> str:
        """Write a token of so many seconds into the file."""
        token = lasting(self.cluster, self.issued, life_s)
        part = self.folder / "token.part"
        part.write_text(token)
        part.rename(self.folder / "token")
        return token

    async def renew(self) -> None:
        """Write a new token every few seconds, as a kubelet does every few minutes."""
        while True:
            await asyncio.sleep(SHORT_S / 3)
            self.give(SHORT_S)

    def last(self) -> str:
        """A token that expires in some seconds, after which none comes by itself."""
        assert self.renewing is not None
        self.renewing.cancel()
        return self.give(SHORT_S)

    def is_taken(self, token: str) -> bool:
        """Whether the API server knows whose token it is."""
        words = ("kubectl", "get", "tplan", "-n", self.namespace, f"--token={token}")
        done = self.cluster.run(*words, check=False)
        assert not done.returncode or "Unauthorized" in done.stderr, done.stderr
        return not done.returncode

    async def until_refused(self, token: str) -> None:
        """Wait until the API server refuses a token."""
        await asyncio.to_thread(
            self.cluster.wait_until,
            "a token's end",
            lambda: not self.is_taken(token),
            timeout_s=SHORT_S + KNOWN_S,
        )

    async def accepts(self, name: str) -> None:
        """Make a plan, and wait until it is accepted."""
        spec = A_SPEC | {"profile": {"policy": "Never"}}
        made = an_object(name, spec=spec)
        await asyncio.to_thread(self.cluster.apply, made, namespace=self.namespace)
        await asyncio.to_thread(
            self.cluster.wait_until,
            f"{name} accepted",
            lambda: self.verdict(name) == "True",
            timeout_s=HEARD_S,
        )

    def verdict(self, name: str) -> str:
        """Status of the condition `Accepted` of a plan."""
        plan = self.cluster.get("tplan", name, namespace=self.namespace)
        return condition_of(plan.get("status", {}), "Accepted")[0]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Environment of an operator, and the command that it runs in."""

    environment: dict[str, str]
    within: tuple[str, ...] = ()


def as_a_file_says(proxy: Proxy, folder: Path) -> Place:
    """Environment and command of an operator with a kubeconfig."""
    content = yaml.safe_load(proxy.kubeconfig.read_text())
    content["users"][0]["user"] = {"tokenFile": str(folder / "token")}
    proxy.kubeconfig.write_text(yaml.safe_dump(content))
    return Place(environment={"KUBECONFIG": str(proxy.kubeconfig)})


def as_in_a_pod(proxy: Proxy, folder: Path) -> Place:
    """Environment and command of an operator that has what a pod has."""
    if os.geteuid():
        pytest.skip("a folder below /run needs root: run `sudo make test`")
    content = yaml.safe_load(proxy.kubeconfig.read_text())
    [cluster] = [one["cluster"] for one in content["clusters"]]
    shutil.copy(cluster["certificate-authority"], folder / "ca.crt")
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    where = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    command = ("unshare", "--mount", "sh", "-c", FOLDER, str(folder))
    return Place(environment={"KUBECONFIG": ""} | where, within=command)


Placed = Callable[[Proxy, Path], Place]
PLACES = pytest.mark.parametrize("placed", [as_a_file_says, as_in_a_pod])


@asynccontextmanager
async def an_office(
    server: Cluster, namespace: str, folder: Path, placed: Placed
) -> AsyncGenerator[Office]:
    """Run an operator whose tokens last some seconds; it decides.

    There are new ones until a test asks for the last.
    """
    issued = an_account(server, namespace)
    keeps = folder / "account"
    keeps.mkdir()
    async with proxied(server.kubeconfig, folder) as proxy:
        place = placed(proxy, keeps)
        operator = Operator(
            environment=settings_for(server, namespace, folder) | place.environment,
            log=folder / "operator.log",
            within=place.within,
        )
        office = Office(
            cluster=server,
            namespace=namespace,
            proxy=proxy,
            operator=operator,
            folder=keeps,
            issued=issued,
        )
        office.give(SHORT_S)
        operator.start()
        office.renewing = asyncio.create_task(office.renew())
        try:
            await asyncio.to_thread(operator.wait_until_it_leads)
            yield office
            assert "Traceback" not in "\n".join(operator.log_lines())
        finally:
            office.renewing.cancel()
            await asyncio.to_thread(operator.stop)


def an_account(server: Cluster, namespace: str) -> str:
    """Make an account that may do anything, and what plans need; return its token."""
    table = {"offers.csv": TABLE}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": OFFERS},
            "data": table,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
            ],
        },
    ]
    server.apply(*made, namespace=namespace)
    return server.kubectl("create", "token", ACCOUNT, "-n", namespace).strip()


@PLACES
def test_an_operator_goes_on_with_the_next_token(
    server: Cluster, namespace: str, tmp_path: Path, placed: Placed
) -> None:
    """Its requests and its watches; it is the same process that does."""

    async def work() -> None:
        async with an_office(server, namespace, tmp_path, placed) as office:
            await office.accepts("first")
            last = office.last()
            office.give(LONG_S)
            await office.until_refused(last)
            office.proxy.drop()
            await office.accepts("second")
            assert office.operator.num_starts == 1

    asyncio.run(work())


@PLACES
def test_an_operator_without_a_token_waits_for_one(
    server: Cluster, namespace: str, tmp_path: Path, placed: Placed
) -> None:
    """It may begin anew once, for its Lease is lost; it does not again and again."""

    async def work() -> None:
        async with an_office(server, namespace, tmp_path, placed) as office:
            await office.until_refused(office.last())
            office.proxy.drop()
            await asyncio.sleep(EXPIRED_S)
            num_starts = office.operator.num_starts
            assert num_starts <= MOST_STARTS
            office.give(LONG_S)
            await office.accepts("late")
            assert office.operator.num_starts == num_starts

    asyncio.run(work())
