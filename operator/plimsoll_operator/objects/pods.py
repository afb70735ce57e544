"""State of the pods of a Job: what they wait for, how they ended, who lost a node.

In: pods and nodes as plain JSON, and reports of pods that may be gone. Out: lines
for people, an `End` of all processes. Pure; called by observers.

    its report, or its termination message     how its processes ended
    container reason OOMKilled                 the host's memory was full
    condition DisruptionTarget                 evicted, preempted, drained
    neither                                    as the exit code of the container says
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.names import COMPLETION_INDEX
from plimsoll_operator.rules.endings import ending_of
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_planner.errors import InvalidInputError, one_line
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.task import End, Exit

QUIET: Final = ("ContainerCreating", "PodInitializing")
"""Reasons to wait that mean nothing to a person."""
OUT_OF_MEMORY_KILLED: Final = "OOMKilled"
KILLED, TERMINATED = -9, -15
LARGEST_SIGNAL: Final = 64
SIGNAL_BASE: Final = 128
FROM_OUTSIDE: Final = (Ending.DONE, Ending.OUT_OF_MEMORY, Ending.HOST_OUT_OF_MEMORY)
"""Endings that a disruption beside them does not explain."""


def index_of(pod: Object) -> int:
    """Which pod of its Job this is; 0 where somebody has changed that."""
    notes: Object = pod["metadata"].get("annotations") or {}
    text = str(notes.get(COMPLETION_INDEX, ""))
    return int(text) if text.isdecimal() else 0


def is_over(pod: Object) -> bool:
    """Whether all of a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def condition_of(found: Object, kind: str) -> Object | None:
    """A condition of an object that is True, False or Unknown."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one.get("type") == kind), None)


def is_true(found: Object, kind: str) -> bool:
    """Whether a condition of an object holds."""
    condition = condition_of(found, kind)
    return condition is not None and condition.get("status") == "True"


def waiting_text(pods: Sequence[Object], num_pods: int) -> str:
    """Reason why pods wait, in the words of the scheduler or the kubelet."""
    for pod in sorted(pods, key=index_of):
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled is not None and scheduled.get("status") == "False":
            reason = scheduled.get("message") or scheduled.get("reason", "")
            return line_of(pod, reason)
        for status in statuses_of(pod):
            waiting = status.get("state", {}).get("waiting", {})
            reason = waiting.get("reason", "")
            if reason and reason not in QUIET:
                words = (status.get("name"), reason, waiting.get("message"))
                return line_of(pod, *words)
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
    return f"{running} of {num_pods} pods run"


def line_of(pod: Object, *words: str | None) -> str:
    """The words on a pod, in one line with its name."""
    return one_line(": ".join(filter(None, (pod["metadata"]["name"], *words))))[:1024]


def statuses_of(pod: Object) -> Iterable[Object]:
    """Yield the status of every container, those that prepare the pod first."""
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def ending_of_pods(
    pods: Sequence[Object], reported: Mapping[str, StoredEnd], container: str
) -> tuple[Ending, str, End | None]:
    """Ending of a Job whose pods have ended.

    `reported` is by uid of the pod, the oldest first; also of those that are gone.

    Returns:
        The ending, why in one line, and the end of all processes if any is known.
    """
    # A queue may have put new pods in the place of old ones: the newest end counts.
    ends: dict[int, End] = {one.place: one.end for one in reported.values()}
    for pod in sorted(
        pods, key=lambda one: str(one["metadata"].get("creationTimestamp"))
    ):
        known = reported.get(pod["metadata"]["uid"])
        if known is None or (has_failed(pod) and is_done(known.end)):
            ends[index_of(pod)] = end_of_pod(pod, container)
        else:
            ends[index_of(pod)] = known.end
    if not ends:
        return Ending.DISRUPTED, "its pods are gone, and reported nothing", None
    end = joined([ends[place] for place in sorted(ends)])
    ending, line = ending_of(end)
    disrupted = disruption_in(pods)
    if disrupted and ending not in FROM_OUTSIDE:
        return Ending.DISRUPTED, disrupted, end
    return ending, line, end


def has_failed(pod: Object) -> bool:
    """Whether any container of a pod has made it fail."""
    return bool(pod.get("status", {}).get("phase") == "Failed")


def is_done(end: End) -> bool:
    """Whether all processes did what they should."""
    return not any(one.status for one in end.exits)


def disruption_in(pods: Iterable[Object]) -> str:
    """Which pod was evicted, preempted or drained; empty where none was."""
    for pod in pods:
        condition = condition_of(pod, "DisruptionTarget") or {}
        if condition.get("status") == "True":
            return line_of(pod, condition.get("reason"), condition.get("message"))
        status = pod.get("status", {})
        has_run = bool(status.get("containerStatuses"))
        if is_over(pod) and status.get("reason") and not has_run:
            return line_of(pod, status.get("reason"), status.get("message"))
    return ""


def end_of_pod(pod: Object, container: str) -> End:
    """End of the processes of a pod that reported nothing.

    Ours has failed, or one beside it or before it; a pod whose node is gone may say of
    none of them that it has ended.
    """
    ended = {str(one.get("name")): one for one in statuses_of(pod) if end_in(one)}
    failed = [name for name, one in ended.items() if end_in(one).get("exitCode")]
    if not failed and not has_failed(pod) and container in ended:
        failed = [container]
    if not failed:
        line = "its pod was removed before it could report its end"
        return End(at_s=0.0, exits=(Exit(status=TERMINATED, said=line),))
    name = container if container in failed else failed[0]
    return end_of_container(end_in(ended[name]), "" if name == container else name)


def end_in(status: Object) -> Object:
    """The end of a container in its status; empty while it runs."""
    found: Object = status.get("state", {}).get("terminated") or {}
    return found


def end_of_container(state: Object, name: str) -> End:
    """End of the processes of a container; a name stands in it if that is not ours."""
    message = state.get("message", "")
    was_killed = state.get("reason") == OUT_OF_MEMORY_KILLED
    end = message_in(message)
    if end is None:
        status = KILLED if was_killed else status_of(state.get("exitCode", 0))
        line = last_words(name, state.get("reason", ""), message)
        at_s = time_s(state["finishedAt"]) if state.get("finishedAt") else 0.0
        first = 0 if status and at_s else None
        exits = (Exit(status=status, said=line),)
        end = End(at_s=at_s, exits=exits, first=first)
    return replace(end, host_was_full=end.host_was_full or was_killed)


def last_words(name: str, reason: str, message: str) -> str:
    """Why a container ended that reported no end: its log's last line, if any."""
    lines = [line for line in message.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return one_line(": ".join(filter(None, (name, reason, last))))[:1024]


def message_in(text: str) -> End | None:
    """The end in a termination message; others write there as well."""
    try:
        return from_text(text, End)
    except InvalidInputError:
        return None


def status_of(exit_code: int) -> int:
    """An exit code of a container as that of a process."""
    number = exit_code - SIGNAL_BASE
    is_signal = 0 < number <= LARGEST_SIGNAL
    return -number if is_signal else max(1, min(exit_code, 255)) if exit_code else 0


def joined(ends: Sequence[End]) -> End:
    """End of all processes of a worker group, from those of its pods by index."""
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


def lost_nodes_text(
    pods: Iterable[Object],
    nodes: Iterable[Object],
    *,
    now_s: float,
    node_lost_s: float,
) -> str:
    """Why nobody waits for the pods of an ending workload; empty if somebody must.

    Their nodes must have been out of reach for `node_lost_s`; `now_s` is since 1970.
    """
    left = [pod for pod in pods if not is_over(pod)]
    if any("deletionTimestamp" not in pod["metadata"] for pod in left):
        return ""
    # A pod that no node has taken is gone without anybody's help.
    found = {str(pod.get("spec", {}).get("nodeName", "")) for pod in left}
    names = sorted(found - {""})
    lost_s = {node["metadata"]["name"]: unreachable_s(node, now_s) for node in nodes}
    if not names or any(lost_s.get(name, now_s) < node_lost_s for name in names):
        return ""
    return f"node {', '.join(names)} has been out of reach for {node_lost_s:.0f} s"


def unreachable_s(node: Object, now_s: float) -> float:
    """For how long a node has not been heard of; 0 where it is."""
    ready = condition_of(node, "Ready")
    if ready is None or ready.get("status") != "Unknown":
        return 0.0
    since = ready.get("lastTransitionTime")
    return max(now_s - time_s(since), 0.0) if since else 0.0
