"""What is taken from events of the watches, and how kopf is to watch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.control.watching import (
    PAUSE_S,
    RENEW_S,
    Logins,
    registry_for,
    settings_for,
)
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.names import PLAN_LABEL
from plimsoll_planner.records.task import TaskKind
from tests.support.cluster_objects import JOB_UID, OWNER, a_job, a_plan_manifest
from tests.support.kubeconfigs import a_kubeconfig, give

KEY = ("team", "tiny")


class Ears:
    """Handlers of both watches, and what they passed on."""

    def __init__(self) -> None:
        """Hear of nothing yet."""
        self.plans: list[tuple[tuple[str, str], str, str, bool]] = []
        self.owned: list[tuple[tuple[str, str], str, str, str]] = []
        registry: Any = registry_for(
            lambda *seen: self.plans.append(seen),
            lambda *seen: self.owned.append(seen),
            Logins(""),
        )
        found = registry._watching.get_all_handlers()
        self.handlers = {
            one.selector.any_name or one.selector.plural: one for one in found
        }

    def hear(self, plural: str, kind: str | None, found: dict[str, Any]) -> None:
        """Bring an event; kopf gives more than anybody asks for."""
        event = {"type": kind, "object": found}
        asyncio.run(self.handlers[plural].fn(event=event, body=found, memo=None))


@pytest.mark.parametrize(
    ("kind", "is_deleted"),
    [(None, False), ("ADDED", False), ("MODIFIED", False), ("DELETED", True)],
)
def test_every_event_of_a_plan_counts(kind: str | None, is_deleted: bool) -> None:
    """Also those of the first list, which have no type; with the version they show."""
    ears = Ears()
    ears.hear("trainingplans", kind, a_plan_manifest(resourceVersion="77"))
    assert ears.plans == [(KEY, OWNER.uid, "77", is_deleted)]
    assert ears.owned == []


@pytest.mark.parametrize("kind", [None, "ADDED", "MODIFIED", "DELETED"])
def test_an_event_of_a_job_is_one_of_its_plan(kind: str | None) -> None:
    """Its label names the plan, whatever became of the Job."""
    ears = Ears()
    job = a_job(TaskKind.TRAIN, "1", resourceVersion="77")
    ears.hear("jobs", kind, job)
    assert ears.owned == [(KEY, JOB_UID, "77", "jobs")]
    assert ears.plans == []


@pytest.mark.parametrize("labels", [{}, {PLAN_LABEL: ""}])
def test_a_job_without_a_plan_is_nobodys(labels: dict[str, str]) -> None:
    """Somebody has taken its label away."""
    ears = Ears()
    ears.hear("jobs", "MODIFIED", a_job(labels=labels))
    assert ears.owned == []


def test_nothing_is_watched_but_plans_and_jobs() -> None:
    """Each needs rights that the chart gives."""
    assert set(Ears().handlers) == {"trainingplans", "jobs"}


def test_kopf_watches_and_does_nothing_else() -> None:
    """No peering and no Events; of all Jobs in a cluster those with our label."""
    settings: Any = settings_for()
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    [(selector, wanted)] = settings.watching.label_selectors.items()
    assert (selector.group, selector.any_name, wanted) == ("batch", "jobs", PLAN_LABEL)


def test_kopf_takes_thousands_of_objects_with_few_tasks() -> None:
    """It would keep one for each object for seconds, all of them at once at the start.

    A task that waits for more events of its object keeps its place meanwhile: as many
    objects a second pass as there are places, divided by that wait.
    """
    queueing: Any = settings_for().queueing
    assert queueing.worker_limit <= 100
    assert queueing.worker_limit / queueing.idle_timeout >= 500


def pauses_of(monkeypatch: pytest.MonkeyPatch, folder: Path, token: str) -> list[float]:
    """Pauses of logins, with a token that comes while one waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        give(folder, token)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


def test_a_login_that_was_refused_is_not_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the token is another one by now; what is there after a pause is taken."""
    logins = Logins(str(a_kubeconfig(tmp_path, "https://a")), clock=lambda: 0.0)
    pauses = pauses_of(monkeypatch, tmp_path, "third")

    async def tokens() -> list[str | None]:
        found = [(await logins.next()).token]
        give(tmp_path, "second")
        return [*found, *[(await logins.next()).token for _ in range(2)]]

    assert asyncio.run(tokens()) == ["old", "second", "third"]
    assert pauses == [PAUSE_S]


def test_a_login_that_has_run_out_is_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same token serves on; kopf takes it, for it is to last until another time."""
    now_s = iter((0.0, RENEW_S, RENEW_S))
    file = a_kubeconfig(tmp_path, "https://a")
    logins = Logins(str(file), clock=lambda: next(now_s))
    pauses = pauses_of(monkeypatch, tmp_path, "other")

    async def twice() -> None:
        first, second = await logins.next(), await logins.next()
        assert (first.scheme, first.token) == (second.scheme, second.token)
        assert (first.server, first.scheme) == ("https://a", "Bearer")
        assert first.expiration is not None
        assert second.expiration is not None
        assert second.expiration > first.expiration

    asyncio.run(twice())
    assert pauses == []


def test_a_login_without_a_cluster_says_what_to_set(tmp_path: Path) -> None:
    """Whoever runs it at home has forgotten the file."""
    with pytest.raises(ClusterError, match="run in a pod, or set KUBECONFIG"):
        asyncio.run(Logins(str(tmp_path / "none")).next())
