"""Models that form no chain, trained on the fewest devices, by layers and by operators.

For each of twelve models and both engines: `plimsoll run --prove` on emulated devices
of a given memory, then the same steps on one device that is large enough. What is
compared: the peaks of all ranks with what was predicted, losses with those of the one
device, and one device fewer, which is run and has to run out of memory unless bounds
leave it undecided. Written to docs/benchmarks/branching.md.

    python -m benchmarks.branching t5 bart     these models alone, no page
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.frame import ROOT, Goal, Measurement, run
from benchmarks.support.branching_models import MODELS
from benchmarks.support.pages import markdown, write_page

ENGINES = {"plimsoll": "layers", "graph": "operators"}
FIXED: dict[str, dict[str, object]] = {
    "plimsoll": {"data": 1, "optimizerHome": "device"},
    "graph": {},
}
"""So that chains are pipelines: replicas may divide state as well, and need no cuts."""
NUM_DEVICES, STEPS = 4, 6
KIB, STATE_BYTES = 2**10, 16
"""State of a parameter with Adam in fp32."""
PEAK_ERROR, LOSS_ERROR = 0.5, 1e-5
"""Percent, and relative."""
ENTRYPOINT = "benchmarks.support.branching_models:workload"
LARGE = "64GiB"
HEAD = (
    *("model", "parameters", "device", "of state", "planned by", "plan"),
    *("worst peak off by", "losses off by", "one device fewer"),
)
PROSE = """# Models that form no chain

`make bench-branching` writes this page. Each module goes through `from_module`, and is
planned twice: cut into layers for a pipeline (engine plimsoll), and operator by
operator (engine graph). Chains have one replica and the optimizer on the device, so
that they are cut into stages. Where norms over the batch train, the micro-batch is 4;
else the search has chosen it. A device has room for a part of parameters, gradients and
Adam's state, which is stated; that is more than all of it where activations are most
of what a layer needs. Plans are run for 6 steps of 8 samples by real processes on
emulated devices, and so is one device that is large enough, with the same micro-batch,
for the losses. The last column is the verdict on one device fewer, and what running
each of its meshes came to.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """One plan, and what became of it."""

    status: dict[str, Any]
    """As the command prints it."""

    @property
    def losses(self) -> list[float]:
        """By step."""
        return [one["loss"] for one in self.status["losses"]]

    @property
    def plan(self) -> dict[str, Any]:
        """Summary of the plan."""
        found: dict[str, Any] = self.status["plan"]
        return found

    @property
    def error_percent(self) -> float:
        """Worst error of a predicted peak."""
        return float(self.status["observed"]["errorPercent"])

    def fewer(self) -> str:
        """What one device fewer came to."""
        if self.plan["gpus"] == 1:
            return "-"
        verdict = self.status["certificate"]["verdict"]
        runs = self.status.get("proofRuns", [])
        died = sum("out of device memory" in one["message"] for one in runs)
        text = f"{verdict}; {died} of {len(runs)} meshes ran out of memory"
        return text if runs else f"{verdict}; nothing to run"


def manifest(name: str, engine: str, micro_batch: int | None = None) -> dict[str, Any]:
    """A plan of a model."""
    fixed = {"microBatch": micro_batch} if micro_batch else FIXED[engine]
    if statistics := MODELS[name].micro_batch:
        fixed = {**fixed, "microBatch": statistics}
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": f"alone-{micro_batch}" if micro_batch else engine},
        "spec": {
            "workload": {"entrypoint": ENTRYPOINT, "args": {"name": name}},
            "training": {"globalBatchSize": 8, "steps": STEPS},
            "search": {"engine": engine},
            "override": fixed,
        },
    }


def ran(
    home: str,
    name: str,
    engine: str,
    memory: str,
    num_devices: int = NUM_DEVICES,
    micro_batch: int | None = None,
) -> Ran | str:
    """Run a model; why that failed. Runs in one home share profiles."""
    path = Path(home) / "plan.yaml"
    path.write_text(json.dumps(manifest(name, engine, micro_batch)))
    done = plimsoll(
        *("run", str(path), "--device", "cpu", "--devices", str(num_devices)),
        *("--device-memory", memory, "--prove", "-o", "json", "--home", home),
    )
    status = json.loads(done.stdout) if done.stdout.strip() else {}
    if not status.get("losses"):
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return Ran(status=status)


def plimsoll(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(  # noqa: S603 - our own module
        (sys.executable, "-m", "plimsoll_cli", *words),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "400"},
    )


def measure() -> Iterator[Measurement]:
    """Run every model under both engines."""
    rows, wanted = list[tuple[str, ...]](), sys.argv[1:]
    for name in MODELS:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as home:
            yield from of_model(home, name, rows)
    if not wanted:
        write_page("branching", PROSE, [("Models", markdown(HEAD, rows))])


def of_model(
    home: str, name: str, rows: list[tuple[str, ...]]
) -> Iterator[Measurement]:
    """Run one model under both engines, and add its rows."""
    with torch.device("meta"):
        count = sum(one.numel() for one in MODELS[name].build().parameters())
    room = MODELS[name].room
    memory = f"{room * STATE_BYTES * count / KIB:.0f}KiB"
    alone = cache(lambda samples: ran(home, name, "plimsoll", LARGE, 1, samples))
    for engine, words in ENGINES.items():
        found = ran(home, name, engine, memory)
        about = (name, f"{count / 1e3:.0f} k", memory, f"{room:.0%}", words)
        if isinstance(found, str):
            print(name, engine, found, flush=True)
            rows.append((*about, found, *["-"] * 3))
            continue
        whole = alone(found.plan["microBatch"])
        assert isinstance(whole, Ran), whole  # noqa: S101 - it has all room
        gap = max(
            abs(one - other) / abs(other)
            for one, other in zip(found.losses, whole.losses, strict=True)
        )
        rows.append((*about, *cells(found, gap)))
        print(*rows[-1], sep=" | ", flush=True)
        yield from figures(f"{name}, by {words}", found.error_percent, gap)


def cells(found: Ran, gap: float) -> tuple[str, ...]:
    """Cells of a plan that was run."""
    plan = found.plan
    mesh = f"{plan['gpus']} devices: {plan['pipeline']} x {plan['data']} replicas"
    return mesh, f"{found.error_percent:.2g} %", f"{gap:.1g}", found.fewer()


def figures(what: str, error_percent: float, gap: float) -> Iterator[Measurement]:
    """Yield the figures of one run, with their bars."""
    yield Measurement(
        name=f"{what}: worst peak",
        runs=(error_percent,),
        unit="%",
        goal=Goal(at_most=PEAK_ERROR),
    )
    yield Measurement(
        name=f"{what}: losses", runs=(gap,), unit="", goal=Goal(at_most=LOSS_ERROR)
    )


if __name__ == "__main__":
    sys.exit(run("branching", measure))
