"""The cluster and namespace that a person means, as kubectl would take it.

In: what was typed, and the environment. Out: a `Target`, or an error that names the
next step. Called by the commands that read plans of a cluster; the operator itself logs
in by `login` alone.

    kubeconfig   the file that is named, else those of KUBECONFIG, else ~/.kube/config;
                 where none is there and we are a pod, the cluster of that
    context      the one that is named, else the current one of the file
    namespace    the one that is named, else that of the context or pod, else `default`
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio.config import kube_config as untyped_kube_config

from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.login import SERVICE_ACCOUNT

kube_config: Any = untyped_kube_config
VARIABLE: Final = "KUBECONFIG"
DEFAULT: Final = "~/.kube/config"
NAMESPACE: Final = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A cluster, who asks it, and the namespace that is looked into."""

    kubeconfig: str
    """Files, as KUBECONFIG lists them; empty: we are a pod."""
    context: str
    """Empty: we are a pod."""
    namespace: str

    def __str__(self) -> str:
        """The cluster in words."""
        if not self.kubeconfig:
            return "the cluster of this pod"
        return f"the cluster of context {self.context} in {self.kubeconfig}"


def target_of(kubeconfig: str = "", context: str = "", namespace: str = "") -> Target:
    """The cluster and namespace that a person means; empty words name nothing.

    Raises:
        ClusterError: no file is there, it cannot be read, or it has no such context.
    """
    files = kubeconfig or os.environ.get(VARIABLE) or DEFAULT
    there = [
        path
        for path in (Path(one).expanduser() for one in files.split(os.pathsep) if one)
        if path.is_file()
    ]
    if not there:
        is_pod = not kubeconfig and not context and SERVICE_ACCOUNT.is_dir()
        if not is_pod:
            raise ClusterError(
                f"no kubeconfig {files}, which would name a cluster: give another "
                f"--kubeconfig, or set {VARIABLE}; without --cluster the plans of this "
                "machine are shown"
            )
        mine = (SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip()
        return Target(kubeconfig="", context="", namespace=namespace or mine)
    found = os.pathsep.join(map(str, there))
    contexts, current = contexts_of(found)
    listed = ", ".join(sorted(contexts)) or "none"
    if not (context or current):
        text = f"{found} has no current context: name one with --context, of {listed}"
        raise ClusterError(text)
    wanted = context or current
    if wanted not in contexts:
        raise ClusterError(f"no context {wanted} in {found}: it has {listed}")
    return Target(
        kubeconfig=found,
        context=wanted,
        namespace=namespace or contexts[wanted] or NAMESPACE,
    )


def contexts_of(files: str) -> tuple[dict[str, str], str]:
    """Contexts with their namespaces, and the current one; texts may be empty.

    Raises:
        ClusterError: a file cannot be read as a kubeconfig.
    """
    try:
        merged: Any = kube_config.KubeConfigMerger(files).config.value
        named: dict[str, str] = {}
        for one in merged["contexts"]:
            within: Any = one.value["context"] or {}
            named[str(one["name"])] = str(within.get("namespace") or "")
        return named, str(merged.get("current-context") or "")
    except (yaml.YAMLError, OSError) as error:
        raise ClusterError(f"{files}: no kubeconfig: {error}") from None
    except Exception:  # noqa: BLE001 - the client raises whatever it meets
        text = f"{files}: no kubeconfig: it has not the fields that kubectl writes"
        raise ClusterError(text) from None
