"""Runs of `plimsoll run` in processes of their own, watched and killed by tests.

A run has a folder with its manifest and its home. What belongs to it is found by the
mark that every process of a task carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import psutil

from plimsoll_cli.__main__ import main
from plimsoll_operator.api.status import Status
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import MARK
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.store import open_store

ROOT = Path(__file__).parents[2]
NAME = "chain"
STEPS = 40
MANIFEST = """\
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingPlan
metadata: {{name: {name}}}
spec:
  workload: {{entrypoint: "{entrypoint}", args: {args}}}
  training: {{globalBatchSize: {batch}, steps: {steps}}}
  checkpoint: {checkpoint}
  {extra}
"""
DEVICES = ("--device", "cpu", "--devices", "2", "--device-memory", "1800KiB")
"""So small that the chain needs both, at any speed, whatever is offloaded."""
LARGE = (*DEVICES[:-1], "8MiB")
"""Of which the chain needs one: a rank less to start, where a rule is of any number."""
EIGHT = (*DEVICES[:3], "8", *DEVICES[4:])
"""So many that there are plans with less memory."""
SAMPLE_S = 0.1
FULL_S = 3.0
"""So long that some checkpoints find no room."""


BESIDE_STATUS = ("losses", "proof")
"""Fields that `run -o json` prints beside a status."""


@dataclass(frozen=True)
class HomeRun:
    """One manifest and its home."""

    folder: Path

    def write(
        self,
        *,
        entrypoint: str = "examples.mlp:workload",
        args: str = "{depth: 6, width: 192}",
        steps: int = STEPS,
        batch: int = 8,
        checkpoint: str = "{everySteps: 5}",
        extra: str = "",
        name: str = NAME,
    ) -> HomeRun:
        """Write the manifest."""
        text = MANIFEST.format(
            name=name,
            entrypoint=entrypoint,
            args=args,
            steps=steps,
            batch=batch,
            checkpoint=checkpoint,
            extra=extra,
        )
        self.manifest.write_text(text)
        return self

    @property
    def manifest(self) -> Path:
        """The file."""
        return self.folder / "plan.yaml"

    @property
    def home(self) -> StateFolder:
        """Its home."""
        return StateFolder(self.folder / "home")

    def copy(self, folder: Path) -> HomeRun:
        """Run that knows what this one knows: profile and replays."""
        other = HomeRun(folder)
        shutil.copy(self.manifest, other.manifest)
        other.home.root.mkdir()
        shutil.copy(self.home.store, other.home.store)
        return other

    def spoken(self, *options: str) -> list[str]:
        """Command line as people type it."""
        return [
            *(sys.executable, "-m", "plimsoll_cli", "run", str(self.manifest)),
            *("--home", str(self.home.root), *(options or DEVICES)),
        ]

    def words(self, *options: str) -> list[str]:
        """Command line that prints the status as JSON."""
        return [*self.spoken(*options), "--output", "json"]

    def start(self, *options: str, code: Path = ROOT) -> subprocess.Popen[str]:
        """Start the command as people do."""
        return subprocess.Popen(
            self.words(*options),
            cwd=code,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, code: Path = ROOT) -> Ended:
        """Run the command to its end."""
        process = self.start(*options, code=code)
        out, err = process.communicate()
        return Ended(process.returncode, out, err)

    def plan(self, name: str = NAME) -> StoredPlan | None:
        """Plan as the store has it."""

        async def find() -> StoredPlan | None:
            async with open_store(self.home.store) as store:
                return await store.plans.find(name)

        return asyncio.run(find())

    def attempts(self, name: str = NAME) -> tuple[StoredAttempt, ...]:
        """Attempts of the current plan."""
        plan = self.plan(name)
        assert plan is not None
        uid = plan.uid

        async def find() -> tuple[StoredAttempt, ...]:
            async with open_store(self.home.store) as store:
                return await store.attempts.of(uid)

        return asyncio.run(find())

    def processes(self) -> dict[Path, list[psutil.Process]]:
        """Live processes of the state directory, by the folder of their task."""
        found: dict[Path, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            try:
                mark = process.environ().get(MARK, "")
                alive = process.status() != psutil.STATUS_ZOMBIE
            except (psutil.Error, OSError):
                continue
            if alive and mark.startswith(str(self.home.root)):
                found.setdefault(Path(mark), []).append(process)
        return found

    def losses(self, name: str = NAME) -> dict[int, float]:
        """Loss of every step of the current plan; the latest run counts."""
        plan = self.plan(name)
        assert plan is not None
        folder = self.home.plan(plan.uid).root
        reports = sorted(
            [*folder.glob("logs/train-*/report-0.jsonl")],
            key=lambda path: int(path.parent.name.removeprefix("train-")),
        )
        lines = (
            json.loads(x) for path in reports for x in path.read_text().splitlines()
        )
        return {x["step"]: x["loss"] for x in lines if x["event"] == "step"}


def run_in(folder: Path) -> None:
    """Run the manifest beside a folder with a state directory; print its output."""
    words = ["run", str(folder.parent / "plan.yaml"), "--home", str(folder / "home")]
    sys.stderr = sys.stdout
    sys.stdout.write(f"exit {main([*words, '--device', 'cpu'])}\n")


def wait_for_room(folder: Path) -> None:
    """Train on a small disk, fill it, ask to stop, make room; print its output.

    The manifest, a home to copy and a file that names the code's folder lie beside it.
    """
    beside = HomeRun(folder.parent)
    run, log = beside.copy(folder), beside.folder / "output"
    words = run.spoken()
    with log.open("w") as output:
        command = subprocess.Popen(
            words,
            cwd=(beside.folder / "code").read_text(),
            stdout=output,
            stderr=output,
        )

    def has_printed(text: str) -> bool:
        return text in log.read_text() or command.poll() is not None

    while not has_printed("loss"):
        time.sleep(SAMPLE_S)
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        stops_s = time.monotonic() + FULL_S
        while not has_printed("the disk is full"):
            if stops_s < time.monotonic():
                command.send_signal(signal.SIGINT)
                stops_s = math.inf
            fill(file)  # also the room of checkpoints that were removed meanwhile
            time.sleep(0.01)
    ballast.unlink()
    if stops_s < math.inf:
        command.send_signal(signal.SIGINT)
    status = command.wait()
    sys.stdout.write(f"{log.read_text()}exit {status}\n")


def fill(file: FileIO) -> None:
    """Write until there is no room."""
    with contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@dataclass(frozen=True)
class Ended:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def status(self) -> Status:
        """Status that it printed."""
        printed = json.loads(self.out)
        kept = {name: printed[name] for name in printed if name not in BESIDE_STATUS}
        return Status.from_json(kept, "stdout")


@dataclass
class GangWatch:
    """Checks all the time whether two worker groups are alive."""

    run: HomeRun
    most_gangs: int = 0
    most_of_a_rank: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until stopped."""
        while not self.stop.wait(SAMPLE_S):
            ranks = {
                folder: found
                for folder, processes in self.run.processes().items()
                if folder.name.startswith("train-")
                and (found := [r for p in processes if (r := rank_of(p)) is not None])
            }
            self.most_gangs = max(self.most_gangs, len(ranks))
            for found in ranks.values():
                self.most_of_a_rank = max(self.most_of_a_rank, *Counter(found).values())


@contextmanager
def watched(run: HomeRun) -> Generator[GangWatch]:
    """Watch the worker groups of a run."""
    made = GangWatch(run)
    thread = threading.Thread(target=made.watch, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        thread.join()


def rank_of(process: psutil.Process) -> int | None:
    """Rank of a training process, None of others.

    What a rank starts looks like the rank itself for a moment, until it is replaced.
    """
    try:
        parent = process.parent()
        if "plimsoll_trainer" not in process.cmdline():
            return None
        if parent is not None and "plimsoll_trainer" in parent.cmdline():
            return None
        return int(process.environ()["RANK"])
    except (psutil.Error, KeyError, OSError):
        return None


def kill_now(processes: list[psutil.Process]) -> int:
    """Kill processes that may be gone already; return how many were not."""
    killed = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
            killed += 1
    return killed


def wait_until_gone(run: HomeRun, seconds: float = 10.0) -> dict[Path, list[str]]:
    """Processes still alive after a while: none, if all is well."""
    end_s = time.monotonic() + seconds
    while (found := run.processes()) and time.monotonic() < end_s:
        time.sleep(SAMPLE_S)
    return {folder: [str(p) for p in left] for folder, left in found.items()}


def wait_for_steps(run: HomeRun, command: subprocess.Popen[str], steps: int) -> None:
    """Wait until the ranks of some attempt that runs have finished some steps."""
    while command.poll() is None:
        reports = run.home.root.glob("plans/*/children/train-*/report-0.jsonl")
        if any(x.read_text().count('"event": "step"') >= steps for x in reports):
            return
        time.sleep(0.05)
    raise AssertionError(command.communicate())
