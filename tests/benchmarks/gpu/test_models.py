"""The models of `make gpu` have the sizes of those that they are named after."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.models import NAMES, workload
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.workload import Workload

PARAMETERS = {
    "gpt2-bf16-512": 124_439_808 - 512 * 768,
    "gpt2-medium-fp32-1024": 354_823_168,
    "gpt2-xl-bf16-1024": 1_557_611_200,
    "llama-1b-bf16-4096": 1_235_814_400,
    "llama-3b-bf16-2048": 3_212_749_824,
    "qwen-0.5b-bf16-4096": 494_032_768,
}
"""As transformers counts them; GPT-2 here has half of its positions, 512."""
MOST_ERROR = 0.001
"""Biases and norms differ a little between implementations."""


def num_parameters(made: Workload) -> int:
    """Numbers of all layers, tied ones once."""
    total = 0
    tied = {place for tie in made.ties for place in tie.places[1:]}
    with torch.device("meta"):
        for layer in made.layers:
            for name, parameter in layer.factory().named_parameters():
                total += parameter.numel() * ((layer.name, name) not in tied)
    return total


@pytest.mark.parametrize("model", PARAMETERS)
def test_a_model_has_the_public_number_of_parameters(model: str) -> None:
    """Within a thousandth."""
    found = num_parameters(workload(model=model))
    assert found == pytest.approx(PARAMETERS[model], rel=MOST_ERROR)


@pytest.mark.parametrize("model", NAMES)
def test_a_small_model_chains(model: str) -> None:
    """Every layer takes what the one before gives, and the loss is a scalar."""
    made = workload(model=model, tiny=True)
    shapes = boundaries_of(made, micro_batch=2)
    assert len(shapes.between) == len(made.layers) + 1
    assert num_parameters(made) < 10_000_000
