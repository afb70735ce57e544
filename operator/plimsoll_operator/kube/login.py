"""Our login at the API server, and its address: looked up again when it runs out.

In: a kubeconfig, or nothing if we are a pod. Out: it stands in a configuration of the
official client. Called by `api`, and by `control.watching` for kopf. Tokens of pods are
written anew by the kubelet, others by whoever keeps the file, or by the plugin that the
kubeconfig names: who is answered 401 logs in again, and asks again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from kubernetes.aio import client as untyped_client
from kubernetes.aio import config as untyped_config

from plimsoll_operator.errors import ClusterError

client: Any = untyped_client
config: Any = untyped_config
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN: Final = "BearerToken"  # noqa: S105 - where the client keeps it, and no token


async def log_in(configuration: Any, kubeconfig: str, context: str = "") -> None:
    """Look up who we are, in a file or as our pod, for the official client.

    Without a `kubeconfig` we are a pod, or kubectl's own file says it; without a
    `context` its current one.

    Raises:
        ClusterError: it cannot be read.
    """
    try:
        if not kubeconfig and await asyncio.to_thread(SERVICE_ACCOUNT.is_dir):
            config.load_incluster_config(configuration)
        else:
            await config.load_kube_config(
                kubeconfig or None,
                context=context or None,
                client_configuration=configuration,
            )
    except Exception as error:  # noqa: BLE001 - the client raises whatever it meets
        raise ClusterError(
            f"no cluster to work on: {error}: run in a pod, or set KUBECONFIG"
        ) from None


async def login_now(kubeconfig: str) -> tuple[Any, str]:
    """Our login, and its header of a request."""
    configuration = client.Configuration()
    await log_in(configuration, kubeconfig)
    return configuration, await configuration.get_api_key_with_prefix(TOKEN) or ""
