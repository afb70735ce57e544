"""`python -m plimsoll_trainer.pod`: the first process of a pod.

Supervises the processes of its task, passes on to the operator what they report and how
they ended, and leaves with an exit code that says the same. A SIGTERM, which Kubernetes
sends before it removes a pod, is passed on to the ranks: they save and leave. It waits
while nobody listens for it (see `start`); after one that came before the ranks, none
starts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.pod_names import INGEST_VARIABLE, REVISION
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.task import End, Exit, Task, TaskKind
from plimsoll_trainer.pod.inputs import Place, task_from, unpack
from plimsoll_trainer.pod.outputs import PodOutputs
from plimsoll_trainer.pod.pending_reports import PendingReports
from plimsoll_trainer.pod.report_client import Answer, Deadline, ReportClient
from plimsoll_trainer.pod.reports import RankReports
from plimsoll_trainer.pod.termination_message import leave
from plimsoll_trainer.reporting.console import say
from plimsoll_trainer.supervisor import Supervisor

PATIENCE_S = 1800.0
"""For results and last reports, where the operator is away."""
STOPPED_PATIENCE_S = 60.0
"""For them where the pod is being removed."""
CUT_OFF_PATIENCE_S = 180.0
"""For them where the operator's address was never reached: packets are lost."""
warn = partial(say, None)
"""Writes a line to the log of the container."""
PRINTED, PROFILE = "printed", "profile.json"
"""Files of results, in the folder of work."""


def main(place: Place | None = None) -> int:
    """Supervise the pod's processes; return the exit code of the container."""
    place = place or Place()
    # A SIGTERM waits from now on.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        place.work.mkdir(parents=True, exist_ok=True)
        unpack(place)
        task = task_from(os.environ)
    except (OSError, PlimsollError) as error:
        say(None, str(error))
        failed = Exit(status=int(ExitCode.FAILED), said=str(error)[:1024])
        return leave(End(at_s=time.time(), exits=(failed,)), place.termination_log)
    url = os.environ.get(INGEST_VARIABLE, "")
    client = ReportClient(url=url, token=place.token)
    threading.Thread(target=client.try_to_connect, args=(warn,), daemon=True).start()
    if task.child_kind is TaskKind.TRAIN:
        end = train(task, place, client)
    else:
        end = make_result(task, place, client)
    return leave(end, place.termination_log)


def train(task: Task, place: Place, client: ReportClient) -> End:
    """Supervise the ranks of this pod, and pass on what they report meanwhile."""
    revision = partial(put_revision, place.work / REVISION)
    pending = PendingReports(client, "/v1/observation", warn, revision)
    reports = RankReports(place.work, ranks_of(task), pending.put)
    supervisor = listening_supervisor(task, PodOutputs())
    end = supervisor.run()
    deadline = deadline_after(supervisor, client)
    reports.close()
    end = replace(end, full_device=reports.full_device)
    pending.close(deadline)
    post(client, "/v1/end", to_text(end).encode(), deadline)
    return end


def put_revision(path: Path, body: bytes) -> None:
    """Put a revision of the plan where ranks look for it; they judge it."""
    try:
        if path.exists() and path.read_bytes() == body:
            return
        part = path.with_suffix(".part")
        part.write_bytes(body)
        part.replace(path)
    except OSError as error:
        warn(f"a revision of the plan cannot be written: {error}")


def make_result(task: Task, place: Place, client: ReportClient) -> End:
    """Supervise a process that makes one document, and hand that over.

    A profile is written to a file, a replay and a rehearsal are printed.
    """
    prints = task.child_kind is not TaskKind.PROFILE
    printed = place.work / PRINTED
    supervisor = listening_supervisor(task, PodOutputs(printed if prints else None))
    end = supervisor.run()
    if any(one.status for one in end.exits):
        return end
    body = last_line(printed) if prints else (place.work / PROFILE).read_bytes()
    deadline = deadline_after(supervisor, client)
    answer = post(client, f"/v1/{task.child_kind}", body, deadline)
    if answer.is_taken:
        return end
    why = answer.refusal or answer.fault
    text = f"plimsoll: the operator does not take the result: {why}"[:1024]
    sys.stderr.write(text + "\n")
    failed = replace(end.exits[0], status=int(ExitCode.FAILED), said=text)
    return replace(end, exits=(failed,), first=0)


def post(client: ReportClient, path: str, body: bytes, deadline: Deadline) -> Answer:
    """Send a document; the pod leaves as its processes ended, whatever happens."""
    try:
        return client.send_until(path, body, deadline, warn)
    except Exception as error:  # noqa: BLE001 - a training that is done stays done
        traceback.print_exc()
        return Answer(fault=f"{type(error).__name__}: {error}")


def listening_supervisor(task: Task, outputs: PodOutputs) -> Supervisor:
    """A supervisor for the processes of a task, which a SIGTERM asks to stop."""
    supervisor = Supervisor(task=task, outputs=outputs)
    listen(supervisor.ask_to_stop)  # before processes, which inherit what is blocked
    return supervisor


def listen(ask: Callable[[int, FrameType | None], None]) -> None:
    """Have a SIGTERM answered, also one that has waited."""
    signal.signal(signal.SIGTERM, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def ranks_of(task: Task) -> list[int]:
    """Ranks of this pod."""
    return [
        int(variable.value)
        for command in task.commands
        for variable in command.variables
        if variable.name == "RANK"
    ]


def deadline_after(supervisor: Supervisor, client: ReportClient) -> Deadline:
    """Until when the operator is waited for; a SIGTERM brings it forward.

    Also one that came when nothing was left to stop: while the end was put together.
    """
    deadline = Deadline()
    deadline.within(CUT_OFF_PATIENCE_S if client.cut_off else PATIENCE_S)

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        deadline.within(STOPPED_PATIENCE_S)

    listen(ask)  # first: from here on none is missed
    if supervisor.is_asked_to_stop:
        deadline.within(STOPPED_PATIENCE_S)
    return deadline


def last_line(path: Path) -> bytes:
    """Last line that was printed."""
    lines = path.read_bytes().splitlines()
    return lines[-1] if lines else b""


if __name__ == "__main__":
    sys.exit(main())
