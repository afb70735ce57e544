"""What the pods of a Job say: what they wait for, how they ended, who lost a node.

In: pods and nodes as plain JSON, and what pods told before they were gone. Out: lines
for people, an `End` of all processes. Pure; called by the eyes.

    told to us, or its termination message     how its processes ended
    container reason OOMKilled                 the host's memory was full
    condition DisruptionTarget                 evicted, preempted, drained
    neither                                    as the exit code of the container says
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from plimsoll_operator.brain.endings import ending_of
from plimsoll_operator.brain.seen import Ending
from plimsoll_operator.cluster.api import Object
from plimsoll_operator.cluster.plans import time_s
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_planner.errors import InvalidInputError, one_line
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.task import End, Exit

INDEX: Final = "batch.kubernetes.io/job-completion-index"
QUIET: Final = ("ContainerCreating", "PodInitializing")
"""Reasons to wait that tell a person nothing."""
OUT_OF_MEMORY_KILLED: Final = "OOMKilled"
KILLED, TERMINATED = -9, -15
LARGEST_SIGNAL: Final = 64
SIGNAL_BASE: Final = 128
FROM_OUTSIDE: Final = (Ending.DONE, Ending.OUT_OF_MEMORY, Ending.HOST_OUT_OF_MEMORY)
"""Endings that a disruption beside them does not explain."""


def index_of(pod: Object) -> int:
    """Return which pod of its Job this is."""
    return int(pod["metadata"].get("annotations", {}).get(INDEX, 0))


def is_over(pod: Object) -> bool:
    """Tell whether all of a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def condition_of(found: Object, kind: str) -> Object | None:
    """Return a condition of an object that is True, False or Unknown."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), None)


def is_true(found: Object, kind: str) -> bool:
    """Tell whether a condition of an object holds."""
    condition = condition_of(found, kind)
    return condition is not None and condition["status"] == "True"


def waiting_text(pods: Sequence[Object], num_pods: int) -> str:
    """Say what pods wait for: in the words of the scheduler or the kubelet."""
    for pod in sorted(pods, key=index_of):
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled is not None and scheduled["status"] == "False":
            said = scheduled.get("message") or scheduled.get("reason", "")
            return one_line(f"{pod['metadata']['name']}: {said}")[:1024]
        for status in statuses_of(pod):
            waiting = status.get("state", {}).get("waiting", {})
            reason = waiting.get("reason", "")
            if reason and reason not in QUIET:
                said = f"{status['name']}: {reason}: {waiting.get('message', '')}"
                return one_line(f"{pod['metadata']['name']}: {said}")[:1024]
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
    return f"{running} of {num_pods} pods run"


def statuses_of(pod: Object) -> Iterable[Object]:
    """Yield the status of every container, those that prepare the pod first."""
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def ending_of_pods(
    pods: Sequence[Object], told: Mapping[str, StoredEnd], container: str
) -> tuple[Ending, str, End | None]:
    """Return how a Job ended whose pods have.

    Args:
        pods: those that are still there.
        told: what pods have told us, by uid; also of those that are gone.
        container: the one that runs our process.

    Returns:
        The ending, why in one line, and the end of all processes if any is known.
    """
    ends: dict[int, End] = {one.place: one.end for one in told.values()}
    for pod in pods:
        if pod["metadata"]["uid"] not in told:
            ends[index_of(pod)] = end_of_pod(pod, container)
    if not ends:
        return Ending.DISRUPTED, "its pods are gone, and told nothing", None
    end = joined([ends[place] for place in sorted(ends)])
    ending, line = ending_of(end)
    disrupted = disruption_in(pods)
    if disrupted and ending not in FROM_OUTSIDE:
        return Ending.DISRUPTED, disrupted, end
    return ending, line, end


def disruption_in(pods: Iterable[Object]) -> str:
    """Say which pod was evicted, preempted or drained; empty where none was."""
    for pod in pods:
        condition = condition_of(pod, "DisruptionTarget")
        if condition is not None and condition["status"] == "True":
            why = f"{condition.get('reason')}: {condition.get('message', '')}"
            return one_line(f"{pod['metadata']['name']}: {why}")[:1024]
        status = pod.get("status", {})
        if (
            is_over(pod)
            and status.get("reason")
            and not status.get("containerStatuses")
        ):
            why = f"{status['reason']}: {status.get('message', '')}"
            return one_line(f"{pod['metadata']['name']}: {why}")[:1024]
    return ""


def end_of_pod(pod: Object, container: str) -> End:
    """Return how the processes of a pod ended that told us nothing."""
    ended = [one for one in statuses_of(pod) if "terminated" in one.get("state", {})]
    failed = [one for one in ended if one["state"]["terminated"]["exitCode"]]
    mine = [one for one in failed if one["name"] == container] or failed or ended
    if not mine:
        said = "its pod was removed before it could tell how it ended"
        return End(at_s=0.0, exits=(Exit(status=TERMINATED, said=said),))
    state = mine[0]["state"]["terminated"]
    message = state.get("message", "")
    end = message_in(message)
    was_killed = state.get("reason") == OUT_OF_MEMORY_KILLED
    if end is None:
        status = KILLED if was_killed else status_of(state["exitCode"])
        exits = (
            Exit(status=status, said=last_words(state.get("reason", ""), message)),
        )
        end = End(at_s=finished_s(state), exits=exits)
    return replace(end, host_was_full=end.host_was_full or was_killed)


def last_words(reason: str, message: str) -> str:
    """Return why a container ended that told no end: its log's last line, if any."""
    lines = [line for line in message.splitlines() if line.strip()]
    told = lines[-1] if lines else ""
    return one_line(": ".join(filter(None, (reason, told))))[:1024]


def message_in(text: str) -> End | None:
    """Return the end in a termination message; others write there as well."""
    try:
        return from_text(text, End)
    except InvalidInputError:
        return None


def status_of(exit_code: int) -> int:
    """Return an exit code of a container as that of a process."""
    number = exit_code - SIGNAL_BASE
    is_signal = 0 < number <= LARGEST_SIGNAL
    return -number if is_signal else min(exit_code, 255)


def finished_s(state: Mapping[str, Any]) -> float:
    """Return when a container ended; 0 where nobody says."""
    text = state.get("finishedAt")
    return time_s(text) if text else 0.0


def joined(ends: Sequence[End]) -> End:
    """Return the end of all processes of a gang, from those of its pods by index."""
    offset, first, first_s = 0, None, 0.0
    for end in ends:
        if end.first is not None and (first is None or end.at_s < first_s):
            first, first_s = offset + end.first, end.at_s
        offset += len(end.exits)
    full = [end.full_device for end in ends if end.full_device is not None]
    return End(
        at_s=max(end.at_s for end in ends),
        exits=tuple(one for end in ends for one in end.exits),
        first=first,
        was_stopped=any(end.was_stopped for end in ends),
        was_late=any(end.was_late for end in ends),
        host_was_full=any(end.host_was_full for end in ends),
        message=next((end.message for end in ends if end.message), ""),
        full_device=full[0] if full else None,
    )


def fenced_text(
    pods: Iterable[Object],
    nodes: Iterable[Object],
    *,
    now_s: float,
    node_lost_s: float,
) -> str:
    """Say why nobody waits for the pods that are left; empty where somebody must.

    Args:
        pods: of a Job that is ending.
        nodes: of the cluster.
        now_s: seconds since 1970.
        node_lost_s: for how long a node must have been out of reach.
    """
    left = [pod for pod in pods if not is_over(pod)]
    lost_s = {node["metadata"]["name"]: unreachable_s(node, now_s) for node in nodes}
    names = sorted({str(pod["spec"].get("nodeName", "")) for pod in left})
    if not left or any("deletionTimestamp" not in pod["metadata"] for pod in left):
        return ""
    if any(lost_s.get(name, now_s) < node_lost_s for name in names):
        return ""
    return f"node {', '.join(names)} has been out of reach for {node_lost_s:.0f} s"


def unreachable_s(node: Object, now_s: float) -> float:
    """Return for how long a node has not been heard of; 0 where it is."""
    ready = condition_of(node, "Ready")
    if ready is None or ready["status"] != "Unknown":
        return 0.0
    return max(now_s - time_s(ready["lastTransitionTime"]), 0.0)
