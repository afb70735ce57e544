"""A fine-tune from YAML alone, to a folder whose model has the loss of the trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from examples.tiny_qwen import main
from plimsoll_cli.__main__ import main as plimsoll
from plimsoll_cli.errors import ExitCode
from plimsoll_trainer.epochs import in_steps_of
from plimsoll_trainer.huggingface import finetune
from tests.support.home_runs import HomeRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
EXAMPLE = "finetune"
MEMORY = ("--device", "cpu", "--device-memory", "5MiB")
STEPS, EVERY = 8, 5
BATCH = 8
MOST_ERROR_PERCENT = 0.5
ARGUMENTS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": {"rank": 8, "merge": True}, "learning_rate": 0.01},
}


@pytest.mark.parametrize(
    ("name", "num_devices"),
    [pytest.param("full", 2, marks=pytest.mark.nightly), ("lora", 1)],
)
def test_a_model_is_tuned_and_written_back(
    name: str, num_devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the fewest devices, with the peaks that were predicted.

    The weights after some steps, read by transformers, have the loss that the trainer
    had in the next one.
    """
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model"
    main(model)
    arguments = {
        "model": str(model),
        "data": str(model / "notes.jsonl"),
        "sequence_length": 64,
        "learning_rate": 0.001,
        **ARGUMENTS[name],
    }
    run = HomeRun(tmp_path)
    text = (ROOT / f"examples/{EXAMPLE}.yaml").read_text()
    for before, after in (
        (f"name: {EXAMPLE}\n", f"name: {name}\n"),
        ("steps: 40\n", f"steps: {STEPS}\n"),
        ("checkpoint:\n", f"checkpoint:\n    everySteps: {EVERY}\n"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    begin, rest = text.split("    args:\n")
    training = rest[rest.index("  training:") :]
    run.manifest.write_text(f"{begin}    args: {json.dumps(arguments)}\n{training}")
    # No more devices than it takes: layers are profiled split by up to as many.
    ended = run.run(*MEMORY, "--devices", str(num_devices))
    assert ended.code == ExitCode.DONE, ended.err
    assert ended.status.plan is not None
    assert ended.status.plan.gpus == num_devices
    assert ended.status.observed is not None
    assert ended.status.observed.error_percent < MOST_ERROR_PERCENT
    plan = run.plan(name)
    assert plan is not None
    checkpoints = run.home.plan(plan.uid).checkpoints
    assert (checkpoints / "weights/config.json").is_file()
    assert ended.status.checkpoints is not None
    assert ended.status.checkpoints.weights == str(checkpoints / "weights")
    target = tmp_path / "weights"
    words = ("export-weights", name, "--step", str(EVERY), "--to", str(target))
    assert plimsoll([*words, "--home", str(run.home.root)]) == ExitCode.DONE

    load: Any = AutoModelForCausalLM.from_pretrained
    tuned = load(target, dtype=torch.bfloat16)
    workload = in_steps_of(finetune(**arguments), BATCH)
    inputs, targets = workload.batch(EVERY, 0, BATCH)
    with torch.no_grad():
        logits = tuned(input_ids=inputs).logits.float()
    loss = float(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
    losses = run.losses(name)
    assert loss == pytest.approx(losses[EVERY + 1], rel=1e-3)
    assert abs(loss - losses[1]) > 5e-3  # else a model that learns nothing would do
