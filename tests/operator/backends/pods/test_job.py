"""Jobs as a back end: what the server is asked for, and where ranks meet."""

from __future__ import annotations

from plimsoll_operator.backends.pods.job import JobBackend
from tests.support.cluster_objects import OWNER, a_job


def test_a_job_runs_once() -> None:
    """Its pods are not replaced; all of them run at a time."""
    spec = a_job(num_pods=3)["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 3, 3)


def test_ranks_meet_in_the_first_pod_of_their_attempt() -> None:
    """By its name in the Service of the plan."""
    meeting = JobBackend.meeting_point(OWNER, 12)
    assert meeting == "tiny-train-12-0.tiny-ranks:29500"
