"""A pod of ours, out of the template that a person wrote.

In: `spec.template`, and what the pod is to do. Out: the template of a Job. One
container is where our process runs: that named `trainer`, else the only one. It keeps
all that a person gave it; what we need is added, and what only we can know is refused
where it is given. Everything else in a template is the API server's to judge, by a dry
run of what is made here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from plimsoll_operator.api.quantities import cores
from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.template_fields import (
    MAIN,
    PATH,
    POD_PATH,
    entries,
    part_of,
    refuse,
)
from plimsoll_operator.names import GPU_RESOURCE, TOKEN_AUDIENCE
from plimsoll_operator.nodes.placement import merged
from plimsoll_operator.nodes.taints import GPU_TOLERATION
from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.pod_names import (
    CACHE_VARIABLE,
    IMAGE_VARIABLE,
    INGEST_VARIABLE,
    ROOT,
    TASK_VARIABLE,
)
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.task import Task

PREFIX: Final = "plimsoll-"
"""Of the names of our volumes and containers."""
CODE: Final = "/opt/plimsoll"
"""Folder of trainer and profiler; only readable."""
CHECKPOINTS: Final = f"{ROOT}/checkpoints"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where processes share memory
TOKEN_S: Final = 3600
"""Life of a token; the kubelet renews it before."""
GRACE_S: Final = 720
"""For ranks to save and leave, and to report it; a person may give another time."""
RESERVED_PREFIXES: Final = ("PET_", "PLIMSOLL_", "MASTER_", "TORCHELASTIC_")
"""Prefixes of variables that get their values from us or torch.distributed."""
RESERVED: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX")
"""Others of them."""
OURS: Final = ("restartPolicy", "hostname", "subdomain", "nodeName")
"""Fields of a pod that a person cannot give."""
RESTRICTED: Final[Object] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
NOBODY: Final = 65532
"""Whom the release's images run as."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """Values of the operator's release that pods get."""

    runtime_image: str
    """Holds trainer and profiler."""
    ingest_url: str
    """Address to which pods report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodParts:
    """Parts of the pod of a task, besides those of the template."""

    task: Task
    labels: Mapping[str, str]
    num_gpus: int
    per_gpu: PerGPU
    inputs: str = ""
    """ConfigMap with what the task reads; empty: nothing."""
    affinity: Object | None = None
    """Node affinity of the devices that are planned for."""
    subdomain: str = ""
    """Service by which the pods of a worker group find each other."""
    claim: str = ""
    """Volume claim for checkpoints; empty: none."""
    priority_class: str = ""


def pod_template(
    template: Mapping[str, Any], parts: PodParts, release: Release
) -> Object:
    """The template of a Job.

    Raises:
        InvalidFieldError: the template has no container to run in, or gives what only
            we can know.
    """
    made = copy.deepcopy(dict(template))
    pod = part_of(made, "spec", PATH)
    check_pod(pod)
    container = main_container(pod)
    metadata = part_of(made, "metadata", PATH)
    part_of(metadata, "labels", f"{PATH}.metadata").update(parts.labels)
    fill_container(container, parts, release)
    add(pod, "volumes", volumes_of(parts), POD_PATH)
    if parts.num_gpus:
        add(pod, "tolerations", [GPU_TOLERATION], POD_PATH)
    prepared = entries(pod, "initContainers", POD_PATH)
    pod["initContainers"] = [code_container(pod, release), *prepared]
    pod |= {"restartPolicy": "Never"}
    pod.setdefault("automountServiceAccountToken", False)
    pod.setdefault("enableServiceLinks", False)
    pod.setdefault("terminationGracePeriodSeconds", GRACE_S)
    if parts.subdomain:
        pod["subdomain"] = parts.subdomain
    if parts.priority_class:
        pod["priorityClassName"] = parts.priority_class
    if parts.affinity:
        pod["affinity"] = merged(pod.get("affinity"), parts.affinity)
    return made


def check_pod(pod: Object) -> None:
    """Refuse what only we can know of a pod."""
    for field in OURS:
        if field in pod:
            refuse(f"{POD_PATH}.{field}", pod[field], "left out: Plimsoll sets it")
    for field in ("volumes", "containers", "initContainers"):
        for place, one in enumerate(entries(pod, field, POD_PATH)):
            name = str(one.get("name", ""))
            if name.startswith(PREFIX):
                rule = f"a name that does not begin with {PREFIX}"
                refuse(f"{POD_PATH}.{field}[{place}].name", name, rule)


def main_container(pod: Object) -> Object:
    """The container that is ours.

    Raises:
        InvalidFieldError: there is none, or it is not known which, or it gives what
            only we can know.
    """
    containers = entries(pod, "containers", POD_PATH)
    named = [one for one in containers if one.get("name") == MAIN]
    found = named or containers
    if len(found) != 1:
        names = [one.get("name") for one in containers]
        rule = f"one container, or one named {MAIN} among several"
        refuse(f"{POD_PATH}.containers", names, rule)
    [container] = found
    container.setdefault("name", MAIN)
    place = containers.index(container)
    check_container(container, f"{POD_PATH}.containers[{place}]")
    return container


def check_container(container: Object, path: str) -> None:
    """Refuse what only we can know of our container."""
    image = container.get("image")
    if not isinstance(image, str) or not image:
        refuse(f"{path}.image", image, "an image with torch in it")
    if container.get("args"):
        rule = "left out: Plimsoll sets them; `command` may name the interpreter"
        refuse(f"{path}.args", container["args"], rule)
    for place, variable in enumerate(entries(container, "env", path)):
        name = str(variable.get("name", ""))
        is_ours = name in RESERVED or name.startswith(RESERVED_PREFIXES)
        if is_ours and name != CACHE_VARIABLE:
            rule = "another name: Plimsoll and torch.distributed set this one"
            refuse(f"{path}.env[{place}].name", name, rule)
    for place, mount in enumerate(entries(container, "volumeMounts", path)):
        where = str(mount.get("mountPath"))
        if f"{where.rstrip('/')}/".startswith((f"{CODE}/", f"{ROOT}/")):
            rule = f"another path: Plimsoll mounts at {CODE} and below {ROOT}"
            refuse(f"{path}.volumeMounts[{place}].mountPath", where, rule)
    resources = part_of(container, "resources", path)
    for field in ("limits", "requests"):
        asked = part_of(resources, field, f"{path}.resources")
        if GPU_RESOURCE in asked:
            rule = "left out: the plan says how many; spec.override.gpus fixes it"
            refuse(f"{path}.resources.{field}", asked[GPU_RESOURCE], rule)


def fill_container(container: Object, parts: PodParts, release: Release) -> None:
    """Give our process its command, environment, files and share of the node."""
    container.setdefault("command", ["python3"])
    container["args"] = [f"{CODE}/start.py"]
    # What ends before it can report is known by its last lines.
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    values = {
        TASK_VARIABLE: to_text(parts.task),
        INGEST_VARIABLE: release.ingest_url,
        IMAGE_VARIABLE: container["image"],
        DEBUG_VARIABLE: "1",
    }
    variables = [{"name": name, "value": value} for name, value in values.items()]
    add(container, "env", variables, POD_PATH)
    there = entries(container, "volumeMounts", POD_PATH)
    mounted = {str(one.get("mountPath")).rstrip("/") for one in there}
    add(container, "volumeMounts", mounts_of(parts, mounted), POD_PATH)
    fill_resources(container["resources"], parts)


def fill_resources(resources: Object, parts: PodParts) -> None:
    """Ask for GPUs, and for what goes with each; what a person asks for stays."""
    requests, limits = resources["requests"], resources["limits"]
    share = max(parts.num_gpus, 1)
    memory = str(parts.per_gpu.memory_bytes * share)
    if "cpu" not in limits:
        requests.setdefault("cpu", milli(cores(parts.per_gpu.cpu) * share))
    if "memory" not in requests:
        limits.setdefault("memory", memory)
        requests["memory"] = limits["memory"]
    if parts.num_gpus:
        limits[GPU_RESOURCE] = str(parts.num_gpus)


def milli(number: Decimal) -> str:
    """A number of cores as Kubernetes writes it, rounded up."""
    return f"{int((number * 1000).to_integral_value(ROUND_CEILING))}m"


def mounts_of(parts: PodParts, mounted: Iterable[str]) -> list[Object]:
    """Mounts of our process, besides those of a person."""
    wanted = [
        ("code", CODE, True),
        ("work", f"{ROOT}/work", False),
        ("token", f"{ROOT}/token", True),
        ("shm", SHARED_MEMORY, False),
    ]
    if parts.inputs:
        wanted.append(("inputs", f"{ROOT}/inputs", True))
    if parts.claim:
        wanted.append(("checkpoints", CHECKPOINTS, False))
    return [
        {"name": f"{PREFIX}{name}", "mountPath": path, "readOnly": read_only}
        for name, path, read_only in wanted
        if path not in mounted
    ]


def volumes_of(parts: PodParts) -> list[Object]:
    """The volumes behind them."""
    token = {
        "audience": TOKEN_AUDIENCE,
        "expirationSeconds": TOKEN_S,
        "path": "token",
    }
    made: dict[str, Object] = {
        "code": {"emptyDir": {}},
        "work": {"emptyDir": {}},
        "token": {"projected": {"sources": [{"serviceAccountToken": token}]}},
        "shm": {"emptyDir": {"medium": "Memory"}},
    }
    if parts.inputs:
        made["inputs"] = {"configMap": {"name": parts.inputs}}
    if parts.claim:
        made["checkpoints"] = {"persistentVolumeClaim": {"claimName": parts.claim}}
    return [{"name": f"{PREFIX}{name}"} | volume for name, volume in made.items()]


def code_container(pod: Object, release: Release) -> Object:
    """The container that copies trainer and profiler into the pod; never as root."""
    runs_as_root = part_of(pod, "securityContext", POD_PATH).get("runAsUser") == 0
    context = RESTRICTED | ({"runAsUser": NOBODY} if runs_as_root else {})
    small = {"cpu": "50m", "memory": "64Mi"}
    return {
        "name": f"{PREFIX}code",
        "image": release.runtime_image,
        "imagePullPolicy": "IfNotPresent",
        "args": [CODE],
        "securityContext": context,
        "resources": {"requests": small, "limits": {"memory": small["memory"]}},
        "volumeMounts": [{"name": f"{PREFIX}code", "mountPath": CODE}],
    }


def add(whole: Object, field: str, more: list[Object], path: str) -> None:
    """Add entries to the end of a list."""
    whole[field] = [*entries(whole, field, path), *more]
