"""The page for people who bring a model: its examples are workloads that hold."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.probing.tensor_groups import SplitVariants
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.workload import Workload
from tests.support.chain_runs import built_layers, run_chain
from tests.support.ranks import run_on_device

PAGE = Path(__file__).parents[2] / "docs" / "workload.md"
NAME = "workload_of_the_page"


def read_page() -> ModuleType:
    """All examples in a row, as the module that a reader would write."""
    module = ModuleType(NAME)
    sys.modules[NAME] = module  # where classes look for what their module is
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        code = compile(block, str(PAGE), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - our own page
    return module


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The page, read once."""
    return read_page()


def test_every_example_is_a_workload_that_chains(page: ModuleType) -> None:
    """Built and run forward and backward, with its arguments left out."""
    made = {
        name: function()
        for name, function in vars(page).items()
        if inspect.isfunction(function)
        and inspect.signature(function).return_annotation is Workload
    }
    assert len(made) >= 8
    assert "workload_that_splits_sequences" in made
    for name, workload in made.items():
        assert len(boundaries_of(workload, 2).between) > 2, name
        part = StageSlice(first_layer=0, end_layer=len(workload.layers))
        x, targets = workload.batch(0, 0, 2)
        inputs = x if isinstance(x, tuple) else (x,)
        stage = build_stage(workload, part, torch.device("cpu"))
        stage(*inputs, targets=targets).backward()


def test_its_chain_of_any_module_is_the_module(page: ModuleType) -> None:
    """The example with two inputs gives what its module gives, of the same numbers."""
    workload = page.any_module()
    layers = built_layers(workload)
    inputs, _ = workload.batch(0, 0, 3)
    module = page.WithTime()
    named = {name: one for layer in layers for name, one in layer.named_parameters()}
    module.load_state_dict(named)
    assert torch.equal(run_chain(workload, layers, inputs), module(*inputs))


def split_of_page() -> SplitVariants:
    """Degrees by which ranks share the layers of the page."""
    return Prober(read_page().workload_that_is_split(), [1], (1, 2, 4, 8)).split


def test_the_split_of_the_page_is_its_layer() -> None:
    """Two and four ranks share four heads; eight cannot."""
    split = run_on_device(split_of_page)
    assert [one.tensor_degree for one in split.possible] == [1, 2, 4]
    assert split.not_compared == ()
    assert [one.tensor_degree for one in split.left_out] == [8]


def test_the_sequences_of_its_example_are_split(page: ModuleType) -> None:
    """Every layer gives its part on two ranks, and on four."""
    prober = Prober(page.workload_that_splits_sequences(), [1], (1, 2, 4, 16))
    variants = prober.split.possible
    assert [v.tensor_degree for v in variants if v.sequence_parallel] == [2, 4]
    [left_out] = prober.split.left_out
    assert "of which 16 ranks cannot split the sequence" in left_out.why
