"""The operator as a process of this machine, and plans for it on the nodes of a lab.

In: a cluster with nodes. Out: a `Ground`: a namespace with a claim for checkpoints,
nodes that pretend to have small devices, an operator that is started again when it
ends, as a kubelet would, and plans whose ranks do what a test orders them
(tests/support/steered.py). Called by the tests of what may fail on a cluster.

Profile and replay of the chain are made by the first plan; all others find them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from plimsoll_operator.api.definition import NAME as DEFINITION
from plimsoll_operator.names import API_VERSION, KIND, PLAN_LABEL
from tests.lab import images
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus, pretend
from tests.lab.host_python import host_python
from tests.lab.pod_processes import processes_of
from tests.support import steered
from tests.support.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
CRD: Final = ROOT / "charts/plimsoll/files/crd.yaml"
CLAIM: Final = "saved"
STEPS: Final = 40
POLL_S: Final = 0.5
LOOK_S: Final = 2.0
"""Between two looks at a plan by a kubectl, which takes half a second of a core."""
LIMIT_S: Final = 240.0
"""For anything that is waited for, on a machine that is busy."""
AGAIN_S: Final = 1.0
"""From the end of an operator to the next one."""
LEADS: Final = "the Lease is ours"
LOG_LINES: Final = 20
REPORTED: Final = ("conditions", "attempt", "failures", "workloadRef")
"""Of a status, where a test fails."""
DEVICES: Final = Gpus(count=16, memory_mib=3)
"""So small that the chain needs two, and enough for all plans of a test."""
WIDTH: Final = 30
"""Of the name of a plan at most."""


@dataclass(kw_only=True)
class Operator:
    """An operator, and what starts it again."""

    environment: dict[str, str]
    log: Path
    module: str = "plimsoll_operator"
    """That is run."""
    within: tuple[str, ...] = ()
    """Command that runs it in another place than this machine."""
    num_starts: int = 0
    _begins_at: int = 0
    """In the log, what the one that was started last says."""
    _process: subprocess.Popen[bytes] | None = None
    _wanted: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._wanted.set()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to stop, and leave it so."""
        self._wanted.clear()
        self.signal(signal.SIGTERM)
        if self._thread is not None:
            self._thread.join()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill all of it at once, as the end of its container does."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_until_it_leads(self, *, timeout_s: float = LIMIT_S) -> None:
        """Wait until the one that was started last decides."""
        end_s = time.monotonic() + timeout_s
        while not self._leads():
            assert time.monotonic() < end_s, self.log_lines()[-LOG_LINES:]
            time.sleep(POLL_S)

    def log_lines(self) -> list[str]:
        """Lines that it has written."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def _leads(self) -> bool:
        """Whether it runs and decides."""
        if self._process is None or self._process.poll() is not None:
            return False
        return LEADS in self.log.read_bytes()[self._begins_at :].decode()

    def _keep(self) -> None:
        """Start it as long as it is wanted."""
        while self._wanted.is_set():
            with self.log.open("ab") as log:
                self._begins_at = log.tell()
                self.num_starts += 1
                self._process = subprocess.Popen(
                    [
                        *("setpriv", "--pdeathsig", "KILL"),
                        *self.within,
                        *(sys.executable, "-m", self.module),
                    ],
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # so that searches end with it
                )
            self._process.wait()
            if self._wanted.is_set():
                time.sleep(AGAIN_S)


@dataclass(kw_only=True)
class Ground:
    """A namespace, its operator, and orders for the ranks of its plans."""

    cluster: Cluster
    namespace: str
    operator: Operator
    folder: Path
    """Holds `code`, `orders` and `saved`, which pods see."""

    def plan(self, name: str, **spec: Any) -> dict[str, Any]:
        """Plan of the chain.

        Args:
            name: of it.
            spec: parts in the place of the usual ones.
        """
        usual = {
            "workload": {"entrypoint": "steered:workload"},
            "training": {"globalBatchSize": 8, "steps": STEPS},
            "checkpoint": {"everySteps": 5, "claimName": CLAIM},
            "search": {"maxGPUs": 4},
            "launch": {"perGPU": {"cpu": "100m", "memory": "512Mi"}},
            "template": self.template(),
        }
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": usual | spec,
        }

    def template(self) -> dict[str, Any]:
        """Pods of all plans: equal ones share a profile."""
        python = host_python(sources=[self.folder / "code"])
        mount = {"name": "orders", "mountPath": str(steered.ORDERS)}
        container = {
            "image": images.BASE,
            "imagePullPolicy": "Never",
            "command": [python.command],
            "env": python.environment,
            "volumeMounts": [*python.mounts, mount],
        }
        orders = {"name": "orders", "hostPath": {"path": str(self.folder / "orders")}}
        return {
            "spec": {"containers": [container], "volumes": [*python.volumes, orders]}
        }

    def launch(self, name: str, **spec: Any) -> None:
        """Make a plan."""
        self.cluster.apply(self.plan(name, **spec), namespace=self.namespace)

    def train_first(self) -> None:
        """Train a plan by the name `first`: all others find its profile and replay."""
        self.launch("first")
        status = self.ended("first")
        assert condition_of(status, "Succeeded")[:2] == ("True", "Trained"), status
        assert set(self.steps("first-train-1")) == set(range(STEPS))

    def order(self, job: str, **what: float) -> None:
        """Give the pods of `<plan>-train`, `-profile` or `-rehearsal` their orders."""
        file = self.folder / "orders" / job
        part = file.with_suffix(".part")
        part.write_text(json.dumps(what))
        part.rename(file)

    def steps(self, job: str) -> list[int]:
        """Steps that the first rank of a Job has begun."""
        file = self.folder / "orders" / f"{job}-0.steps"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def losses(self, plan: str) -> dict[int, list[str]]:
        """Losses of the micro-batches of each step, as it was trained last."""
        found: dict[int, list[str]] = {}
        paths = (self.folder / "orders").glob(f"{plan}-train-*.losses")
        for path in sorted(paths, key=lambda one: one.stat().st_mtime):
            mine: dict[int, list[str]] = {}
            for line in path.read_text().splitlines():
                step, _, value = line.partition(" ")
                mine.setdefault(int(step), []).append(value)
            found |= mine
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Status of a plan."""
        found = self.cluster.get("tplan", name, namespace=self.namespace)
        status: dict[str, Any] = found.get("status", {})
        return status

    def wait_for(
        self,
        name: str,
        what: Callable[[dict[str, Any]], bool],
        *,
        timeout_s: float = LIMIT_S,
    ) -> dict[str, Any]:
        """Wait until something holds of a plan's status, and return that.

        Raises:
            AssertionError: it does not in time, or the plan ended before; carries all
                that is known of it.
        """
        end_s = time.monotonic() + timeout_s
        while not what(status := self.status(name)):
            if time.monotonic() > end_s or status.get("completionTime"):
                raise AssertionError(self.account(name, status))
            time.sleep(LOOK_S)
        return status

    def wait_for_steps(
        self, job: str, number: int, *, timeout_s: float = LIMIT_S
    ) -> None:
        """Wait until the first rank of a Job has begun so many steps."""
        self.cluster.wait_until(
            f"{number} steps of {job}",
            lambda: len(self.steps(job)) >= number,
            timeout_s=timeout_s,
        )

    def ended(self, name: str, *, timeout_s: float = LIMIT_S) -> dict[str, Any]:
        """Status of a plan once that is final."""
        return self.wait_for(name, is_over, timeout_s=timeout_s)

    def patch(self, name: str, spec: dict[str, Any]) -> None:
        """Edit a plan's spec."""
        change = json.dumps({"spec": spec})
        words = ("patch", "tplan", name, "--type=merge", "-p", change)
        self.cluster.kubectl(*words, "-n", self.namespace)

    def delete(self, what: str, *how: str) -> None:
        """Delete an object of the namespace, and do not wait for it."""
        self.cluster.kubectl("delete", what, "--wait=false", *how, "-n", self.namespace)

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Pods of a Job."""
        label = f"batch.kubernetes.io/job-name={job}"
        found = self.cluster.get("pods", "-l", label, namespace=self.namespace)
        items: list[dict[str, Any]] = found["items"]
        return items

    def account(self, name: str, status: dict[str, Any]) -> str:
        """All that is known of a plan that did not do as it should."""
        doing = list(processes_of(name))  # first: they go on
        place = ("-n", self.namespace)
        objects = self.cluster.kubectl("get", "jobs,pods,configmaps", *place)
        of_plan = ("-l", f"{PLAN_LABEL}={name}", f"--tail={LOG_LINES}")
        logs = self.cluster.kubectl("logs", *of_plan, "--ignore-errors", *place)
        log = "\n".join(self.operator.log_lines()[-LOG_LINES:])
        reported = {one: it for one, it in status.items() if one in REPORTED}
        first = f"{name}: {json.dumps(reported, indent=1)}"
        return "\n".join((first, objects, logs, *doing, log))


def is_over(status: dict[str, Any]) -> bool:
    """Whether a plan has come to its end."""
    return condition_of(status, "Succeeded")[0] in ("True", "False")


def condition_of(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition; empty if it is not there."""
    for one in status.get("conditions", ()):
        if one["type"] == kind:
            return one["status"], one["reason"], one.get("message", "")
    return "", "", ""


def has_reason(kind: str, reason: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a condition has a reason, as a function of the status."""
    return lambda status: condition_of(status, kind)[1] == reason


@contextmanager
def a_ground(
    cluster: Cluster,
    folder: Path,
    runtime_image: str,
    *,
    devices: Gpus = DEVICES,
    module: str = "plimsoll_operator",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Ground]:
    """Make a namespace with an operator of its own; take all of it away at the end.

    Args:
        cluster: has nodes.
        folder: that pods can see.
        runtime_image: which the nodes have.
        devices: of each node.
        module: of the operator.
        settings: of the operator, beside the usual ones; without `PLIMSOLL_`.
    """
    namespace = f"ground-{secrets.token_hex(3)}"
    prepare(cluster, namespace, folder, devices)
    ground = Ground(
        cluster=cluster,
        namespace=namespace,
        folder=folder,
        operator=Operator(
            environment=settings_for(cluster, namespace, folder)
            | {"PLIMSOLL_RUNTIME_IMAGE": runtime_image}
            | {f"PLIMSOLL_{name}": value for name, value in (settings or {}).items()},
            log=folder / "operator.log",
            module=module,
        ),
    )
    ground.operator.start()
    try:
        yield ground
    finally:
        ground.operator.stop()
        at_once = ("--all", "--wait=false", "-n", namespace)
        cluster.kubectl("delete", "tplan", *at_once)
        cluster.kubectl("delete", "jobs,pods", "--grace-period=1", *at_once)
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        cluster.kubectl("delete", "pv", namespace, "--wait=false")


def prepare(cluster: Cluster, namespace: str, folder: Path, devices: Gpus) -> None:
    """Give the nodes devices, and the namespace what plans need."""
    for node in cluster.nodes:
        pretend(cluster, node, devices)
    for name in ("code", "orders", "saved"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)  # whoever a pod runs as
    shutil.copy(Path(steered.__file__), folder / "code")
    cluster.kubectl("apply", "--server-side", "-f", str(CRD))
    cluster.wait(f"crd/{DEFINITION}", "condition=Established")
    cluster.kubectl("create", "namespace", namespace)
    cluster.wait("serviceaccount/default", "create", namespace=namespace)
    cluster.apply(*a_volume(namespace, folder / "saved"), namespace=namespace)


def settings_for(cluster: Cluster, namespace: str, folder: Path) -> dict[str, str]:
    """Environment of an operator that runs on this machine."""
    http, ingest = free_ports(2)
    variables = {
        "DATABASE": str(folder / "store.db"),
        "NAMESPACE": namespace,
        "WATCH_NAMESPACES": namespace,
        "POD_NAME": "operator",
        "RUNTIME_IMAGE": "runtime.example/r",
        "INGEST_URL": f"http://{cluster.slot.host_address}:{ingest}",
        "HTTP_PORT": str(http),
        "INGEST_PORT": str(ingest),
        "SOLVERS": "1",
        "LOG_FORMAT": "text",
    }
    kept = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "HOME")
        if name in os.environ
    }
    return (
        kept
        | {"KUBECONFIG": str(cluster.kubeconfig)}
        | {f"PLIMSOLL_{name}": value for name, value in variables.items()}
    )


def a_volume(namespace: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Volume that both nodes can mount, and the claim that has it."""
    modes = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": modes
        | {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "hostPath": {"path": str(folder)},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": modes
        | {
            "volumeName": namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return volume, claim
