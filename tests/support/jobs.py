"""Training jobs of tests: real ranks that run the whole training process.

A job has a folder with its workload, its plans and its reports. Ranks are forked from
the server of `ranks`, so a job takes a second; `command` starts them as users do.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_trainer.emulated import device
from plimsoll_trainer.process.admission import Place, admit
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.process.run import run
from plimsoll_trainer.process.stopping import StopSignal
from tests.support.plans import ENTRYPOINT, write_plan
from tests.support.ranks import Died, run_ranks, try_ranks

MODEL = """
from plimsoll_planner.records.model_profile import Precision
from tests.support.workloads import a_gpt

def workload(*, precision="fp32", **fields):
    fields = {"depth": 3, "width": 16} | fields
    return a_gpt(precision=Precision(precision), **fields)

def trained(*, depth=3, width=16, **fields):
    from tests.support.workloads import a_trained_gpt
    return a_trained_gpt(depth=depth, width=width, **fields)

def fails_in_backward(**fields):
    return a_gpt(loss=bad_loss, **fields)

def with_momentum(**fields):
    import torch
    from functools import partial
    sgd = partial(torch.optim.SGD, momentum=0.9, fused=True)
    return workload(optimizer=sgd, **fields)

def counting_in_floats(**fields):
    import torch
    class Counting(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters, fused=True)
        def step(self):
            super().step()
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["count"] = 1.0
    return workload(optimizer=Counting, **fields)

def with_data():
    import torch
    global DATA
    DATA = torch.ones(2**20)
    return workload()

def loss_of_nothing(**fields):
    return workload(loss=lambda logits, targets: logits.mean() * float("nan"), **fields)

def idle(**fields):
    from tests.support.workloads import with_unused
    return with_unused(loss_of_nothing(**fields))

def lost_after(step, **fields):
    def factor(at):
        return float("inf") if at + 1 == step else 1.0
    return workload(learning_rate_factor=factor, **fields)

def falling(**numbers):
    from plimsoll_trainer.schedules import schedule_named
    return workload(learning_rate_factor=schedule_named("linear", **numbers))

def evaluated(every_steps=2, patience=0, learning_rate=1e-3, num_samples=5, **fields):
    from plimsoll_trainer.evaluation import EarlyStop, Evaluation
    from plimsoll_trainer.workload import AdamW
    from tests.support.workloads import tokens
    evaluation = Evaluation(
        data=lambda step, first, count: tokens(10**6, first, count),
        num_samples=num_samples,
        every_steps=every_steps,
        early_stop=EarlyStop(patience=patience) if patience else None,
    )
    optimizer = AdamW(learning_rate=learning_rate)
    return workload(evaluation=evaluation, optimizer=optimizer, **fields)

class Recorder:
    def write(self, *words):
        from pathlib import Path
        with Path(__file__).with_name("calls.txt").open("a") as file:
            print(*words, file=file)
    def on_start(self, run): self.write("start", run.first_step, run.num_steps)
    def on_step(self, figures): self.write("step", figures.step)
    def on_evaluation(self, figures): self.write("evaluation", figures.step)
    def on_end(self, end): self.write("end", end.step, end.ending)

class Failing:
    def on_step(self, figures):
        if figures.step == 2:
            raise OSError("no more of this")

def pausing(step, first, count):
    import time
    from tests.support.workloads import tokens
    time.sleep(0.04 if step else 0)
    return tokens(step, first, count)

def raising(step, first, count):
    from tests.support.workloads import tokens
    if (step, first) == (2, 4):
        raise ValueError("no such row")
    return tokens(step, first, count)

def made_ahead(batch, workers):
    return workload(batch=globals()[batch], loading_workers=workers)

def streamed(state=False, workers=0):
    from plimsoll_trainer.streams import Stream
    from tests.support.streams import Rows, RowsWithState
    rows = (RowsWithState if state else Rows)(11)
    return workload(batch=Stream(samples=rows), loading_workers=workers)

def exporting():
    return workload(export=export)

def export(read, folder):
    import torch
    from pathlib import Path
    torch.save(read("head"), folder / "head.pt")
    fault = Path(__file__).with_name("fault")
    if fault.exists():
        number = int(fault.read_text())
        raise OSError(number, "no room", "a file") if number else ValueError("no room")

def counting(count):
    import torch
    def loss(logits, targets):
        return logits.sum(), torch.tensor(float(count))
    return a_gpt(loss=loss)

def loss_of_a_vector():
    return a_gpt(loss=lambda logits, targets: logits.mean((1, 2)))

def bad_loss(logits, targets):
    import torch
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(context, x): return x.sum()
        @staticmethod
        def backward(context, grad): raise ValueError("no gradient of this")
    return Bad.apply(logits)
"""
SPLIT_MODEL = """
from plimsoll_planner.records.model_profile import Precision
from tests.support.split_workloads import a_split_gpt

def workload(*, precision="fp32", **fields):
    fields = {"depth": 3, "width": 16} | fields
    return a_split_gpt(precision=Precision(precision), **fields)
"""
ROOT = Path(__file__).parents[2]
LITTLE_ROOM = 40_960
"""Bytes: less than a checkpoint of the tiny model takes."""


@dataclass(frozen=True, kw_only=True)
class Signal:
    """A signal that a rank gets."""

    number: signal.Signals
    delay_s: float = 0.0
    from_first_step: bool = False
    """The delay begins when the report has a step, not when the rank starts."""

    def send(self, report: Path) -> None:
        """Send it to this process, now or later."""
        if self.delay_s or self.from_first_step:
            threading.Thread(target=self._wait, args=(report,), daemon=True).start()
        else:
            os.kill(os.getpid(), self.number)

    def _wait(self, report: Path) -> None:
        """Send it in time."""
        while self.from_first_step and not (
            report.exists() and '"event": "step"' in report.read_text()
        ):
            time.sleep(0.01)
        time.sleep(self.delay_s)
        os.kill(os.getpid(), self.number)


@dataclass(frozen=True)
class Job:
    """One job; every run of it may be under another plan."""

    folder: Path

    def __post_init__(self) -> None:
        """Write the workload and find it from here on."""
        for name, text in (("tiny_model", MODEL), ("split_model", SPLIT_MODEL)):
            (self.folder / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)

    @property
    def checkpoints(self) -> Path:
        """Folder of runs that save."""
        return self.folder / "checkpoints"

    def report(self, name: str) -> Path:
        """Report file of a run."""
        return self.folder / f"{name}.jsonl"

    def options(
        self,
        cuts: Sequence[int],
        steps: int,
        *,
        report: str = "report",
        saves: bool = False,
        args: str = "{}",
        plan: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Options:
        """Describe a run.

        Args:
            cuts: of the plan.
            steps: of the whole job.
            report: name of the report file.
            saves: whether the run uses the job's checkpoints.
            args: of the entry point, as the plan carries them.
            plan: fields of the plan.
            fields: of the options.
        """
        plan_fields = {"arguments": args} | dict(plan or {})
        path = write_plan(self.folder, cuts, **plan_fields)
        defaults: dict[str, Any] = {"entrypoint": ENTRYPOINT}
        if saves:
            defaults["checkpoint_dir"] = self.checkpoints
        return Options(
            plan=path,
            steps=steps,
            report_file=str(self.report(report)),
            **(defaults | fields),
        )

    def run(self, cuts: Sequence[int], steps: int, **fields: Any) -> list[int]:
        """Run all ranks; return their exit codes."""
        options = self.options(cuts, steps, **fields)
        return run_ranks(train, num_ranks(options), self.folder, options)

    def try_to_run(
        self,
        cuts: Sequence[int],
        steps: int,
        *,
        signals: Mapping[int, Signal] | None = None,
        caps_bytes: Sequence[int] | None = None,
        local_rank: int | None = None,
        **fields: Any,
    ) -> list[int | Died]:
        """Run all ranks, some of which may die.

        Args:
            cuts: of the plan.
            steps: of the whole job.
            signals: what some ranks get.
            caps_bytes: of the devices.
            local_rank: of every rank; by default its rank.
            fields: see `options`.
        """
        options = self.options(cuts, steps, **fields)
        caps = caps_bytes or [0] * num_ranks(options)
        return try_ranks(train, caps, self.folder, options, signals or {}, local_rank)

    def command(
        self, words: Sequence[str], options: Options, *, cap_bytes: int | None = None
    ) -> subprocess.Popen[str]:
        """Start the command as users do.

        Args:
            words: the launcher with its own options.
            options: plan, entry point, steps and the folders are passed on.
            cap_bytes: of emulated devices that are started as such; None leaves it to
                the command itself.
        """
        given: dict[str, object] = {
            "--plan": options.plan,
            "--entrypoint": options.entrypoint,
            "--steps": options.steps,
            "--report-file": options.report_file,
            "--checkpoint-every": options.checkpoint_every,
        }
        if options.checkpoint_dir:
            given["--checkpoint-dir"] = options.checkpoint_dir
        flat = [str(word) for pair in given.items() for word in pair]
        return subprocess.Popen(
            [sys.executable, "-m", *words, *flat],
            env=os.environ
            | ({} if cap_bytes is None else device.environment(cap_bytes))
            | {"PYTHONPATH": f"{self.folder}:{ROOT}", "OMP_NUM_THREADS": "1"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def train_on_a_full_disk(folder: Path) -> None:
    """Train, saving to a disk that has little room until the ranks wait for it.

    The job's own folder lies above; prints what lies there while they wait, and the
    exit codes.
    """
    job, ballast = Job(folder.parent), folder / "ballast"
    sys.path.insert(0, str(job.folder))
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    os.truncate(ballast, ballast.stat().st_size - LITTLE_ROOM)
    report = job.report("report")

    def make_room() -> None:
        while not (report.exists() and '"waits": true' in report.read_text()):
            time.sleep(0.01)
        left = [path.name for path in folder.glob("step-*")]
        sys.stdout.write(f"left {left}\n")
        ballast.unlink()

    threading.Thread(target=make_room, daemon=True).start()
    codes = job.run((0, 2, 5), 6, checkpoint_dir=folder, checkpoint_every=2)
    sys.stdout.write(f"exit {codes}\n")


def num_ranks(options: Options) -> int:
    """Number of ranks of a plan."""
    plan = json.loads(options.plan.read_text())
    return sum(len(stage["ranks"]) for stage in plan["stages"])


def train(
    folder: Path,
    options: Options,
    signals: Mapping[int, Signal] | None = None,
    local_rank: int | None = None,
) -> int:
    """Be one rank of a job; runs in the forked process."""
    import torch.distributed as dist  # noqa: PLC0415 - the server has it

    rank = dist.get_rank()
    sys.path.insert(0, str(folder))
    stop = StopSignal()
    stop.listen()
    if wanted := (signals or {}).get(rank):
        wanted.send(Path(options.report_file or ""))
    place = Place(
        rank=rank,
        num_ranks=dist.get_world_size(),
        local_rank=rank if local_rank is None else local_rank,
    )
    return int(run(admit(options, place), stop))


def events(report: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of one kind in a report file."""
    lines = [json.loads(line) for line in report.read_text().splitlines() if line]
    return [line for line in lines if line["event"] == kind]


def losses(*reports: Path) -> dict[int, float]:
    """Loss of every step; a step that was run again replaces."""
    return {
        line["step"]: line["loss"] for path in reports for line in events(path, "step")
    }


def texts(ends: Collection[int | Died]) -> list[str]:
    """Last lines of the ranks that died, one for each."""
    return [end.text.splitlines()[0] for end in ends if isinstance(end, Died)]
