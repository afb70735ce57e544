"""Runs that know their profile and replays already, for all tests of the loop."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from tests.support.home_runs import EIGHT, LARGE, STEPS, HomeRun

OWN_MODEL = """
from functools import partial
from pathlib import Path
from torch import nn
from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.workload import AdamW
from torch.nn import functional
import os
import time
import torch

HERE = Path(__file__).parent

class Slow(nn.Module):
    # Takes longer on rank 1 while a file is there; else as long everywhere, so that
    # stages get about as many layers whatever else the machine has to do.

    def forward(self, x):
        is_slow = os.environ.get("RANK") == "1" and (HERE / "slow").exists()
        time.sleep(0.02 if is_slow else 0.002)
        return x

def layer(wide_in, wide_out):
    return nn.Sequential(nn.Linear(wide_in, wide_out), nn.GELU(), Slow())

def has_come_to(name, step):
    try:
        return step >= int((HERE / name).read_text())
    except FileNotFoundError:
        return False

def batch(step, first, count):
    while has_come_to("wait_at", step):
        time.sleep(0.02)
    if has_come_to("raise_at", step):
        raise ValueError("no sample of this step")
    if has_come_to("eat_at", step):
        eaten = [bytearray(2**20) for _ in range(2**14)]
    samples = []
    for sample in range(first, first + count):
        torch.manual_seed(1000 * step + sample)
        samples.append(torch.randn(16, 32))
    x = torch.stack(samples)
    return x, x[..., :8].argmax(dim=-1)

def loss(logits, classes):
    return functional.cross_entropy(logits.flatten(0, 1), classes.flatten())

def workload():
    if (HERE / "fill").exists():
        torch.zeros(2**22)  # 16 MiB, more than the devices of these tests have
    middle = partial(layer, 192, 192)
    layers = {"first": partial(layer, 32, 192)}
    layers |= {f"middle.{i}": middle for i in range(6)}
    layers["last"] = partial(nn.Linear, 192, 8)
    return from_factories(
        layers, loss=loss, batch=batch, optimizer=AdamW(learning_rate=1e-3)
    )

def no_workload():
    return 42
"""


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[HomeRun, float]:
    """A run that nobody kills, with a full cache, and the seconds that it takes."""
    run = HomeRun(tmp_path_factory.mktemp("undisturbed")).write()
    first = run.run()
    assert first.code == ExitCode.DONE, first.err
    begin_s = time.monotonic()
    again = run.run()
    assert again.code == ExitCode.DONE, again.err
    assert sorted(run.losses()) == list(range(1, STEPS + 1))
    return run, time.monotonic() - begin_s


@pytest.fixture(scope="session")
def own_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[HomeRun, Path]:
    """A run of a model in a folder of its own, profiled, replayed and trained once.

    Its plan for one large device is replayed as well.
    """
    code = tmp_path_factory.mktemp("code")
    (code / "own.py").write_text(OWN_MODEL)
    run = HomeRun(tmp_path_factory.mktemp("own"))
    run.write(entrypoint="own:workload", args="{}")
    ended = run.run(code=code)
    assert ended.code == ExitCode.DONE, ended.err
    dry = "launch: {policy: PlanOnly}"
    run.write(entrypoint="own:workload", args="{}", name="large", extra=dry)
    planned = run.run(*LARGE, code=code)
    assert planned.code == ExitCode.DONE, planned.err
    words = ["delete", "large", "--yes", "--home", str(run.home.root)]
    assert main(words) == ExitCode.DONE
    run.write(entrypoint="own:workload", args="{}")
    return run, code


@pytest.fixture(scope="session")
def on_eight(
    own_model: tuple[HomeRun, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[HomeRun, str]:
    """A run that knows the own model's plan for eight devices, and less than it needs.

    That memory is less than the plan's peak; it is an option of the command.
    """
    model, code = own_model
    run = model.copy(tmp_path_factory.mktemp("eight"))
    dry = "launch: {policy: PlanOnly}"
    run.write(entrypoint="own:workload", args="{}", name="dry", extra=dry)
    planned = run.run(*EIGHT, code=code)
    assert planned.status.plan is not None, planned.err
    words = ["delete", "dry", "--yes", "--home", str(run.home.root)]
    assert main(words) == ExitCode.DONE
    peak_bytes = planned.status.plan.predicted_peak_bytes
    return run, f"{int(0.85 * peak_bytes) // 2**10}KiB"


@pytest.fixture
def run(own_model: tuple[HomeRun, Path], tmp_path: Path) -> HomeRun:
    """A run that knows the own model's profile and replay."""
    return own_model[0].copy(tmp_path)


@pytest.fixture
def code(own_model: tuple[HomeRun, Path]) -> Generator[Path]:
    """The folder of the own model; what a test changes there is undone."""
    folder = own_model[1]
    text = (folder / "own.py").read_text()
    yield folder
    (folder / "own.py").write_text(text)
    for name in ("wait_at", "raise_at", "eat_at", "fill", "slow"):
        (folder / name).unlink(missing_ok=True)
