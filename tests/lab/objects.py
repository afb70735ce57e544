"""Builders of the Kubernetes objects that the lab's own tests apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.lab import images


def a_container(command: Sequence[str], **fields: Any) -> dict[str, Any]:
    """Container of the base image, which is on every node already."""
    return {
        "name": "main",
        "image": images.BASE,
        "imagePullPolicy": "Never",
        "command": list(command),
        **fields,
    }


def a_pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Pod that runs once and is not restarted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def a_gang(
    name: str, container: dict[str, Any], *, pods: int = 2, **spec: Any
) -> list[dict[str, Any]]:
    """Indexed Job, one pod per node, and the Service that names its pods.

    Pod i is found as <name>-<i>.<name>.
    """
    selector = {"batch.kubernetes.io/job-name": name}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector,
        },
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": selector},
        "nodeTaintsPolicy": "Honor",
    }
    template = {
        "restartPolicy": "Never",
        "subdomain": name,
        "topologySpreadConstraints": [spread],
        "containers": [container],
        **spec,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": {"spec": template},
        },
    }
    return [service, job]
