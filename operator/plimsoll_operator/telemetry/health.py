"""Whether the operator is well, for probes and for Prometheus.

In: facts of the process, a registry. Out: three routes, served on every replica.

    /healthz   503 with a reason where it would be better to start it anew
    /readyz    503 with a reason where no reports should be sent to it
    /metrics   what `metrics` has counted

That this answers at all proves little: a watch may be dead, or the loop stand still,
for hours. So what is judged is how long nothing was known of each. A store that is down
is no reason to start anew, which would not bring it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

LONGEST_SILENCE_S = 300.0
"""Of a watch: each minute a list shows whether it has kept something back."""
LONGEST_WAIT_S = 300.0
"""Of a plan that is due, while no pass is completed: a pass may wait for several slow
requests of 20 s."""
LONGEST_PAUSE_S = 30.0
"""Of the loop: the heaviest work in it takes below a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """State of the process; all times on one clock that never goes back."""

    beat_s: float
    """Time of the latest round of the event loop."""
    heard_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """By kind of object: when a list last agreed with its watch. Empty on a replica
    that does not decide."""
    due_since_s: float | None = None
    """Since when the plan that has waited longest is due; None where none waits."""
    passed_s: float = 0.0
    """Completion time of the last pass."""


def stale(facts: Facts, now_s: float) -> str:
    """Name of what has been silent for too long; empty if all is well."""
    if now_s - facts.beat_s > LONGEST_PAUSE_S:
        return f"the loop stands still for {now_s - facts.beat_s:.0f} s"
    for kind, heard_s in sorted(facts.heard_s.items()):
        silent_s = now_s - heard_s
        if silent_s > LONGEST_SILENCE_S:
            return f"no list has agreed with the watch of {kind} for {silent_s:.0f} s"
    if facts.due_since_s is not None:
        since_s = max(facts.due_since_s, facts.passed_s)
        if now_s - since_s > LONGEST_WAIT_S:
            return f"plans are due and no pass was made for {now_s - since_s:.0f} s"
    return ""


def health_app(
    facts: Callable[[], Facts],
    unready: Callable[[], str],
    registry: CollectorRegistry,
    clock: Callable[[], float],
) -> web.Application:
    """The routes; `unready` says why no reports should come, empty if they may."""
    app = web.Application()
    app.router.add_get("/healthz", probe_route(lambda: stale(facts(), clock())))
    app.router.add_get("/readyz", probe_route(unready))
    app.router.add_get("/metrics", metrics_route(registry))
    return app


def probe_route(
    complaint: Callable[[], str],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers by whether there is a complaint."""

    async def answer(_: web.Request) -> web.Response:
        found = complaint()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return web.Response(status=status, text=found or "ok")

    return answer


def metrics_route(
    registry: CollectorRegistry,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers all metrics, or those that `name[]` asks for.

    They are written in a thread: with thousands of plans that takes a second, for which
    the library's own handler holds the loop.
    """

    async def answer(request: web.Request) -> web.Response:
        write, kind = choose_encoder(",".join(request.headers.getall("Accept", ())))
        names = request.query.getall("name[]", ())
        asked = registry.restricted_registry(names) if names else registry
        text = await asyncio.to_thread(write, asked)
        reply = web.Response(body=text, headers={"Content-Type": kind})
        reply.enable_compression()
        return reply

    return answer
