"""A running cluster as tests see it: its files, kubectl, and waiting for conditions."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.slots import Slot

POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """One lab, ready for use; made by owner.start, handed out by the fixtures."""

    slot: Slot
    kubeconfig: Path
    state: Path
    """Everything the lab writes; gone after it."""
    logs: Path
    """One file per part, such as kubelet-0.log."""
    binaries: Path
    """Folder of kubectl, helm and the lab's own programs."""
    nodes: tuple[str, ...]
    """Names of the real nodes; none on level 1."""
    ready_s: float
    """Seconds from nothing to ready."""

    @classmethod
    def of(cls, slot: Slot) -> Cluster:
        """Cluster that is kept in a slot."""
        facts = slot.facts()
        return cls(
            slot=slot,
            kubeconfig=slot.state / "kubeconfig",
            state=slot.state,
            logs=slot.state / "logs",
            binaries=Path(facts["binaries"]),
            nodes=tuple(facts.get("nodes", ())),
            ready_s=facts["ready_s"],
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment for programs that use the cluster: KUBECONFIG, and a PATH."""
        path = f"{self.binaries}:{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def run(
        self, *command: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of `binaries`, such as helm, against this cluster.

        Raises:
            AssertionError: it failed and `check` is set; carries what it wrote.
        """
        done = subprocess.run(
            [self.binaries / command[0], *command[1:]],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it writes."""
        return self.run("kubectl", *arguments, stdin=stdin).stdout

    def apply(self, *manifests: dict[str, Any], namespace: str = "default") -> None:
        """Create or change objects."""
        objects = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(objects))

    def get(self, *arguments: str, namespace: str = "default") -> dict[str, Any]:
        """Object, or a list of them, as `kubectl get` names it."""
        written = self.kubectl("get", *arguments, "-n", namespace, "-o", "json")
        found: dict[str, Any] = json.loads(written)
        return found

    def wait(
        self,
        what: str,
        condition: str,
        *,
        namespace: str = "default",
        timeout_s: float = 180.0,
    ) -> None:
        """Wait as `kubectl wait --for=CONDITION WHAT` does.

        Raises:
            AssertionError: time is up; carries the object as it is then.
        """
        place = ("-n", namespace)
        limit = f"--timeout={timeout_s:g}s"
        done = self.run(
            "kubectl", "wait", f"--for={condition}", what, *place, limit, check=False
        )
        if done.returncode:
            now = self.run("kubectl", "describe", what, *place, check=False).stdout
            raise AssertionError(f"{what} not {condition}: {done.stderr}\n{now}")

    def wait_until(
        self,
        what: str,
        condition: Callable[[], bool],
        *,
        timeout_s: float = 180.0,
        pause_s: float = POLL_S,
    ) -> float:
        """Poll until `condition` holds and return the seconds that took.

        Args:
            what: is waited for.
            condition: whether it has come.
            timeout_s: after which it has not.
            pause_s: between two polls.

        Raises:
            AssertionError: time is up.
        """
        started_s = time.monotonic()
        while not condition():
            if time.monotonic() - started_s > timeout_s:
                raise AssertionError(f"{what}: not within {timeout_s:g} s")
            time.sleep(pause_s)
        return time.monotonic() - started_s

    @contextmanager
    def fresh_namespace(self) -> Iterator[str]:
        """Make a namespace; what runs in it ends with the block."""
        name = f"test-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", name)
        # Pods are refused until this is there.
        self.wait("serviceaccount/default", "create", namespace=name)
        yield name
        # At once, and not after the 30 s that a pod has to end: the next test may need
        # its GPUs.
        kinds = "jobs,deployments,pods"
        at_once = ("--all", "--grace-period=1", "--wait=false")
        self.kubectl("delete", kinds, *at_once, "--namespace", name)
        self.kubectl("delete", "namespace", name, "--wait=false")

    def load_images(self, *archives: Path) -> None:
        """Give all nodes the images of docker-archives or OCI archives."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            done = [pool.submit(self._load, node, archives) for node in self.nodes]
        for each in done:
            each.result()

    def _load(self, node: str, archives: Sequence[Path]) -> None:
        socket = self.state / node / "containerd.sock"
        ctr = ("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import")
        for archive in archives:
            subprocess.run([*ctr, archive], check=True, capture_output=True)

    def stop(self, part: str) -> None:
        """Kill a part of the lab, such as kubelet-0, and keep it down until `start`."""
        hold = self.state / "hold" / part
        hold.touch()
        self.wait_until(f"the end of {part}", lambda: hold.read_text() == "stopped")

    def start(self, part: str) -> None:
        """Start a part that was stopped."""
        (self.state / "hold" / part).unlink()
