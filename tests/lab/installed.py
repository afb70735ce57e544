"""The operator on a lab as its users get it: built images, the chart, nothing else.

In: a cluster of nodes that has the images of the release (fixture `release_nodes`).
Out: an `Installed`, ready, with its metrics; calls about TrainingPlans go through
kubectl. Called by the tests that train on a cluster, and by those that break what they
train on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.names import GROUP, PLURAL
from tests.lab.cluster import Cluster

CHART = Path(__file__).parents[2] / "charts" / "plimsoll"
NAME = "plimsoll"
"""Of the release, and so of most of its objects."""
OF_RELEASE = f"--selector=app.kubernetes.io/instance={NAME}"
DEFINITION = f"{PLURAL}.{GROUP}"
READY_S = 240.0
POLL_S = 2.0
"""Between two looks at a plan by a kubectl, which takes half a second of a core."""
HTTP_PORT = 8080
LOG_LINES = 60
SUCCEEDED = ConditionType.SUCCEEDED
DATABASE = "plimsoll-database"
"""The Secret with its address."""
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """A release in a namespace of its own, which serves all namespaces."""

    cluster: Cluster
    namespace: str
    values: Values
    """On top of the chart's own."""

    def install(self) -> None:
        """Install the release, and wait until it is ready.

        Raises:
            AssertionError: it is not ready in time; carries the operator's log.
        """
        words = ("helm", "install", NAME, str(CHART), "--namespace", self.namespace)
        self.cluster.run(*words, "--values=-", stdin=json.dumps(self.values))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until all replicas are ready.

        Raises:
            AssertionError: they are not in time; carries the operator's log.
        """
        words = ("rollout", "status", f"deployment/{NAME}", f"--timeout={READY_S:g}s")
        place = ("--namespace", self.namespace)
        done = self.cluster.run("kubectl", *words, *place, check=False)
        if done.returncode:
            pods = self.cluster.kubectl("describe", "pods", *place)
            raise AssertionError(f"{done.stderr}\n{pods}\n{self.log()}")

    def uninstall(self) -> None:
        """Take the release away; plans and what they run stay."""
        place = ("--namespace", self.namespace)
        self.cluster.run("helm", "uninstall", NAME, *place, "--wait", "--timeout=240s")
        # Its pods end a moment after what made them.
        gone = ("wait", "pod", OF_RELEASE, "--for=delete", "--timeout=240s")
        self.cluster.run("kubectl", *gone, *place)

    def log(self) -> str:
        """Log of the operator, all replicas together."""
        words = ("logs", OF_RELEASE, "--tail=-1")
        place = ("--namespace", self.namespace)
        return self.cluster.run("kubectl", *words, *place, check=False).stdout

    def conditions(self, namespace: str, plan: str) -> dict[str, dict[str, Any]]:
        """Conditions of a TrainingPlan, by type."""
        found = self.cluster.get("tplan", plan, namespace=namespace)
        listed = found.get("status", {}).get("conditions", ())
        return {one["type"]: one for one in listed}

    def wait_for(
        self, namespace: str, plan: str, kind: ConditionType, *, timeout_s: float
    ) -> None:
        """Wait until a condition of a TrainingPlan is True.

        Raises:
            AssertionError: the plan has failed, or time is up; carries its conditions
                and the operator's log.
        """

        def is_settled() -> bool:
            conditions = self.conditions(namespace, plan)
            states = {word: one["status"] for word, one in conditions.items()}
            return states.get(kind) == "True" or states.get(SUCCEEDED) == "False"

        try:
            self.cluster.wait_until(
                f"{plan} {kind}", is_settled, timeout_s=timeout_s, pause_s=POLL_S
            )
            assert self.conditions(namespace, plan)[kind]["status"] == "True"
        except AssertionError as error:
            conditions = json.dumps(self.conditions(namespace, plan), indent=1)
            place = ("--namespace", namespace)
            pods = self.cluster.kubectl("get", "jobs,pods,events", *place)
            log = "\n".join(self.log().splitlines()[-LOG_LINES:])
            raise AssertionError(f"{error}\n{conditions}\n{pods}\n{log}") from error

    @property
    def metrics(self) -> str:
        """Host and port that serve /metrics; the machine of the tests reaches them."""
        found = self.cluster.get("service", f"{NAME}-metrics", namespace=self.namespace)
        return f"{found['spec']['clusterIP']}:{HTTP_PORT}"

    def left(self, kinds: str) -> set[tuple[str, str]]:
        """Kind and name of all that bears the label of the release."""
        found = self.cluster.get(kinds, OF_RELEASE, namespace=self.namespace)["items"]
        return {(each["kind"], each["metadata"]["name"]) for each in found}


@contextmanager
def installed(
    cluster: Cluster, *, database: str = "", **values: Any
) -> Iterator[Installed]:
    """Install the operator into a fresh namespace; take all of it away at the end.

    Args:
        cluster: has the images of the release.
        database: address of a PostgreSQL; empty: SQLite on a volume.
        values: of the chart.
    """
    namespace = f"plimsoll-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", namespace)
    if database:
        address = f"--from-literal=url={database}"
        words = ("create", "secret", "generic", DATABASE, address, "-n", namespace)
        cluster.kubectl(*words)
        values |= {"database": {"existingSecret": DATABASE}}
    else:
        cluster.apply(a_volume(cluster, namespace, NAME))
    release = Installed(cluster=cluster, namespace=namespace, values=values)
    release.install()
    try:
        yield release
    finally:
        # All plans go with the definition, which the release leaves behind.
        cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found")
        gone = ("uninstall", NAME, "-n", namespace, "--ignore-not-found")
        cluster.run("helm", *gone)
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        cluster.kubectl("delete", "pv", namespace, "--ignore-not-found", "--wait=false")


def a_volume(cluster: Cluster, namespace: str, claim: str) -> dict[str, Any]:
    """Volume for a claim, named by the namespace; all nodes can mount it."""
    folder = cluster.state / "volumes" / namespace
    folder.mkdir(parents=True)
    folder.chmod(0o777)  # whoever a pod runs as
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": str(folder)},
        },
    }
