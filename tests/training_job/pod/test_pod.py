"""The first process of a pod, with real processes and a real HTTP server."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.pod_names import REVISION
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.task import Command, End, Task, TaskKind, Variable
from plimsoll_trainer.pod import pending_reports, report_client, start
from tests.support.builders import an_observation
from tests.support.fake_ingest import FakeIngest, a_fake_ingest
from tests.support.ports import free_ports

RUN = """
import sys
from pathlib import Path
from plimsoll_trainer.pod.__main__ import main
from plimsoll_trainer.pod.inputs import Place
root = Path(sys.argv[1])
place = Place(inputs=root / "inputs", work=root / "work",
              token=root / "token", termination_log=root / "termination")
sys.exit(main(place))
"""
PATIENCE_S = 240.0
LOADING = "print('loading', flush=True); input()"
AS_FIRST = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
"""Of a process namespace, as in a container: the kernel spares it signals."""
NO_CLIENT = """
from plimsoll_trainer.pod.report_client import ReportClient
def send(*_): raise RuntimeError("no client today")
ReportClient.send = send
"""
NO_ANSWERS = {
    "another protocol": b"220 mail is ready\r\n\r\n",
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    "breaks off": b"HTTP/1.1 503 Away\r\nContent-Length: 9\r\n\r\nx",
}


@pytest.fixture
def ingest() -> Iterator[FakeIngest]:
    """An operator that takes reports."""
    with a_fake_ingest() as found:
        yield found


class Pod:
    """A pod without a cluster around it."""

    def __init__(self, root: Path, url: str) -> None:
        """Lay out its folder."""
        self.root = root
        self.url = url
        (root / "token").write_text("secret\n")
        (root / "inputs").mkdir()

    def start(
        self, task: Task, *, index: int = 0, before: str = ""
    ) -> subprocess.Popen[str]:
        """Start its first process; it runs some code before."""
        return self.start_by([sys.executable, "-c", before + RUN], task, index=index)

    def start_by(
        self, command: Sequence[str], task: Task, *, index: int = 0
    ) -> subprocess.Popen[str]:
        """Start its first process by a command."""
        extra = {
            "PLIMSOLL_TASK": to_text(task),
            "PLIMSOLL_INGEST_URL": self.url,
            "JOB_COMPLETION_INDEX": str(index),
        }
        return subprocess.Popen(
            [*command, str(self.root)],
            env=os.environ | extra,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, task: Task, *, index: int = 0, before: str = ""
    ) -> tuple[int, str, str]:
        """Run it to its end; return exit code, stdout, stderr."""
        pod = self.start(task, index=index, before=before)
        out, err = pod.communicate(timeout=PATIENCE_S)
        return pod.returncode, out, err

    @property
    def message(self) -> End:
        """Its termination message."""
        return from_text((self.root / "termination").read_text(), End)


@pytest.fixture
def pod(tmp_path: Path, ingest: FakeIngest) -> Pod:
    """A pod whose operator answers."""
    return Pod(tmp_path, ingest.url)


def a_task(
    *scripts: str, kind: TaskKind = TaskKind.TRAIN, timeout_s: float | None = None
) -> Task:
    """Task with a Python script for each process."""
    commands = tuple(
        Command(
            words=("-c", script),
            variables=(Variable(name="LOCAL_RANK", value=str(local)),),
        )
        for local, script in enumerate(scripts)
    )
    return Task(
        child_kind=kind, subject="1", commands=commands, folder="", timeout_s=timeout_s
    )


def report(root: Path, rank: int, *events: Mapping[str, object]) -> str:
    """Script that reports."""
    lines = "".join(json.dumps(event) + "\n" for event in events)
    return (
        f"open({str(root / 'work' / f'report-{rank}.jsonl')!r}, 'a').write({lines!r})"
    )


def test_ranks_learn_which_they_are_from_the_index_of_the_pod(pod: Pod) -> None:
    """The third pod of pairs has ranks 4 and 5; what they say is the log."""
    script = (
        "import os; rank, local = os.environ['RANK'], os.environ['LOCAL_RANK'];"
        "os.write(1, f'{rank} {local}\\n'.encode())"
    )
    code, out, err = pod.run(a_task(script, script), index=2)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["4 0", "5 1"]


def test_what_the_operator_put_beside_the_pod_is_unpacked(pod: Pod) -> None:
    """A ConfigMap holds it compressed."""
    (pod.root / "inputs/plan.json.gz").write_bytes(gzip.compress(b"the plan"))
    code, out, _ = pod.run(
        a_task(f"print(open({str(pod.root / 'work/plan.json')!r}).read())")
    )
    assert (code, out) == (0, "the plan\n")


def test_the_newest_observation_of_each_rank_is_told(
    pod: Pod, ingest: FakeIngest
) -> None:
    """With the token, and the end of all after it."""
    observations = [an_observation(rank=0, num_steps=steps) for steps in (1, 2, 3)]
    events = [
        {"event": "observation", "observation": one.to_json()} for one in observations
    ]
    code, *_ = pod.run(a_task(report(pod.root, 0, *events)))
    assert code == 0
    assert ingest.at("/v1/observation")[-1] == observations[-1].to_json()
    assert ingest.reports[-1][0] == "/v1/end"
    assert ingest.tokens == {"Bearer secret"}


def test_a_full_device_is_part_of_the_end(pod: Pod, ingest: FakeIngest) -> None:
    """Rank, phase and bytes, reported and left as a message; and by the exit code."""
    failure = {"event": "failure", "phase": "backward", "asked_bytes": 512}
    script = report(pod.root, 0, failure) + "; raise SystemExit(83)"
    code, *_ = pod.run(a_task(script))
    assert code == ExitCode.DEVICE_OUT_OF_MEMORY
    [end] = ingest.at("/v1/end")
    assert end == pod.message.to_json()
    full = pod.message.full_device
    assert full is not None
    assert (full.rank, full.phase, full.asked_bytes) == (0, Phase.BACKWARD, 512)


def test_the_last_line_on_stderr_is_part_of_the_end_and_of_the_log(pod: Pod) -> None:
    """That is why the process failed."""
    code, _, err = pod.run(a_task("import sys; sys.exit('no such layer')"))
    assert code == 1
    assert "no such layer" in err
    assert pod.message.exits[0].said == "no such layer"
    assert pod.message.first == 0


def test_a_termination_message_is_never_cut_by_the_kubelet(pod: Pod) -> None:
    """Eight ranks that all say a lot still make one document."""
    script = "import sys; sys.exit('ä' * 1000)"
    pod.run(a_task(*[script] * 8))
    assert (pod.root / "termination").stat().st_size <= 4096
    assert [one.status for one in pod.message.exits] == [1] * 8


def test_a_pod_that_is_removed_lets_its_ranks_save(
    pod: Pod, ingest: FakeIngest
) -> None:
    """SIGTERM is passed on; those that save leave with the code for that."""
    script = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(84));"
        "print('ready', flush=True); time.sleep(60)"
    )
    running = pod.start(a_task(script))
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == ExitCode.CHECKPOINTED
    [end] = ingest.at("/v1/end")
    assert end["was_stopped"]


@pytest.mark.parametrize(
    ("kind", "status"), [(TaskKind.TRAIN, 84), (TaskKind.REPLAY, 128 + 15)]
)
def test_a_pod_that_is_removed_while_it_loads_starts_nothing(
    pod: Pod, ingest: FakeIngest, kind: TaskKind, status: int
) -> None:
    """The signal waits until somebody can be asked; nothing is lost of a training."""
    if subprocess.run([*AS_FIRST, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a process namespace of its own: unshare --pid")
    (pod.root / "slow.py").write_text(f"{LOADING}\n{RUN}")
    way_in = pod.root / "start.py"
    way_in.write_text(Path(start.__file__).read_text().replace(start.MAIN, "slow"))
    running = pod.start_by(
        [*AS_FIRST, sys.executable, str(way_in)], a_task("print('ran')", kind=kind)
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "loading\n"
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    os.kill(int(children.read_text()), signal.SIGTERM)
    out, err = running.communicate("go on\n", timeout=PATIENCE_S)
    assert (running.returncode, out) == (status, ""), err
    assert pod.message.was_stopped
    trains = kind is TaskKind.TRAIN
    assert ingest.at("/v1/end") == [pod.message.to_json()] * trains


def test_a_pod_that_is_removed_as_its_ranks_end_leaves_soon(tmp_path: Path) -> None:
    """The signal came too late to stop anything, and the operator is away."""
    [port] = free_ports(1)
    pod = Pod(tmp_path, f"http://127.0.0.1:{port}")
    holds_stderr = (
        "import os, subprocess, sys;"
        "words = [sys.executable, '-c', 'import time; time.sleep(600)'];"
        "print(os.getpid(), subprocess.Popen(words).pid, flush=True)"
    )
    soon = "import plimsoll_trainer.pod.__main__ as pod; pod.STOPPED_PATIENCE_S = 1\n"
    running = pod.start(a_task(holds_stderr), before=soon)
    assert running.stdout is not None
    rank, holder = running.stdout.readline().split()
    while Path("/proc", rank).exists():
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    running.wait(PATIENCE_S)
    assert running.returncode == 0
    assert not pod.message.was_stopped
    os.kill(int(holder), signal.SIGKILL)
    running.communicate()


def test_letters_go_past_a_proxy(
    pod: Pod, ingest: FakeIngest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the image sets leads out of the cluster."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert pod.run(a_task("pass"))[0] == 0
    assert [where for where, _ in ingest.reports] == ["/v1/end"]


def test_a_report_that_waits_is_told_once_the_ranks_have_ended(
    ingest: FakeIngest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator was away for long, and is back; nobody waits for the next try."""
    monkeypatch.setattr(pending_reports, "FIRST_WAIT_S", 3600.0)
    (tmp_path / "token").write_text("secret\n")
    ingest.answers = lambda _: 503 if ingest.tries == 1 else 204
    away = threading.Event()
    pending = pending_reports.PendingReports(
        report_client.ReportClient(url=ingest.url, token=tmp_path / "token"),
        "/v1/observation",
        lambda _: away.set(),
    )
    pending.put(0, b"{}")
    assert away.wait(PATIENCE_S)
    pending.close(report_client.Deadline())
    assert ingest.at("/v1/observation") == [{}]


def test_a_revision_comes_in_answer_to_a_report(pod: Pod, ingest: FakeIngest) -> None:
    """And lies, whole, where ranks look for it."""
    ingest.sent_back["/v1/observation"] = b'{"kind": "Revision"}'
    event = {"event": "observation", "observation": an_observation().to_json()}
    path = str(pod.root / "work" / REVISION)
    script = f"""
{report(pod.root, 0, event)}
import os, time
end_s = time.monotonic() + 20
while not os.path.exists({path!r}) and time.monotonic() < end_s:
    time.sleep(0.05)
print(open({path!r}).read())
"""
    code, out, _ = pod.run(a_task(script))
    assert code == 0
    assert '{"kind": "Revision"}' in out


def test_a_result_is_handed_over(pod: Pod, ingest: FakeIngest) -> None:
    """A profile is a file; replay and rehearsal are the last line that is printed."""
    path = str(pod.root / "work/profile.json")
    write = f"open({path!r}, 'w').write('[' + '1, ' * 9000 + '1]')"
    assert pod.run(a_task(write, kind=TaskKind.PROFILE))[0] == 0
    assert ingest.at("/v1/profile") == [[1] * 9001]
    script = "print('busy'); print('{\"b\": 2}')"
    for kind in (TaskKind.REPLAY, TaskKind.REHEARSAL):
        for file in (pod.root / "work").iterdir():
            file.unlink()
        assert pod.run(a_task(script, kind=kind))[0] == 0
        assert ingest.at(f"/v1/{kind}") == [{"b": 2}]


def test_a_result_waits_for_an_operator_that_is_away(tmp_path: Path) -> None:
    """Refused connections and 503 are waited out; nothing is lost."""
    [port] = free_ports(1)
    pod = Pod(tmp_path, f"http://127.0.0.1:{port}")
    running = pod.start(a_task("print('{}')", kind=TaskKind.REPLAY))
    time.sleep(2)
    with a_fake_ingest(port) as ingest:
        ingest.answers = lambda _: 503 if ingest.tries < 3 else 204
        _, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0
        assert ingest.at("/v1/replay") == [{}]
    assert "the operator takes no /v1/replay yet" in err


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (TaskKind.TRAIN, ["/v1/observation", "/v1/end"]),
        (TaskKind.REPLAY, ["/v1/replay"]),
    ],
)
def test_a_token_that_has_expired_is_read_again(
    pod: Pod, ingest: FakeIngest, kind: TaskKind, paths: list[str]
) -> None:
    """A 401 is waited out: reports go out with the next one."""

    def answer(_: str) -> int:
        if ingest.tries == 1:
            (pod.root / "token").write_text("renewed\n")
        return 204 if "Bearer renewed" in ingest.tokens else 401

    ingest.answers = answer
    event = {"event": "observation", "observation": an_observation().to_json()}
    code, _, err = pod.run(
        a_task(f"{report(pod.root, 0, event)}; print('{{}}')", kind=kind)
    )
    assert code == 0, err
    assert ingest.tokens == {"Bearer secret", "Bearer renewed"}
    assert [where for where, _ in ingest.reports] == paths
    assert "(401: not so" in err


@pytest.mark.parametrize("what", NO_ANSWERS)
def test_what_is_no_answer_is_waited_out(
    pod: Pod, ingest: FakeIngest, what: str
) -> None:
    """Reports and the end are sent again, and the training has ended as it did."""
    seen: set[str] = set()

    def answer(path: str) -> int | bytes:
        is_first = path not in seen
        seen.add(path)
        return NO_ANSWERS[what] if is_first else 204

    ingest.answers = answer
    event = {"event": "observation", "observation": an_observation().to_json()}
    code, _, err = pod.run(a_task(report(pod.root, 0, event)))
    assert code == 0, err
    assert [where for where, _ in ingest.reports] == ["/v1/observation", "/v1/end"]
    assert "Traceback" not in err
    assert [one.status for one in pod.message.exits] == [0]


def test_a_refusal_whose_reason_breaks_off_is_one(pod: Pod, ingest: FakeIngest) -> None:
    """The status is what counts; its own words stand for the reason."""
    ingest.answers = lambda _: b"HTTP/1.1 409 Conflict\r\nContent-Length: 99\r\n\r\nx"
    code, _, err = pod.run(a_task("print('{}')", kind=TaskKind.REPLAY))
    assert code == 1
    assert ingest.tries == 1
    assert "the operator does not take the result: 409: Conflict" in err


@pytest.mark.parametrize(
    ("kind", "status"), [(TaskKind.TRAIN, 0), (TaskKind.REPLAY, 1)]
)
def test_a_pod_says_how_it_ended_whatever_the_client_does(
    pod: Pod, kind: TaskKind, status: int
) -> None:
    """A training that is done is done; a result that nobody has is none."""
    code, _, err = pod.run(a_task("print('{}')", kind=kind), before=NO_CLIENT)
    assert (code, [one.status for one in pod.message.exits]) == (status, [status])
    assert "RuntimeError: no client today" in err


@contextmanager
def packets_lost() -> Iterator[int]:
    """A port of this machine that answers no packet, as behind a NetworkPolicy."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # the queue is full
            yield port


SHORT = """
import plimsoll_trainer.pod.__main__ as pod, plimsoll_trainer.pod.report_client as http
pod.CUT_OFF_PATIENCE_S, http.CONNECT_S, http.ANSWER_S = 1, 0.1, 1
"""


@pytest.mark.parametrize(
    ("kind", "code"), [(TaskKind.REPLAY, ExitCode.FAILED), (TaskKind.TRAIN, 0)]
)
def test_a_pod_that_is_cut_off_says_so_at_once_and_ends_soon(
    kind: TaskKind, code: ExitCode, tmp_path: Path
) -> None:
    """While its processes work; a result that nobody gets fails it, with that line."""
    with packets_lost() as port:
        pod = Pod(tmp_path, f"http://127.0.0.1:{port}")
        script = "import time; time.sleep(1); print('done')"
        found, _, err = pod.run(a_task(script, kind=kind), before=SHORT)
    message = (
        f"plimsoll: the operator's address http://127.0.0.1:{port} cannot be reached "
        "from this pod (timed out): look for a NetworkPolicy "
    )
    assert found == code
    assert err.splitlines()[0].startswith(message)
    assert "Traceback" not in err
    last = pod.message.exits[0].said
    assert ("does not take the result: the operator's address" in last) == bool(code)


def test_what_cuts_a_pod_off_is_named() -> None:
    """Service, namespace and port, as the chart writes the address."""
    found = report_client.unreached_text(
        "http://p-ingest.ops.svc:8090", TimeoutError("late")
    )
    assert "from Service p-ingest of namespace ops, TCP port 8090" in found


def test_a_result_that_is_refused_fails_the_pod(pod: Pod, ingest: FakeIngest) -> None:
    """With the operator's reason, at once."""
    ingest.answers = lambda _: 422
    code, _, err = pod.run(a_task("print('{}')", kind=TaskKind.REPLAY))
    assert code == 1
    assert "422: not so" in err, err
    assert "Traceback" not in err
    assert "422: not so" in pod.message.exits[0].said


def test_an_operator_that_refuses_reports_ends_no_training(
    pod: Pod, ingest: FakeIngest
) -> None:
    """One line in the log says it."""
    ingest.answers = lambda _: 403
    event = {"event": "observation", "observation": an_observation().to_json()}
    code, _, err = pod.run(a_task(report(pod.root, 0, event)))
    assert code == 0
    assert err.count("the operator takes no reports (refused: 403: not so)") == 1


def test_a_pod_of_somebody_else_says_so(tmp_path: Path) -> None:
    """Without a task there is nothing to do."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "PLIMSOLL_TASK is not set" in done.stderr
