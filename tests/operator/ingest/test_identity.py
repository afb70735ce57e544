"""Who tells: what of tokens, pods, Jobs and plans makes a reporter."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll_operator import names
from plimsoll_operator.errors import ApiDownError, RefusedReportError
from plimsoll_operator.ingest.identity import (
    LONGEST_TOKEN,
    TOKEN_KNOWN_S,
    Identities,
    Reporter,
)
from plimsoll_operator.kube.api import JOBS, PLANS, PODS, TOKEN_REVIEWS
from plimsoll_operator.rules.observed_state import TaskKind
from tests.support.reporting_pods import (
    PLAN_UID,
    POD_UID_0,
    ClusterInMemory,
    a_reporter,
    a_review,
)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        """Begin somewhere."""
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Time."""
        return self.now_s


def identities(cluster: ClusterInMemory, clock: Clock | None = None) -> Identities:
    """Identification of reporters, on a clock of the test."""
    clock = clock or Clock()
    return Identities(cluster, now=clock, clock=clock)


async def reporter_of(known: Identities, sent: str = "good") -> Reporter:
    """Owner of a token."""
    return await known.reporter(await known.bearer(sent))


def who(cluster: ClusterInMemory, sent: str = "good") -> Reporter:
    """Owner of a token, asked for the first time."""
    return asyncio.run(reporter_of(identities(cluster), sent))


def refused(cluster: ClusterInMemory, sent: str = "good") -> tuple[int, str]:
    """With which status and text a token is refused."""
    with pytest.raises(RefusedReportError) as found:
        who(cluster, sent)
    return found.value.status, str(found.value)


def test_a_pod_is_told_by_its_token() -> None:
    """Everything else is read from the objects that control the pod."""
    assert who(ClusterInMemory()) == a_reporter(subject=a_subject())


def a_subject() -> str:
    """Subject of the Job in memory."""
    return str(
        ClusterInMemory().job["metadata"]["annotations"][names.SUBJECT_ANNOTATION]
    )


def test_what_a_job_says_of_itself_is_passed_on() -> None:
    """Kind, subject, attempt, cause, and which of its pods it is."""
    cluster = ClusterInMemory(TaskKind.PROFILE, "sha256:ab")
    cluster.job["metadata"]["annotations"][names.AFTER_ANNOTATION] = "12.5"
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    cluster.pod["metadata"]["annotations"] = index
    found = who(cluster)
    assert (found.kind, found.subject, found.attempt) == ("profile", "sha256:ab", 0)
    assert (found.after_s, found.pod_index) == (12.5, 3)


@pytest.mark.parametrize("sent", ["", "unknown", "x" * (LONGEST_TOKEN + 1)])
def test_no_token_for_us_is_a_401(sent: str) -> None:
    """Also one that no API server should be bothered with."""
    cluster = ClusterInMemory()
    assert refused(cluster, sent) == (
        401,
        "no valid token of the audience plimsoll.dev was sent",
    )
    assert cluster.asked[TOKEN_REVIEWS.plural] == (sent == "unknown")


def test_a_token_of_no_pod_is_a_403() -> None:
    """A person's token of the same account says nothing for a pod."""
    cluster = ClusterInMemory()
    cluster.tokens["good"] = a_review("", "")
    assert refused(cluster) == (403, "the token of team/default is not bound to a pod")


def test_a_pod_that_is_gone_tells_nothing() -> None:
    """Neither does its token for the pod that has its name now."""
    cluster = ClusterInMemory()
    cluster.pod["metadata"]["uid"] = "another"
    assert refused(cluster) == (403, "the pod tiny-train-1-0 is gone")
    cluster.drop(PODS, cluster.pod)
    assert refused(cluster) == (403, "the pod tiny-train-1-0 is gone")


def test_a_pod_that_is_being_deleted_may_tell() -> None:
    """Its end above all."""
    cluster = ClusterInMemory()
    cluster.pod["metadata"]["deletionTimestamp"] = "2026-11-21T09:30:00Z"
    cluster.pod["status"] = {"phase": "Running"}
    assert who(cluster).pod_uid == POD_UID_0


def test_a_pod_that_ended_long_ago_is_a_403() -> None:
    """Whoever speaks with its token then is not the pod."""
    cluster = ClusterInMemory()
    state = {"terminated": {"finishedAt": "1970-01-01T00:10:00Z"}}
    cluster.pod["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [{"state": state}],
    }
    assert refused(cluster) == (403, "the pod tiny-train-1-0 has ended")


def test_only_what_a_plan_controls_is_ours() -> None:
    """An owner that does not control, of another kind or group, is none."""
    for change, said in (
        ({"controller": False}, "no TrainingPlan controls the Job tiny-train-1"),
        ({"kind": "Deployment"}, "no TrainingPlan controls the Job tiny-train-1"),
        ({"apiVersion": "x/v1"}, "no TrainingPlan controls the Job tiny-train-1"),
        ({"name": "other"}, "no TrainingPlan controls the Job tiny-train-1"),
        ({"uid": "forged"}, "the TrainingPlan tiny is gone"),
    ):
        cluster = ClusterInMemory()
        cluster.job["metadata"]["ownerReferences"][0].update(change)
        assert refused(cluster) == (403, said)
    cluster = ClusterInMemory()
    cluster.pod["metadata"]["ownerReferences"] = []
    assert refused(cluster) == (403, "no Job controls the pod tiny-train-1-0")
    cluster = ClusterInMemory()
    cluster.drop(PLANS, cluster.plan)
    assert refused(cluster) == (403, "the TrainingPlan tiny is gone")
    cluster = ClusterInMemory()
    cluster.job["metadata"]["uid"] = "another"
    assert refused(cluster) == (403, "the Job tiny-train-1 is gone")


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("labels", names.TASK_LABEL, "sail"),
        ("labels", names.ATTEMPT_LABEL, "first"),
        ("labels", names.ATTEMPT_LABEL, "0"),
        ("annotations", names.AFTER_ANNOTATION, "nan"),
        ("annotations", names.AFTER_ANNOTATION, "inf"),
        ("annotations", names.AFTER_ANNOTATION, "-1"),
        ("annotations", names.AFTER_ANNOTATION, "yesterday"),
    ],
)
def test_a_job_that_nobody_of_us_made_is_refused(
    part: str, name: str, value: str
) -> None:
    """Its labels and annotations are read, not believed."""
    cluster = ClusterInMemory()
    cluster.job["metadata"][part][name] = value
    status, text = refused(cluster)
    assert status == 403
    assert "the Job tiny-train-1" in text


@pytest.mark.parametrize("index", ["-1", "1.5", "", "²"])
def test_a_pod_has_a_whole_number_as_index(index: str) -> None:
    """Anything else is no pod of an indexed Job."""
    cluster = ClusterInMemory()
    name = "batch.kubernetes.io/job-completion-index"
    cluster.pod["metadata"]["annotations"] = {name: index}
    assert refused(cluster) == (403, "the pod tiny-train-1-0 has no index")


def test_pods_at_the_same_time_cost_one_review() -> None:
    """One token is reviewed once a minute, however often it comes."""
    cluster, clock = ClusterInMemory(), Clock()

    async def work() -> None:
        known = identities(cluster, clock)
        for _ in range(2):
            await asyncio.gather(*(reporter_of(known) for _ in range(20)))
        assert cluster.asked == {
            "tokenreviews": 1,
            "pods": 1,
            "jobs": 1,
            "trainingplans": 1,
        }
        clock.now_s += TOKEN_KNOWN_S / 2
        await reporter_of(known)
        assert (cluster.asked["tokenreviews"], cluster.asked["pods"]) == (1, 2)
        clock.now_s += TOKEN_KNOWN_S / 2
        await reporter_of(known)
        assert (cluster.asked["tokenreviews"], cluster.asked["pods"]) == (2, 3)

    asyncio.run(work())


def test_a_refusal_is_kept_shortly() -> None:
    """A token that was expired when its clock was ahead is asked for again soon."""
    cluster, clock = ClusterInMemory(), Clock()

    async def work() -> None:
        known = identities(cluster, clock)
        for _ in range(5):
            with pytest.raises(RefusedReportError):
                await known.bearer("late")
        assert cluster.asked["tokenreviews"] == 1
        cluster.tokens["late"] = cluster.tokens["good"]
        clock.now_s += 11
        assert (await known.bearer("late")).pod_uid == POD_UID_0

    asyncio.run(work())


def test_an_api_server_that_is_away_refuses_nobody() -> None:
    """The pod is told to come again, and is known at once then."""
    cluster = ClusterInMemory()

    async def work() -> None:
        known = identities(cluster)
        cluster.is_down = True
        with pytest.raises(ApiDownError):
            await reporter_of(known)
        cluster.is_down = False
        assert (await reporter_of(known)).plan_uid == PLAN_UID

    asyncio.run(work())


def test_one_who_goes_away_leaves_the_others_their_answer() -> None:
    """Whoever asked first may be cancelled; what was asked is answered."""
    cluster = ClusterInMemory()

    async def work() -> None:
        known = identities(cluster)
        first = asyncio.create_task(known.bearer("good"))
        await asyncio.sleep(0)
        second = asyncio.create_task(known.bearer("good"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).pod_uid == POD_UID_0
        assert cluster.asked["tokenreviews"] == 1

    asyncio.run(work())


def test_a_token_speaks_for_its_namespace_alone() -> None:
    """The same names in another namespace are other objects."""
    cluster = ClusterInMemory()
    elsewhere = a_review("tiny-train-1-0", POD_UID_0)
    elsewhere["user"]["username"] = "system:serviceaccount:elsewhere:default"
    cluster.tokens["foreign"] = elsewhere
    assert refused(cluster, "foreign") == (403, "the pod tiny-train-1-0 is gone")


def test_a_deleted_job_is_noticed_within_a_minute() -> None:
    """A Job is remembered for its whole gang, but not for ever."""
    cluster, clock = ClusterInMemory(), Clock()

    async def work() -> None:
        known = identities(cluster, clock)
        await reporter_of(known)
        cluster.drop(JOBS, cluster.job)
        clock.now_s += 61
        with pytest.raises(RefusedReportError, match="the Job tiny-train-1 is gone"):
            await reporter_of(known)

    asyncio.run(work())
