"""What objects of the API server say of who tells."""

from __future__ import annotations

import math
from typing import Any

import pytest

from plimsoll_operator.ingest.assignments import (
    FINISHED_S,
    Bearer,
    bearer_in,
    may_tell_until_s,
)
from tests.support.reporting_pods import NAMESPACE, a_review


@pytest.mark.parametrize(
    "parts",
    [
        {"authenticated": False},
        {"audiences": []},
        {"audiences": None},
        {"audiences": ["kubernetes.default.svc"]},
        {"user": {"username": "system:admin"}},
    ],
)
def test_a_review_that_is_not_for_us_is_no_bearer(parts: dict[str, Any]) -> None:
    """An API server that names no audience has said yes for itself, not for us."""
    assert bearer_in({"status": a_review("pod", "uid")}) is not None
    assert bearer_in({"status": a_review("pod", "uid", **parts)}) is None
    assert bearer_in({}) is None


def test_a_pod_may_tell_for_a_while_after_its_end() -> None:
    """From the last of its containers on; never where nobody heard of their end."""
    ended = {"terminated": {"finishedAt": "1970-01-01T00:10:00Z"}}
    later = {"terminated": {"finishedAt": "1970-01-01T00:10:05Z"}}
    for states, until_s in (
        ([ended, later], 605 + FINISHED_S),
        ([ended, {"running": {}}], 0.0),  # its node is lost
        ([], 0.0),
    ):
        containers = [{"state": state} for state in states]
        status = {"phase": "Failed", "containerStatuses": containers}
        assert may_tell_until_s({"status": status}) == until_s
    assert may_tell_until_s({"status": {"phase": "Running"}}) == math.inf
    assert may_tell_until_s({}) == math.inf


def test_a_bearer_names_what_the_token_was_made_for() -> None:
    """Names with colons do not exist; the account is what follows the namespace."""
    assert bearer_in({"status": a_review("pod", "uid")}) == Bearer(
        namespace=NAMESPACE,
        service_account="default",
        pod_name="pod",
        pod_uid="uid",
    )
