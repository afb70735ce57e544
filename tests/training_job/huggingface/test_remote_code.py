"""Code that comes with a model is run if that is asked for, and stays with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface import finetune, pretrain
from plimsoll_trainer.huggingface.configurations import configuration_of
from plimsoll_trainer.huggingface.tasks import task_of
from plimsoll_trainer.workload import Workload
from tests.support.own_models import KIND, keep_code_in, write_own_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of such a model."""
    keep_code_in(tmp_path / "modules", monkeypatch)
    return write_own_model(tmp_path / "own")


def exported(workload: Workload, target: Path) -> dict[str, Tensor]:
    """Write all layers as they are first; the state of the model that is read."""
    states = {
        layer.name: build_layer(workload, place, torch.device("cpu")).state_dict()
        for place, layer in enumerate(workload.layers)
    }
    target.mkdir()
    assert workload.export is not None
    workload.export(states.__getitem__, target)
    load: Callable[..., Any] = AutoModelForCausalLM.from_pretrained
    state: dict[str, Tensor] = load(target, trust_remote_code=True).state_dict()
    return state


def test_code_is_not_run_unasked(folder: Path) -> None:
    """The message says how to ask."""
    (folder / "configuration_own.py").write_text("raise SystemExit('was run')")
    with pytest.raises(WorkloadError, match="--trust-remote-code"):
        configuration_of(str(folder))
    with pytest.raises(WorkloadError, match="trust_remote_code: true among the"):
        pretrain(str(folder), sequence_length=8)


def test_a_model_with_code_is_trained_and_written_with_it(
    folder: Path, tmp_path: Path
) -> None:
    """From fresh weights, and from those that were written; `transformers` reads both.

    Of fewer blocks as well.
    """
    config = configuration_of(str(folder), trust_remote_code=True)
    assert (config.model_type, task_of(config)) == (KIND, "text-generation")
    fresh = pretrain(str(folder), sequence_length=8, blocks=1, trust_remote_code=True)
    first = exported(fresh, tmp_path / "first")
    np.save(tokens := tmp_path / "tokens.npy", np.arange(64, dtype=np.int32))
    tuned = finetune(
        str(tmp_path / "first"),
        data=str(tokens),
        sequence_length=8,
        trust_remote_code=True,
    )
    second = exported(tuned, tmp_path / "second")
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_code_that_cannot_be_run_is_one_line(folder: Path) -> None:
    """With the library that it lacks."""
    (folder / "configuration_own.py").write_text("import no_such_library")
    with pytest.raises(WorkloadError, match=r"cannot be run: .*no_such_library"):
        configuration_of(str(folder), trust_remote_code=True)
