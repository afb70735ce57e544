"""Whether the operator is well, for probes and for Prometheus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from plimsoll_operator.telemetry.health import (
    LONGEST_PAUSE_S,
    LONGEST_SILENCE_S,
    LONGEST_WAIT_S,
    Facts,
    health_app,
    stale,
)
from plimsoll_operator.telemetry.metrics import Metrics

NOW_S = 10_000.0
SLOW_S = 10.0
"""Metrics take so long unless they are told to end."""


def well(**fields: Any) -> Facts:
    """Build the facts of a process that is well."""
    heard = {"pods": NOW_S, "trainingplans": NOW_S}
    defaults: dict[str, Any] = {"beat_s": NOW_S, "heard_s": heard}
    return Facts(**(defaults | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ""),
        ({"heard_s": {}}, ""),
        ({"beat_s": NOW_S - LONGEST_PAUSE_S}, ""),
        ({"beat_s": NOW_S - LONGEST_PAUSE_S - 1}, "the loop stands still for 31 s"),
        ({"heard_s": {"jobs": NOW_S - LONGEST_SILENCE_S}}, ""),
        (
            {"heard_s": {"pods": NOW_S, "jobs": NOW_S - LONGEST_SILENCE_S - 1}},
            "no list has agreed with the watch of jobs for 301 s",
        ),
        ({"passed_s": 0.0}, ""),
        ({"due_since_s": NOW_S - LONGEST_WAIT_S}, ""),
        (
            {"due_since_s": NOW_S - LONGEST_WAIT_S - 1},
            "plans are due and no pass was made for 301 s",
        ),
        ({"due_since_s": 0.0, "passed_s": NOW_S - 1}, ""),
        (
            {"due_since_s": 0.0, "passed_s": NOW_S - LONGEST_WAIT_S - 2},
            "plans are due and no pass was made for 302 s",
        ),
    ],
)
def test_what_was_silent_for_too_long_is_named(
    fields: dict[str, Any], said: str
) -> None:
    """The loop, a watch, or passes while plans wait; an idle operator is well."""
    assert stale(well(**fields), NOW_S) == said


def ask(path: str, facts: Facts, unready: str = "") -> tuple[int, str]:
    """Answer on a path."""

    async def asked() -> tuple[int, str]:
        registry = Metrics(per_plan=True).registry
        app = health_app(lambda: facts, lambda: unready, registry, lambda: NOW_S)
        async with TestClient(TestServer(app)) as client:
            reply = await client.get(path)
            return reply.status, await reply.text()

    return asyncio.run(asked())


def test_probes_are_answered_with_the_reason() -> None:
    """503 for a probe, and words for the person who looks why."""
    ill = well(beat_s=0.0)
    assert ask("/healthz", well()) == (200, "ok")
    assert ask("/healthz", ill) == (503, "the loop stands still for 10000 s")
    assert ask("/readyz", ill) == (200, "ok")
    assert ask("/readyz", well(), "the store is away") == (503, "the store is away")
    assert ask("/healthz", well(), "the store is away") == (200, "ok")


def test_metrics_are_served() -> None:
    """Whatever the probes say."""
    status, text = ask("/metrics", well(beat_s=0.0), "not yet")
    assert status == 200
    assert "trainingplan_build_info{" in text


def test_metrics_are_served_by_name() -> None:
    """As Prometheus may ask for some of them."""
    name = "trainingplan_leader"
    _, text = ask(f"/metrics?name[]={name}", well())
    assert {line.split("{")[0].split()[0] for line in samples(text)} == {name}


def samples(text: str) -> list[str]:
    """Lines that hold a number."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@dataclass(eq=False)
class Slow(Collector):
    """Metrics that take long to write, as those of thousands of plans do."""

    began: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def collect(self) -> Iterator[Metric]:
        """Tell nothing, late."""
        self.began.set()
        self.may_end.wait(SLOW_S)
        return iter(())


def test_probes_are_answered_while_metrics_are_written() -> None:
    """The loop goes on meanwhile."""

    async def work() -> None:
        registry, slow = CollectorRegistry(), Slow()
        registry.register(slow)
        app = health_app(well, lambda: "", registry, lambda: NOW_S)
        async with TestClient(TestServer(app)) as client:
            written = asyncio.create_task(client.get("/metrics"))
            await asyncio.to_thread(slow.began.wait)
            reply = await client.get("/readyz")
            assert reply.status == 200
            assert not written.done()
            slow.may_end.set()
            assert (await written).status == 200

    asyncio.run(work())
