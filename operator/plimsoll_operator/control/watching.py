"""Hears of what changes: kopf watches plans and their Jobs, and we take keys from it.

In: events. Out: keys in the queue. kopf keeps nothing of an object and writes nothing
to it: there are no handlers of changes, so no annotations and no finalizers. It logs in
as the rest of the operator does, and again when a token has expired. A watch that dies
ends the process, which Kubernetes starts again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import kopf

from plimsoll_operator.backends.pods import BACKENDS
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import Kind, Object
from plimsoll_operator.kube.login import login_now
from plimsoll_operator.names import GROUP, PLAN_LABEL, PLURAL, VERSION, PlanKey

PAGE: Final = 500
"""Objects of the first list that are asked for at a time."""
WORKERS, IDLE_S = 64, 0.1
"""Tasks of kopf, each for the events of one object, and how long one waits for more."""
RENEW_S: Final = 600.0
"""For how long kopf uses a login: tokens that grow old are noted by the API server."""
PAUSE_S: Final = 5.0
"""From one login to the next if that was refused and nothing has changed."""
Heard = Callable[[PlanKey, str, str, bool], None]
"""Takes a plan's key, its uid, the version, and whether it was deleted."""
OwnedChanged = Callable[[PlanKey, str, str, str], None]
"""Takes the key of a workload's plan, and uid, version and plural of the workload."""


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

    async def next(self) -> kopf.ConnectionInfo:
        """Log in; whoever asks before the latest login has run out had it refused.

        Raises:
            ClusterError: our login cannot be read.
        """
        configuration, header = await login_now(self._kubeconfig)
        if header == self._latest and self._clock() < self._until_s:
            await asyncio.sleep(PAUSE_S)
            configuration, header = await login_now(self._kubeconfig)
        self._latest, self._until_s = header, self._clock() + RENEW_S
        scheme, _, token = header.partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            proxy_url=configuration.proxy,
            scheme=scheme or None,
            token=token.strip() or None,
            # Afterwards kopf logs in again; it takes none that was refused.
            expiration=datetime.now(UTC) + timedelta(seconds=RENEW_S),
        )


def registry_for(
    heard: Heard, owned_changed: OwnedChanged, logins: Logins
) -> kopf.OperatorRegistry:
    """Handlers of the watches, which call for every event of a plan or a workload."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        """Be who the rest of the operator is."""
        try:
            return await logins.next()
        except ClusterError as error:
            raise kopf.TemporaryError(str(error), delay=PAUSE_S) from None

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def plan_event(event: kopf.RawEvent, **_: Any) -> None:
        """Hear of a plan."""
        metadata = metadata_of(event)
        key = metadata["namespace"], metadata["name"]
        is_deleted = event["type"] == "DELETED"
        heard(key, metadata["uid"], metadata["resourceVersion"], is_deleted)

    for one in BACKENDS.values():
        on_owned(registry, one.makes, owned_changed)
    return registry


def on_owned(
    registry: kopf.OperatorRegistry, kind: Kind, owned_changed: OwnedChanged
) -> None:
    """Register the handler of the watch of workloads of a kind."""

    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
    async def owned_event(event: kopf.RawEvent, **_: Any) -> None:
        """Take in an event of an owned object."""
        metadata = metadata_of(event)
        name = metadata.get("labels", {}).get(PLAN_LABEL)
        if name:
            key, uid = (metadata["namespace"], name), metadata["uid"]
            owned_changed(key, uid, metadata["resourceVersion"], kind.plural)


def metadata_of(event: kopf.RawEvent) -> Object:
    """The metadata of what an event is about."""
    found = cast("Object", event["object"])
    return cast("Object", found["metadata"])


def settings_for() -> kopf.OperatorSettings:
    """Settings of kopf: it watches, and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # the Lease decides who decides
    settings.posting.enabled = False  # Events are ours to write
    settings.scanning.disabled = True  # no rights to list all kinds are needed
    settings.watching.chunk_size = PAGE
    # A task for each object, thousands at once at the start, would stay in memory.
    settings.queueing.worker_limit, settings.queueing.idle_timeout = WORKERS, IDLE_S
    for kind in (one.makes for one in BACKENDS.values()):
        place = f"{kind.plural}.{kind.version}.{kind.group}"
        settings.watching.label_selectors[place] = PLAN_LABEL
    return settings


async def watch(registry: kopf.OperatorRegistry, namespaces: Sequence[str]) -> None:
    """Watch until cancelled, or until a watch dies; without namespaces in all."""
    await kopf.operator(
        registry=registry,
        settings=settings_for(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
