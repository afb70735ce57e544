"""The objects of a plan: their names, their owner, and what they hold."""

from __future__ import annotations

import base64
import gzip

import pytest

from plimsoll_operator.names import (
    AFTER_ANNOTATION,
    ATTEMPT_LABEL,
    PLAN_LABEL,
    SUBJECT_ANNOTATION,
    TASK_LABEL,
)
from plimsoll_operator.objects.manifests import (
    QUEUE_LABEL,
    Owner,
    config_map,
    object_name,
    packed,
    service_of,
    task_metadata,
)
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.task import TaskKind
from tests.support.builders import a_plan
from tests.support.cluster_objects import OWNER

DIGEST = "sha256:" + "0123456789abcdef" * 4
LONGEST_NAME = Owner(namespace="team", name="a" * 40, uid="u")
MOST_OF_A_POD_NAME = 63
"""Of a host name: `<job>-<index>`."""


def test_names_follow_from_plan_and_subject() -> None:
    """A digest is cut, a number is not."""
    assert object_name(OWNER, TaskKind.PROFILE, DIGEST) == "tiny-profile-01234567"
    assert object_name(OWNER, TaskKind.TRAIN, "12") == "tiny-train-12"


@pytest.mark.parametrize(
    ("kind", "subject", "index"),
    [
        (TaskKind.PROFILE, DIGEST, 99999),
        (TaskKind.REPLAY, DIGEST, 99999),
        (TaskKind.REHEARSAL, DIGEST, 0),
        (TaskKind.TRAIN, "999", 99999),
    ],
)
def test_the_longest_name_of_a_plan_makes_host_names(
    kind: TaskKind, subject: str, index: int
) -> None:
    """With five digits of an index: of the largest gangs; a rehearsal has one pod."""
    name = object_name(LONGEST_NAME, kind, subject)
    assert len(f"{name}-{index}") <= MOST_OF_A_POD_NAME
    assert len(LONGEST_NAME.service) <= MOST_OF_A_POD_NAME


def test_an_object_names_its_owner() -> None:
    """What it works on stands in full."""
    meta = task_metadata(OWNER, TaskKind.REPLAY, DIGEST, after_s=1.25)
    assert OWNER.owns({"metadata": meta})
    assert meta["labels"] == {PLAN_LABEL: "tiny", TASK_LABEL: "replay"}
    assert meta["annotations"] == {
        SUBJECT_ANNOTATION: DIGEST,
        AFTER_ANNOTATION: "1.25",
    }


def test_a_gang_has_its_attempt_and_its_queue() -> None:
    """Kueue admits by a label; without a queue there is none."""
    meta = task_metadata(OWNER, TaskKind.TRAIN, "2", queue="research")
    assert meta["labels"][ATTEMPT_LABEL] == "2"
    assert meta["labels"][QUEUE_LABEL] == "research"
    plain = task_metadata(OWNER, TaskKind.TRAIN, "2")
    assert QUEUE_LABEL not in plain["labels"]


def test_ranks_find_each_other_before_they_are_ready() -> None:
    """They meet while they load."""
    service = service_of(OWNER)
    assert service["metadata"]["name"] == OWNER.service
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {PLAN_LABEL: "tiny", TASK_LABEL: "train"}


@pytest.mark.parametrize(
    "references",
    [
        [],
        [{"uid": OWNER.uid}],
        [{"uid": OWNER.uid, "controller": False}],
        [{"uid": "another", "controller": True}],
    ],
)
def test_only_what_a_plan_controls_is_its_own(
    references: list[dict[str, object]],
) -> None:
    """A plan of the same name that was deleted had another uid."""
    assert not OWNER.owns({"metadata": {"ownerReferences": references}})
    assert not OWNER.owns({"metadata": {}})
    assert OWNER.owns({"metadata": {"ownerReferences": [OWNER.reference]}})


def test_documents_are_packed_the_same_each_time() -> None:
    """A ConfigMap that is made twice is the same one."""
    data = packed(plan=a_plan())
    assert packed(plan=a_plan()) == data
    text = gzip.decompress(base64.b64decode(data["plan.json.gz"])).decode()
    assert from_text(text, HybridPlan) == a_plan()
    made = config_map(OWNER, "plan", "3", data, note="kept")
    assert made["metadata"]["labels"][ATTEMPT_LABEL] == "3"
    assert made["metadata"]["annotations"] == {"note": "kept"}
    by_digest = config_map(OWNER, "replay", DIGEST, data)
    assert ATTEMPT_LABEL not in by_digest["metadata"]["labels"]
