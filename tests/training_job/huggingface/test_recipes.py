"""Optimizer, schedule and precision by name, from the arguments of a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn

from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface import finetune, pretrain
from plimsoll_trainer.workload import Workload


def tuned(model: Path, **fields: Any) -> Workload:
    """A fine-tune of the small model."""
    data = str(model / "notes.jsonl")
    return finetune(str(model), data=data, sequence_length=32, **fields)


def test_a_recipe_is_what_its_arguments_say(model: Path) -> None:
    """Names alone, or with fields of their own, which win over those that all have."""
    workload = tuned(
        model,
        precision="fp32",
        optimizer={"name": "sgd", "momentum": 0.5, "learning_rate": 0.2},
        learning_rate=0.1,
        weight_decay=0.3,
        schedule={"name": "linear", "num_steps": 10, "warmup_steps": 2},
    )
    assert workload.precision is Precision.FP32
    made = workload.optimizer([nn.Parameter(torch.zeros(2, 2))])
    assert isinstance(made, torch.optim.SGD)
    [group] = made.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.2, 0.5, 0.3)
    factors = [workload.learning_rate_factor(step) for step in (0, 1, 2, 6, 10)]
    assert factors == [0.0, 0.5, 1.0, 0.5, 0.0]


def test_an_evaluation_has_samples_of_its_own(model: Path, tmp_path: Path) -> None:
    """Cut as those of training are, all of them unless a number is given."""
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text('{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n' * 8)
    workload = tuned(
        model,
        evaluation={"data": str(held_out), "every_steps": 5, "patience": 2},
        stops_at_nan=False,
    )
    evaluation = workload.evaluation
    assert evaluation is not None
    assert (evaluation.number, evaluation.every_steps) == (2, 5)
    assert evaluation.early_stop is not None
    assert evaluation.early_stop.patience == 2
    inputs, _ = evaluation.batch(0, 0, 2)
    assert inputs[0, :10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    assert not workload.stops_at_nan


def test_fresh_weights_take_the_same_recipes(model: Path) -> None:
    """By the other entry point."""
    workload = pretrain(
        str(model), sequence_length=32, precision="bf16-pure", optimizer="adafactor"
    )
    assert workload.precision is Precision.PURE_BF16
    made = workload.optimizer([nn.Parameter(torch.zeros(2, 2))])
    assert isinstance(made, torch.optim.Adafactor)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"optimizer": "adam"}, "optimizer 'adam': did you mean 'adamw'"),
        ({"optimizer": {"momentum": 1}}, "has no name: give one, or fields such as"),
        ({"optimizer": {"name": "sgd", "beta": 1}}, "'sgd' takes no 'beta'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        (
            {"schedule": {"name": "linear", "steps": 1}},
            "schedule.steps: no such field; did you mean num_steps",
        ),
        (
            {"schedule": {"name": "linear", "num_steps": 2, "warmup_steps": 2}},
            "num_steps 2 of a linear schedule is not above",
        ),
        ({"evaluation": {}}, "evaluation has no data: give some"),
        (
            {"evaluation": {"data": "a", "every": 1}},
            "evaluation.every: no such field; did you mean",
        ),
        ({"optimizer": None}, "optimizer None has no name"),
        ({"optimizer": {"name": "sgd", "momentum": "x"}}, "momentum: got 'x', allowed"),
        (
            {"optimizer": {"name": "adamw", "betas": 0.9}},
            "optimizer 'adamw' with .*bet",
        ),
        (
            {"optimizer": {"name": "sgd", "nesterov": True}},
            "Nesterov momentum requires",
        ),
        (
            {"optimizer": {"name": "sgd", "mode": "foo"}},
            "mode: got 'foo', allowed is one",
        ),
        ({"learning_rate": "2e-5"}, "learning_rate: got '2e-5', allowed is a finite"),
        (
            {"evaluation": "held.jsonl"},
            "evaluation: got 'held.jsonl', allowed is a map",
        ),
        ({"frozen": "model.*"}, "frozen: got 'model.*', allowed is a list"),
        ({"precision": "int4"}, "precision 'int4': one of fp32, bf16"),
    ],
)
def test_unknown_names_are_refused(
    fields: dict[str, Any], message: str, model: Path
) -> None:
    """With those that are known."""
    with pytest.raises(WorkloadError, match=message):
        tuned(model, **fields)
