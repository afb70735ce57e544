"""The project's images run in pods as the chart runs them: without rights or a disk."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.lab import images, objects, project_images
from tests.lab.cluster import Cluster
from tests.lab.fixtures import archive_of
from tests.lab.host_packages import has_torch
from tests.lab.host_python import host_python
from tools.images import DOCKERFILES, version

pytestmark = pytest.mark.nodes

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}
OPERATOR = """
import importlib.util, pathlib, shutil, tempfile
import kopf, kubernetes.aio, prometheus_client, psycopg
import plimsoll_operator.rules.decide, plimsoll_operator.store.store
import plimsoll_planner.search.answer
for module in ("torch", "pip", "plimsoll_trainer", "plimsoll_profiler"):
    assert importlib.util.find_spec(module) is None, module
for tool in ("cc", "gcc", "pip", "uv"):
    assert shutil.which(tool) is None, tool
tempfile.TemporaryFile()
cached = pathlib.Path(plimsoll_operator.rules.decide.__cached__)
assert cached.exists(), "compiled when the image was built"
print("ready")
"""
RUNTIME = """
import pathlib
import plimsoll_trainer.supervisor, plimsoll_planner.records.plan
from plimsoll_trainer.emulated.device import is_emulated_device
files = sorted(p.name for p in pathlib.Path("/plimsoll").iterdir())
assert not list(pathlib.Path("/plimsoll").rglob("__pycache__"))
print(files, is_emulated_device())
"""
TRAINER = """
import torch
import plimsoll_trainer.process.run, plimsoll_profiler.profiling.profiler
from plimsoll_trainer.emulated.device import EmulatedDevice
before = EmulatedDevice().current_bytes
block = torch.zeros(1000, 1000)
print(EmulatedDevice().current_bytes - before)
"""


def restricted(name: str, image: str, **fields: Any) -> dict[str, Any]:
    """Container as the pod security standard `restricted` wants it."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "securityContext": RESTRICTED,
        **fields,
    }


def copying(name: str, image: str, **fields: Any) -> dict[str, Any]:
    """Init container that brings the runtime."""
    mounts = [{"name": "plimsoll", "mountPath": "/plimsoll"}]
    return restricted(name, image, args=["/plimsoll"], volumeMounts=mounts, **fields)


def finished(cluster: Cluster, pod: dict[str, Any], namespace: str) -> str:
    """Run a pod to its end and return what it wrote."""
    name = pod["metadata"]["name"]
    cluster.apply(pod, namespace=namespace)
    phase = "jsonpath={.status.phase}=Succeeded"
    cluster.wait(f"pod/{name}", phase, namespace=namespace)
    return cluster.kubectl("logs", name, "-n", namespace)


def config(image: str) -> dict[str, Any]:
    """Configuration of an image."""
    with tarfile.open(archive_of(image)) as tar:
        (described,) = json.loads(member(tar, "manifest.json"))
        found: dict[str, Any] = json.loads(member(tar, described["Config"]))
    return found


def member(tar: tarfile.TarFile, name: str) -> bytes:
    """File of an archive."""
    stream = tar.extractfile(name)
    assert stream
    return stream.read()


def files(image: str) -> set[str]:
    """Paths of all files in an image."""
    found = set[str]()
    with tarfile.open(archive_of(image)) as tar:
        for name in json.loads(member(tar, "manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                found |= set(layer.getnames())
    return found


def test_the_operator_needs_no_rights_and_no_disk(
    nodes: Cluster, namespace: str, operator_image: str
) -> None:
    """All of it loads, compiled, from a read-only disk; no torch, no build tools."""
    container = restricted(
        "main",
        operator_image,
        command=["python", "-c", OPERATOR],
        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - in a pod
    )
    volumes = [{"name": "tmp", "emptyDir": {}}]
    pod = objects.a_pod("operator", container, volumes=volumes)
    assert finished(nodes, pod, namespace) == "ready\n"


def test_the_runtime_comes_by_an_init_container(
    nodes: Cluster, namespace: str, runtime_image: str
) -> None:
    """Copied twice, as after a restart, it works in an image that has Python alone."""
    environment = {"PYTHONPATH": "/plimsoll", "LD_PRELOAD": "/plimsoll/shim.so"}
    main = restricted(
        "main",
        images.BASE,
        command=["python3", "-B", "-c", RUNTIME],
        env=[{"name": name, "value": value} for name, value in environment.items()],
        volumeMounts=[{"name": "plimsoll", "mountPath": "/plimsoll"}],
    )
    main["securityContext"] = RESTRICTED | {"runAsUser": 65532}
    pod = objects.a_pod(
        "runtime",
        main,
        volumes=[{"name": "plimsoll", "emptyDir": {}}],
        initContainers=[copying(name, runtime_image) for name in ("first", "again")],
    )
    packages = ["plimsoll_planner", "plimsoll_profiler", "plimsoll_trainer"]
    files = [*packages, "shim.so", "start.py"]
    assert finished(nodes, pod, namespace) == f"{files} True\n"


@pytest.mark.skipif(not has_torch(), reason="needs torch: `make test` installs it")
def test_the_runtime_works_beside_a_torch_of_the_image(
    nodes: Cluster, namespace: str, runtime_image: str
) -> None:
    """Trainer, profiler and shim come from the runtime; torch and numpy do not."""
    python = host_python()
    container = objects.a_container(
        [python.command, "-c", TRAINER],
        env=[
            *(each for each in python.environment if each["name"] != "PYTHONPATH"),
            {"name": "PYTHONPATH", "value": "/plimsoll:/host/site-packages"},
            {"name": "LD_PRELOAD", "value": "/plimsoll/shim.so"},
        ],
        volumeMounts=[*python.mounts, {"name": "plimsoll", "mountPath": "/plimsoll"}],
    )
    pod = objects.a_pod(
        "trainer",
        container,
        volumes=[*python.volumes, {"name": "plimsoll", "emptyDir": {}}],
        initContainers=[copying("runtime", runtime_image)],
    )
    assert finished(nodes, pod, namespace) == "4000000\n"


def test_the_runtime_says_what_it_lacks(
    nodes: Cluster, namespace: str, runtime_image: str
) -> None:
    """Without a folder to copy to it fails with one line."""
    pod = objects.a_pod("nowhere", restricted("main", runtime_image))
    nodes.apply(pod, namespace=namespace)
    nodes.wait("pod/nowhere", "jsonpath={.status.phase}=Failed", namespace=namespace)
    log = nodes.kubectl("logs", "nowhere", "-n", namespace)
    assert log.endswith("name the folder to copy to\n")


@pytest.mark.parametrize("image", DOCKERFILES)
def test_an_image_tells_its_version_and_no_secret(image: str) -> None:
    """It runs as a number that is not root, and keeps no place of packages."""
    found = config(image)
    labels = found["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == version()
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert found["config"]["User"] == "65532:65532"
    for word in ("://", "PIP_", "UV_", "SSL_", "/run/secrets"):
        assert word not in json.dumps(found), word


def test_the_examples_bring_what_a_base_with_torch_lacks() -> None:
    """The models and transformers; torch is that of the base, Plimsoll comes later."""
    found = files("examples")
    assert "workspace/examples/tiny_gpt.py" in found
    assert "opt/packages/transformers/__init__.py" in found
    for absent in ("torch", "plimsoll_trainer"):
        assert not [path for path in found if f"/{absent}/" in path], absent


def test_archives_of_earlier_edits_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latest ones stay, for other checkouts use them; so do other images."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path))
    for number in range(6):
        folder = tmp_path / f"project-operator-{number}"
        folder.mkdir()
        os.utime(folder, (number, number))
    (tmp_path / "project-runtime-0").mkdir()
    project_images._forget_old("operator")
    left = sorted(path.name for path in tmp_path.iterdir())
    kept = [f"project-operator-{number}" for number in range(2, 6)]
    assert left == [*kept, "project-runtime-0"]
