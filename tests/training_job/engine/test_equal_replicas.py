"""Ranks that hold the same tensors hold the same values, or do not train at all."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.engine import Sharding
from plimsoll_trainer.engine import collectives
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.equal_replicas import check_replicas
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.workload import Tie
from tests.support.jobs import Job, events, texts
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
WHOLE = StageSlice(first_layer=0, end_layer=3)
MODEL = '''
import os
import random

import numpy as np
import torch
from torch import nn

from plimsoll_trainer.adapters.sequential import from_factories, from_sequential
from plimsoll_trainer.workload import Tie
from tests.support.workloads import mean_square, points, AdamW

AT_IMPORT = torch.randn(6)
FIELDS = {"loss": mean_square, "batch": points, "optimizer": AdamW()}

def unseeded(seed=0):
    first = nn.Linear(6, 6)
    with torch.no_grad():
        first.bias.copy_(AT_IMPORT)
        first.bias[0], first.bias[1] = random.random(), np.random.rand()
    return from_sequential(nn.Sequential(first, nn.Tanh(), nn.Linear(6, 6)), **FIELDS)

class Biased(nn.Linear):
    """Takes a value from its process, as of a clock; a resume does not mend it."""
    def __init__(self, value):
        super().__init__(6, 6)
        self.register_buffer("shift", torch.full((6,), value), persistent=False)
        self.register_buffer("table", torch.arange(6.0).flip(0))
    def forward(self, x):
        return super().forward(x) + self.shift

def shifted(value=None):
    value = float(os.getpid()) if value is None else value
    layers = {"in": lambda: Biased(0.0), "out": lambda: Biased(value)}
    return from_factories(layers, **FIELDS)

def tied():
    shared = Tie(places=(("in", "shift"), ("out", "shift")), constant=True)
    layers = {"in": lambda: Biased(0.0), "out": lambda: Biased(1.0)}
    return from_factories(layers, ties=(shared,), **FIELDS)
'''


@pytest.fixture
def their_job(job: Job) -> Job:
    """A job whose entry points draw and take what nobody seeded."""
    (job.folder / "tiny_model.py").write_text(MODEL)
    return job


def built_weights(folder: Path, arguments: dict[str, Any]) -> dict[str, Tensor]:
    """Weights as one rank builds them; runs in the forked process."""
    sys.path.insert(0, str(folder))
    workload = load_workload("tiny_model:unseeded", arguments)
    return build_stage(workload, WHOLE, CPU).state_dict()


def test_an_entry_point_that_nobody_seeded_builds_one_model(their_job: Job) -> None:
    """Equal to the bit in every process, whichever generator it draws from.

    The argument `seed` begins them elsewhere, where there is one.
    """
    one, two = run_ranks(built_weights, 2, their_job.folder, {})
    assert [*one] == ["layers.0.weight", "layers.0.bias", *[*two][2:]]
    assert all(torch.equal(one[name], two[name]) for name in one)
    [other] = run_ranks(built_weights, 1, their_job.folder, {"seed": 1})
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_replicas_of_such_an_entry_point_train(their_job: Job) -> None:
    """They are compared before the first step, and there is no difference."""
    plan = {"replicas": 2, "entrypoint": "tiny_model:unseeded"}
    options = {"plan": plan, "entrypoint": "tiny_model:unseeded"}
    assert their_job.run((0, 3), 1, **options) == [ExitCode.DONE] * 2


EMBEDDING = Tie(places=(("embedding", "token.weight"), ("head", "token.weight")))
QKVS = Tie(places=tuple((f"block.{i}", "qkv.weight") for i in (2, 0, 1)))


def train_and_compare(precision: str, in_place: bool) -> float:
    """Train three replicas of two stages, the second divided; compare all copies.

    Slices are exchanged as NCCL does it, or as gloo does.
    """
    workload = a_gpt(width=20, precision=precision, ties=(EMBEDDING, QKVS))
    first = StageSlice(first_layer=0, end_layer=2)
    last = StageSlice(first_layer=2, end_layer=5, sharding=Sharding.OPTIMIZER)
    trainer = Trainer(
        workload,
        slices=(first, last),
        boundaries=boundaries_of(workload, 2),
        num_micro_batches=2,
        world=join_world(2, 3, CPU),
    )
    with mock.patch.object(collectives, "goes_in_place", return_value=in_place):
        result = [trainer.run_step(step) for step in range(3)][-1]
    check_replicas(trainer, Control(timedelta(minutes=1)))
    return float(result.loss)


@pytest.mark.slow  # 4 s of CPU each: six ranks
@pytest.mark.parametrize(("precision", "in_place"), [("fp32", True), ("bf16", False)])
def test_copies_stay_equal_where_replicas_own_other_pieces(
    precision: str, in_place: bool
) -> None:
    """To the bit, on whole and divided stages that share tensors, with three replicas.

    A sum of three depends on the order, and pieces lie elsewhere on each stage.
    """
    assert len(set(run_ranks(train_and_compare, 6, precision, in_place))) == 1


def differing(job: Job, name: str, cuts: tuple[int, ...], **fields: Any) -> str:
    """Run what differs between ranks; return what each of them says, alike."""
    entrypoint = f"tiny_model:{name}"
    plan = {"entrypoint": entrypoint} | fields.pop("plan", {})
    ends = job.try_to_run(cuts, 3, plan=plan, entrypoint=entrypoint, **fields)
    lines = texts(ends)
    assert len(lines) == len(ends)
    assert len(set(lines)) == 1
    codes = [one["exit_code"] for one in events(job.report("report"), "failure")]
    assert codes == [ExitCode.UNEQUAL_REPLICAS] * len(ends)
    return lines[0]


def test_replicas_that_differ_do_not_train(their_job: Job) -> None:
    """Every rank says which tensor of which layer differs, and between whom."""
    line = differing(their_job, "shifted", (0, 1, 2), plan={"replicas": 2})
    assert line.startswith(
        "UnequalReplicasError: ranks 2 and 3 would train different models: 'shift' of "
        "layer 'out' differs between them; let the entry point and its factories build "
    )
    assert events(their_job.report("report"), "step") == []


def test_replicas_are_compared_after_a_resume_too(their_job: Job) -> None:
    """State that no checkpoint holds may differ then as well."""
    plan = {
        "entrypoint": "tiny_model:shifted",
        "replicas": 2,
        "arguments": json.dumps({"value": 1.0}),
    }
    common: dict[str, Any] = {"entrypoint": "tiny_model:shifted", "saves": True}
    their_job.run((0, 2), 2, plan=plan, report="before", **common)
    options = {"plan": {"replicas": 2}, "saves": True, "accept_other_data": True}
    assert "'shift' of layer 'out'" in differing(
        their_job, "shifted", (0, 2), **options
    )
    assert len(events(their_job.report("report"), "resumed")) == 2


def test_copies_of_a_tied_tensor_are_compared_over_stages(their_job: Job) -> None:
    """A table that is declared alike everywhere, and is not; it has one name."""
    line = differing(their_job, "tied", (0, 1, 2))
    assert "ranks 0 and 1 would train different models: 'shift' of layer 'in'" in line
