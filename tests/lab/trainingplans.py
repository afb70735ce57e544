"""TrainingPlans on a lab's API server: the kind itself, and plans that are edited.

In: a cluster of the lab. Out: what its server takes, and why it refuses the rest.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from plimsoll_operator.api.definition import NAME, definition
from plimsoll_operator.names import API_VERSION, KIND, VERSION
from tests.lab.cluster import Cluster
from tests.support.api_values import A_SPEC

LEAST = {name: A_SPEC[name] for name in ("workload", "training")}
"""The least that a spec has."""
FROM_STDIN = "--filename=-"
CREATE = ("kubectl", "create", "--dry-run=server", FROM_STDIN)


def an_object(name: str, **parts: Any) -> dict[str, Any]:
    """TrainingPlan."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        **parts,
    }


def trial_definition(group: str) -> dict[str, Any]:
    """Definition in another group, with the status in the same document.

    A server drops the status of a new object where it is written apart: it judges none.
    """
    made = copy.deepcopy(definition())
    made["metadata"]["name"] = f"trials.{group}"
    made["spec"]["group"] = group
    names = {"plural": "trials", "singular": "trial", "kind": "Trial"}
    made["spec"]["names"] = names
    del made["spec"]["versions"][0]["subresources"]
    return made


def a_trial(group: str, number: int = 0, **parts: Any) -> dict[str, Any]:
    """Object of that kind."""
    trial = {"apiVersion": f"{group}/{VERSION}", "kind": "Trial"}
    return an_object(f"trial-{number}", **parts) | trial


def establish(cluster: Cluster, made: dict[str, Any], sent: dict[str, Any]) -> None:
    """Apply a definition, and wait until an object of its kind is taken."""
    cluster.apply(made)
    name = made["metadata"]["name"]
    cluster.wait(f"crd/{name}", "condition=Established")
    cluster.wait_until(name, lambda: not refused(cluster, sent))


def served(cluster: Cluster) -> Iterator[Cluster]:
    """Yield a cluster that knows the kind as the chart brings it."""
    establish(cluster, definition(), an_object("least", spec=LEAST))
    yield cluster
    cluster.kubectl("delete", "crd", NAME)


def refused(cluster: Cluster, sent: dict[str, Any]) -> str:
    """Refusal of an object by the server; empty if it takes the object."""
    return cluster.run(*CREATE, stdin=json.dumps(sent), check=False).stderr


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The plan `a` of a namespace."""

    server: Cluster
    here: tuple[str, ...]
    """Options that name the namespace."""

    @classmethod
    def create(cls, server: Cluster, namespace: str, spec: dict[str, Any]) -> Self:
        """Create it."""
        plan = cls(server=server, here=(f"--namespace={namespace}",))
        sent = json.dumps(an_object("a", spec=spec))
        server.kubectl("create", FROM_STDIN, *plan.here, stdin=sent)
        return plan

    def now(self) -> dict[str, Any]:
        """The object as it is."""
        read = self.server.kubectl("get", "tplan", "a", *self.here, "--output=json")
        found: dict[str, Any] = json.loads(read)
        return found

    def set_status(self, status: dict[str, Any]) -> None:
        """Write its status as the operator does."""
        words = ("patch", "tplan", "a", "--subresource=status", "--type=merge")
        patch = json.dumps({"status": status})
        self.server.kubectl(*words, f"--patch={patch}", *self.here)

    def say(self, **conditions: str) -> None:
        """Give it conditions."""
        listed = [
            {"type": kind, "status": status, "reason": "Said"}
            for kind, status in conditions.items()
        ]
        self.set_status({"conditions": listed})

    def put(self, sent: dict[str, Any]) -> None:
        """Replace it."""
        words = ("replace", FROM_STDIN, *self.here)
        self.server.kubectl(*words, stdin=json.dumps(sent))

    def tried(self, specs: Iterable[object]) -> tuple[int, str]:
        """Number of these specs that it could have, and why not the others."""
        now = self.now()
        stream = "\n".join(json.dumps(now | {"spec": spec}) for spec in specs)
        words = ("kubectl", "replace", "--dry-run=server", FROM_STDIN, *self.here)
        done = self.server.run(*words, stdin=stream, check=False)
        return len(done.stdout.splitlines()), done.stderr
