"""What pods say: what they wait for, how they ended, which nodes are lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_operator.objects.pods import (
    disruption_in,
    ending_of_pods,
    index_of,
    lost_nodes_text,
    unreachable_s,
    waiting_text,
)
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.task import End
from tests.support.cluster_objects import (
    LATER,
    LATER_S,
    a_pod,
    an_end,
    condition,
    terminated,
    termination_message,
    waits,
)
from tests.support.nodes import a_node

CONTAINER = "trainer"
MINUTE_S = 60.0
EVICTED = condition(
    "DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting"
)
LOST = "plimsoll: rank 1: another rank went away in forward: the first rank .."


def ending(
    *pods: dict[str, Any], ends: dict[str, StoredEnd] | None = None
) -> tuple[Ending, str]:
    """Ending of a Job, and its reason."""
    return ending_of_pods(pods, ends or {}, CONTAINER)[:2]


def stored(place: int, end: End) -> dict[str, StoredEnd]:
    """The report of one pod."""
    return {f"uid-of-pod-{place}": StoredEnd(place=place, end=end)}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([], "0 of 2 pods run"),
        ([a_pod(0), a_pod(1, phase="Pending")], "1 of 2 pods run"),
        (
            [
                a_pod(1, waits("ErrImagePull", "not found")),
                a_pod(
                    0,
                    conditions=(
                        condition(
                            "PodScheduled",
                            "False",
                            reason="Unschedulable",
                            message="0/3 nodes",
                        ),
                    ),
                ),
            ],
            "tiny-train-1-0: 0/3 nodes",
        ),
        (
            [a_pod(0), a_pod(1, waits("ImagePullBackOff", "back-off\npulling"))],
            "tiny-train-1-1: trainer: ImagePullBackOff: back-off\\npulling",
        ),
        ([a_pod(0, waits("ContainerCreating"))], "1 of 2 pods run"),
        ([a_pod(0, waits("CreateContainerConfigError"))], "tiny-train-1-0: trainer: "),
        (
            [
                a_pod(
                    0, conditions=(condition("PodScheduled", "False", reason="Gated"),)
                )
            ],
            "tiny-train-1-0: Gated",
        ),
    ],
)
def test_a_pod_that_waits_says_for_what(pods: list[Any], text: str) -> None:
    """In the words of the scheduler or the kubelet, and of the first pod that says so.

    Pods come in any order.
    """
    assert waiting_text(pods, 2).startswith(text)


def test_a_container_that_prepares_a_pod_may_be_what_is_waited_for() -> None:
    """Ours copies the trainer: where its image is missing, nothing begins."""
    preparing = [waits("ErrImagePull", "no such image", name="plimsoll-code")]
    pod = a_pod(
        0, waits("PodInitializing"), status={"initContainerStatuses": preparing}
    )
    assert waiting_text([pod], 1) == (
        "tiny-train-1-0: plimsoll-code: ErrImagePull: no such image"
    )


@pytest.mark.parametrize(
    ("state", "expected", "line"),
    [
        (
            terminated(137, reason="OOMKilled"),
            Ending.HOST_OUT_OF_MEMORY,
            "process 0 was killed by the kernel",
        ),
        (
            terminated(137, reason="Error"),
            Ending.DISRUPTED,
            "process 0 was ended by SIGKILL",
        ),
        (
            terminated(143, reason="Error"),
            Ending.DISRUPTED,
            "process 0 was ended by SIGTERM",
        ),
        (
            terminated(139, reason="Error"),
            Ending.APPLICATION_ERROR,
            "process 0 was ended by SIGSEGV",
        ),
        (
            terminated(168, reason="Error"),
            Ending.APPLICATION_ERROR,
            "process 0 was ended by signal 40",
        ),
        (
            terminated(128, reason="StartError", message="exec: no such file"),
            Ending.APPLICATION_ERROR,
            "StartError: exec: no such file",
        ),
        (
            terminated(127, reason="ContainerCannotRun", message="no python3"),
            Ending.APPLICATION_ERROR,
            "ContainerCannotRun: no python3",
        ),
        (
            terminated(1, reason="Error", message="Traceback\nValueError: no data\n\n"),
            Ending.APPLICATION_ERROR,
            "Error: ValueError: no data",
        ),
        (terminated(255), Ending.APPLICATION_ERROR, "process 0 ended with status 255"),
        (
            terminated(3_221_225_477),
            Ending.APPLICATION_ERROR,
            "process 0 ended with status 255",
        ),
        (
            terminated(-1, finishedAt=None),
            Ending.APPLICATION_ERROR,
            "process 0 ended with status 1",
        ),
        (terminated(ExitCode.DEVICE_OUT_OF_MEMORY), Ending.OUT_OF_MEMORY, ""),
        (terminated(ExitCode.FOREIGN_FINGERPRINT), Ending.FOREIGN_FINGERPRINT, ""),
        (terminated(ExitCode.BAD_WORKLOAD), Ending.BAD_WORKLOAD, ""),
        (terminated(ExitCode.INCOMPATIBLE), Ending.INCOMPATIBLE, ""),
        (terminated(ExitCode.UNUSABLE_CHECKPOINT), Ending.UNUSABLE_CHECKPOINT, ""),
        (terminated(ExitCode.CHECKPOINTED), Ending.CHECKPOINTED, ""),
    ],
)
def test_the_exit_code_of_a_container_says_how_it_ended(
    state: dict[str, Any], expected: Ending, line: str
) -> None:
    """Where its first process could not tell: it never began, or was killed."""
    found, why = ending(a_pod(0, state, phase="Failed"))
    assert found is expected
    assert why.startswith(line)


def test_a_termination_message_says_more_than_the_exit_code() -> None:
    """A process that the kernel killed is reported by its supervisor."""
    end = an_end(-9, 0, host_was_full=True)
    state = terminated(137, reason="Error", message=termination_message(end))
    assert ending(a_pod(0, state, phase="Failed"))[0] is Ending.HOST_OUT_OF_MEMORY


def test_what_a_pod_told_us_counts_more_than_what_it_left() -> None:
    """Its message may be cut; it reported the same in full."""
    pod = a_pod(0, terminated(1, message="{"), phase="Failed")
    assert ending(pod)[0] is Ending.APPLICATION_ERROR
    full = stored(0, an_end(ExitCode.DEVICE_OUT_OF_MEMORY))
    assert ending(pod, ends=full)[0] is Ending.OUT_OF_MEMORY


def test_pods_that_are_gone_have_told_their_end() -> None:
    """After an eviction nothing is left of them but that."""
    ends = stored(0, an_end(84, was_stopped=True)) | stored(1, an_end(84))
    assert ending(ends=ends) == (Ending.CHECKPOINTED, "")
    assert ending() == (Ending.DISRUPTED, "its pods are gone, and reported nothing")


def test_the_newest_pod_of_a_place_says_how_it_ended() -> None:
    """A queue takes pods away and puts new ones there, within one attempt."""
    saved, done = an_end(84, was_stopped=True), an_end(0)
    ends = {
        "taken-away": StoredEnd(place=0, end=saved),
        "uid-of-pod-0": StoredEnd(place=0, end=done),
    }
    assert ending(ends=ends)[0] is Ending.DONE
    pod = a_pod(0, terminated(0), phase="Succeeded")
    later = {name: ends[name] for name in reversed(ends)}
    assert ending(pod, ends=later)[0] is Ending.DONE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_pod_that_failed_first_says_why(order: tuple[int, int]) -> None:
    """Pods are listed in any order, and the others fail because one did."""
    ends = [
        an_end(1, at_s=LATER_S + 5, first=0, message="second"),
        an_end(1, at_s=LATER_S, first=0),
    ]
    pods = [
        a_pod(
            place,
            terminated(1, message=termination_message(ends[place])),
            phase="Failed",
        )
        for place in order
    ]
    _, _, end = ending_of_pods(pods, {}, CONTAINER)
    assert end is not None
    assert end.first == 1
    assert [one.status for one in end.exits] == [1, 1]


def test_a_container_that_told_nothing_may_have_failed_first() -> None:
    """It never began; the other pod's rank then met nobody and failed as well."""
    first = a_pod(
        1, terminated(128, reason="StartError", message="no python3"), phase="Failed"
    )
    later = an_end(1, at_s=LATER_S + 30, first=0)
    second = a_pod(0, terminated(1, message=termination_message(later)), phase="Failed")
    assert ending(second, first)[1] == "StartError: no python3"


def test_what_other_pods_lost_is_not_the_cause() -> None:
    """Rank 1 says that another one went away: that one was killed."""
    lost = End(at_s=LATER_S, exits=(*an_end(1).exits,), first=0)
    lost = End.from_json(
        lost.to_json() | {"exits": [{"status": 1, "said": LOST}]}, "End"
    )
    killed = a_pod(0, terminated(137), phase="Failed")
    other = a_pod(1, terminated(1, message=termination_message(lost)), phase="Failed")
    assert ending(killed, other) == (
        Ending.DISRUPTED,
        "process 0 was ended by SIGKILL",
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (terminated(143), Ending.DISRUPTED),
        (terminated(1), Ending.DISRUPTED),
        (terminated(ExitCode.CHECKPOINTED), Ending.DISRUPTED),
        (terminated(ExitCode.DEVICE_OUT_OF_MEMORY), Ending.OUT_OF_MEMORY),
        (terminated(137, reason="OOMKilled"), Ending.HOST_OUT_OF_MEMORY),
    ],
)
def test_a_disruption_explains_all_but_a_lack_of_memory(
    status: dict[str, Any], expected: Ending
) -> None:
    """A pod that is evicted ends in many ways; a full device is none of them."""
    pod = a_pod(0, status, phase="Failed", conditions=(EVICTED,))
    found, why = ending(pod)
    assert found is expected
    if found is Ending.DISRUPTED:
        assert why == ("tiny-train-1-0: EvictionByEvictionAPI: Eviction API: evicting")


def test_a_pod_that_a_node_refused_is_disrupted() -> None:
    """It never ran: there are no containers, and the pod itself says why."""
    status = {"reason": "UnexpectedAdmissionError", "message": "no device left"}
    pod = a_pod(0, phase="Failed", status=status)
    assert ending(pod) == (
        Ending.DISRUPTED,
        "tiny-train-1-0: UnexpectedAdmissionError: no device left",
    )


def test_a_pod_whose_node_is_gone_is_not_done() -> None:
    """What prepared it has ended well, and of the rest nobody knows."""
    prepared = [terminated(0, name="plimsoll-code")]
    running = {"name": CONTAINER, "state": {"running": {}}}
    pod = a_pod(0, running, phase="Failed", status={"initContainerStatuses": prepared})
    assert ending(pod) == (
        Ending.DISRUPTED,
        "process 0 was ended by SIGTERM",
    )


def test_a_container_beside_ours_is_named_where_it_failed() -> None:
    """Also where ours has reported that all is done: the Job has failed over it."""
    sidecar = terminated(3, name="proxy", reason="Error", message="no route")
    pod = a_pod(0, sidecar, terminated(0), phase="Failed")
    for ends in ({}, stored(0, an_end(0))):
        assert ending(pod, ends=ends) == (
            Ending.APPLICATION_ERROR,
            "proxy: Error: no route",
        )


def test_all_done_is_done() -> None:
    """With or without a word from the pods."""
    pods = [a_pod(place, terminated(0), phase="Succeeded") for place in range(2)]
    assert ending(*pods) == (Ending.DONE, "")
    ends = stored(0, an_end(0)) | stored(1, an_end(0))
    assert ending(*pods, ends=ends) == (Ending.DONE, "")


@pytest.mark.parametrize(
    ("node", "away_s", "is_fenced"),
    [
        (a_node("a"), 0.0, False),
        (a_node("b"), 0.0, True),
        (
            a_node(
                "a",
                conditions=[condition("Ready", "Unknown", lastTransitionTime=LATER)],
            ),
            MINUTE_S,
            True,
        ),
        (
            a_node(
                "a",
                conditions=[condition("Ready", "Unknown", lastTransitionTime=LATER)],
            ),
            MINUTE_S - 1,
            False,
        ),
        (
            a_node(
                "a", conditions=[condition("Ready", "False", lastTransitionTime=LATER)]
            ),
            10 * MINUTE_S,
            False,
        ),
        (a_node("a", conditions=[]), 10 * MINUTE_S, False),
    ],
)
def test_nobody_waits_for_pods_of_a_node_that_is_lost(
    node: dict[str, Any], away_s: float, is_fenced: bool
) -> None:
    """It is gone, or has not been heard of for as long as the plan allows."""
    pod = a_pod(0, deletionTimestamp=LATER)
    found = lost_nodes_text([pod], [node], now_s=LATER_S + away_s, node_lost_s=MINUTE_S)
    assert bool(found) is is_fenced
    if found:
        assert found == "node a has been out of reach for 60 s"


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [a_pod(0, phase="Failed", deletionTimestamp=LATER)],
        [a_pod(0)],
        [a_pod(0, deletionTimestamp=LATER), a_pod(1)],
        [a_pod(0, deletionTimestamp=LATER) | {"spec": {}}],
    ],
)
def test_pods_that_may_still_end_by_themselves_are_waited_for(pods: list[Any]) -> None:
    """Nothing is fenced that nobody has asked to end, or that no node has taken."""
    assert lost_nodes_text(pods, [], now_s=LATER_S, node_lost_s=MINUTE_S) == ""


def test_the_index_of_a_pod_survives_those_who_edit_it() -> None:
    """It is an annotation; a person may write anything there."""
    assert index_of(a_pod(3)) == 3
    for notes in ({}, None, {"batch.kubernetes.io/job-completion-index": "x"}):
        assert index_of(a_pod(3, annotations=notes)) == 0


STATES = st.dictionaries(
    st.sampled_from(["terminated", "waiting", "running"]),
    st.fixed_dictionaries(
        {},
        optional={
            "exitCode": st.integers(-(2**31), 2**32),
            "reason": st.sampled_from(["OOMKilled", "Error", ""]),
            "message": st.text() | st.just(termination_message(an_end(1))),
            "finishedAt": st.sampled_from([LATER, None]),
        },
    ),
)
STATUSES = st.lists(
    st.fixed_dictionaries(
        {}, optional={"name": st.sampled_from([CONTAINER, "b"]), "state": STATES}
    ),
    max_size=3,
)
CONDITIONS = st.lists(
    st.dictionaries(
        st.sampled_from(["type", "status", "reason", "message"]),
        st.sampled_from(["DisruptionTarget", "PodScheduled", "Ready", "True", "False"]),
    ),
    max_size=3,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("p"), "uid": st.sampled_from(["a", "b", "c"])},
            optional={"deletionTimestamp": st.just(LATER)},
        )
    },
    optional={
        "spec": st.dictionaries(st.just("nodeName"), st.just("a")),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
                "reason": st.just("Evicted"),
                "conditions": CONDITIONS,
                "containerStatuses": STATUSES,
                "initContainerStatuses": STATUSES,
            },
        ),
    },
)


@given(st.lists(PODS, max_size=3), CONDITIONS)
def test_whatever_pods_leave_out_is_not_missed(
    pods: list[dict[str, Any]], conditions: list[dict[str, Any]]
) -> None:
    """Every look ends in words that a status can hold, and in one of the endings."""
    assert len(waiting_text(pods, 3)) <= 1024
    found, why, _ = ending_of_pods(pods, {}, CONTAINER)
    assert isinstance(found, Ending)
    assert len(why) <= 1024
    assert isinstance(disruption_in(pods), str)
    node = a_node("a", conditions=conditions)
    assert unreachable_s(node, LATER_S) == 0.0
    lost_nodes_text(pods, [node], now_s=LATER_S, node_lost_s=MINUTE_S)
