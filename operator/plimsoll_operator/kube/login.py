"""Who we are to the API server, and where it is: looked up again when that runs out.

In: a kubeconfig, or nothing where we are a pod. Out: it stands in a configuration of
the official client. Called by api.py, and by watching.py for kopf. Tokens of pods are
written anew by the kubelet, others by whoever keeps the file, or by the plugin that the
kubeconfig names: who is answered 401 logs in again, and asks again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from kubernetes.aio import client as untyped_client
from kubernetes.aio import config as untyped_config

from plimsoll_operator.errors import ClusterError

client: Any = untyped_client
config: Any = untyped_config
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN: Final = "BearerToken"  # noqa: S105 - where the client keeps it, and no token
RENEW_S: Final = 600.0
"""For how long kopf uses a login: tokens that grow old are noted by the API server."""
PAUSE_S: Final = 5.0
"""From one login to the next where that was refused and nothing has changed."""


async def log_in(configuration: Any, kubeconfig: str) -> None:
    """Look up who we are: in a file, or as the pod that we are.

    Args:
        configuration: of the official client, filled in.
        kubeconfig: empty: we are a pod, or kubectl's own file says it.

    Raises:
        ClusterError: it cannot be told.
    """
    try:
        if not kubeconfig and await asyncio.to_thread(SERVICE_ACCOUNT.is_dir):
            config.load_incluster_config(configuration)
        else:
            await config.load_kube_config(
                kubeconfig or None, client_configuration=configuration
            )
    except Exception as error:  # noqa: BLE001 - the client raises whatever it meets
        raise ClusterError(
            f"no cluster to work on: {error}: run in a pod, or set KUBECONFIG"
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A login, as kopf takes it."""

    server: str
    ca_path: str | None
    insecure: bool
    certificate_path: str | None
    private_key_path: str | None
    proxy_url: str | None
    scheme: str | None
    token: str | None
    expiration: datetime
    """After it kopf logs in again; it takes none that was refused, but for another."""


class Logins:
    """Logs in again and again, and not too often while that is refused."""

    def __init__(
        self, kubeconfig: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Log in by a file, or as a pod; the clock is monotonic."""
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._latest = ""
        self._until_s = 0.0

    async def next(self) -> Credentials:
        """Log in; whoever asks before the latest login has run out had it refused.

        Raises:
            ClusterError: it cannot be told who we are.
        """
        configuration, header = await self._look()
        if header == self._latest and self._clock() < self._until_s:
            await asyncio.sleep(PAUSE_S)
            configuration, header = await self._look()
        self._latest, self._until_s = header, self._clock() + RENEW_S
        scheme, _, token = header.partition(" ")
        return Credentials(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            proxy_url=configuration.proxy,
            scheme=scheme or None,
            token=token.strip() or None,
            expiration=datetime.now(UTC) + timedelta(seconds=RENEW_S),
        )

    async def _look(self) -> tuple[Any, str]:
        """Look up who we are, and what says so in the header of a request."""
        configuration = client.Configuration()
        await log_in(configuration, self._kubeconfig)
        return configuration, await configuration.get_api_key_with_prefix(TOKEN) or ""
