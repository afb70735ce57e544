"""Capture of a step: what is in the graph, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_trainer.errors import OtherWorkloadError, WorkloadError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.costs import Costs, OptimizerCost
from plimsoll_trainer.placed.graph import CapturedGraph, Kind
from plimsoll_trainer.placed.profile import profile_of, require_same
from plimsoll_trainer.placed.workload import Tensors, of_chain
from tests.support.branching import SAMPLES, branching, loss_of
from tests.support.workloads import a_gpt


class Small(nn.Module):
    """Everything that needs care, in a few operators."""

    def __init__(self, change: Callable[[nn.Module, Tensor], Tensor]) -> None:
        """Make two layers that share a weight, a norm, and what nobody uses."""
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.norm, self.unused = nn.BatchNorm1d(16), nn.Linear(2, 2)
        self.dropout, self.change = nn.Dropout(0.5), change
        self.scale, self.hidden = torch.full((16,), 0.5), [torch.ones(16)]
        self.memory = nn.LSTM(16, 16, batch_first=True)
        self.unbiased = nn.LSTM(16, 16, bias=False, batch_first=True)
        self.table = nn.Embedding(2, 16, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        """Pass through all that is used."""
        h = torch.relu_(self.norm(self.first(x)))
        found: Tensor = self.dropout(self.second(self.change(self, h)))
        return found[:, :4]


def as_it_is(model: nn.Module, h: Tensor) -> Tensor:
    """Change nothing."""
    del model
    return h


def captured(
    change: Callable[[nn.Module, Tensor], Tensor] = as_it_is,
) -> CapturedGraph:
    """Graph of the small model with a change."""
    return capture(branching(model=lambda: Small(change)), SAMPLES)


@pytest.fixture(scope="module")
def graph() -> CapturedGraph:
    """Graph of the small model as it is."""
    return captured()


def test_gradients_are_of_what_is_trained_and_used(graph: CapturedGraph) -> None:
    """A shared weight has one; frozen and unused parameters, and buffers, have none."""
    trained = {one.name for one in graph.states if one.gradient is not None}
    assert trained == {"first.weight", "first.bias", "norm.weight", "norm.bias"}
    others = {one.name for one in graph.states} - trained
    assert {"second.bias", "unused.weight", "norm.running_mean"} <= others
    assert "second.weight" not in others


def test_operators_are_named_after_the_module_that_calls_them(
    graph: CapturedGraph,
) -> None:
    """Backward ones after that of their forward one; parts of a result as well."""
    kinds = (Kind.CALL, Kind.PART)
    names = [node.name for node in graph.nodes if node.kind in kinds]
    origins = {name.rpartition("/")[0] for name in names}
    modules = {"first", "norm", "second", "dropout"}
    backward = {f"{one}/backward" for one in modules}
    assert modules | backward <= origins
    assert "first/backward/mm" in {name.rstrip("_0123456789") for name in names}
    assert {"norm/getitem", "relu"} <= set(names)  # the model itself calls relu
    inputs = [node.name for node in graph.nodes if node.kind is Kind.INPUT]
    assert inputs == ["batch.0", "batch.1"]


def test_operators_of_a_chain_are_named_after_its_layers() -> None:
    """Modules within a layer come behind its name."""
    workload = of_chain(a_gpt())
    names = [node.name for node in capture(workload, SAMPLES).nodes]
    expected = {"embedding.token", "block.0", "block.1.qkv", "block.2.mlp.0"}
    assert expected <= {name.partition("/")[0] for name in names}


def test_nothing_is_written_but_buffers_by_a_node_beside_them(
    graph: CapturedGraph,
) -> None:
    """It stands in the buffer's group, and waits for those that read the old value."""
    writes = [node for node in graph.nodes if node.target.split(".")[1:2] == ["copy_"]]
    states = {one.name: one.node for one in graph.states}
    written = {node.inputs[0] for node in writes}
    assert written == {
        states[f"norm.{name}"]
        for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    for node in writes:
        buffer = graph.nodes[node.inputs[0]]
        assert node.storages == buffer.storages
        readers = {
            index
            for index, one in enumerate(graph.nodes)
            if node.inputs[0] in one.inputs and one is not node
        }
        assert readers <= {*node.waits, *node.inputs}
    others = (n.target.split(".") for n in graph.nodes if n.target and n not in writes)
    assert not any(name[1].endswith("_") for name in others)


def test_what_shares_memory_is_in_one_group(graph: CapturedGraph) -> None:
    """Views with what they view, results with the operator that returns several."""
    groups = graph.groups
    first: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        for storage in node.storages:
            assert groups[first.setdefault(storage, index)] == groups[index]
        if node.kind is Kind.PART:
            assert groups[index] == groups[node.inputs[0]]
    assert len(set(groups)) < len(groups)
    assert any(node.is_random for node in graph.nodes)


def depends_on_numbers(model: nn.Module, h: Tensor) -> Tensor:
    """Go another way where a sum is positive."""
    del model
    return h if h.sum() > 0 else -h


def picks(model: nn.Module, h: Tensor) -> Tensor:
    """Take as many numbers as are positive."""
    del model
    return h + h[h > 0].sum()


def draws(model: nn.Module, h: Tensor) -> Tensor:
    """Multiply by a random number of Python."""
    del model
    return h * random.random()  # noqa: S311 - the fault


def has_generator(model: nn.Module, h: Tensor) -> Tensor:
    """Add noise of a generator."""
    del model
    return h + torch.rand(h.shape, generator=torch.Generator())


def detaches(model: nn.Module, h: Tensor) -> Tensor:
    """Let no gradient through, and train nothing behind."""
    model.requires_grad_(False)
    return h.detach()


def replaces_buffer(model: nn.Module, h: Tensor) -> Tensor:
    """Put a new mean in the place of the one that was gathered."""
    norm = model.get_submodule("norm")
    norm.running_mean = h.detach().mean(0)
    return h


def replaces_attribute(model: nn.Module, h: Tensor) -> Tensor:
    """Grow a number that is no buffer."""
    scale = model.scale
    assert isinstance(scale, Tensor)
    model.scale = scale + 1
    return h * scale


def hides(model: nn.Module, h: Tensor) -> Tensor:
    """Use a tensor of a list."""
    hidden: Any = model.hidden
    return h * cast("Tensor", hidden[0])


def clamps(model: nn.Module, h: Tensor) -> Tensor:
    """Let no weight be below 0."""
    with torch.no_grad():
        for weight in model.get_submodule("first").parameters():
            weight.clamp_(min=0)
    return h


def transforms(model: nn.Module, h: Tensor) -> Tensor:
    """Double all frequencies."""
    del model
    found: Tensor = torch.fft.irfft(torch.fft.rfft(h) * 2, n=16)
    return found


def remembers(model: nn.Module, h: Tensor) -> Tensor:
    """Pass through an LSTM, whose biases have the same gradient."""
    found: Tensor = model.get_submodule("memory")(h.detach().unsqueeze(1))[0]
    return found.squeeze(1)


def remembers_without_biases(model: nn.Module, h: Tensor) -> Tensor:
    """Pass through an LSTM that one operator is of."""
    found: Tensor = model.get_submodule("unbiased")(h.detach().unsqueeze(1))[0]
    return found.squeeze(1)


def looks_up(model: nn.Module, h: Tensor) -> Tensor:
    """Add rows of a table whose gradient is sparse."""
    found: Tensor = h + model.get_submodule("table")((h[:, 0] > 0).long())
    return found


def conjugates(model: nn.Module, h: Tensor) -> Tensor:
    """Scale by complex numbers that torch conjugates where they are read."""
    del model
    pairs = torch.view_as_complex(h.detach().view(-1, 8, 2)).conj()
    found: Tensor = h * (pairs * 2).abs().repeat(1, 2)
    return found


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (depends_on_numbers, ["asks for numbers", "test_capture.py:", "torch.where"]),
        (picks, ["asks for numbers", "test_capture.py:", "chain of layers"]),
        (draws, ["from Python or numpy", "by torch"]),
        (has_generator, ["aten.rand.generator draws from a generator of its own"]),
        (detaches, ["does not depend on any parameter"]),
        (replaces_buffer, ["norm.running_mean", "self.running_mean.copy_(...)"]),
        (replaces_attribute, ["scale", "self.scale.copy_(...)", "None"]),
        (hides, ["no parameter, buffer or attribute", "register_buffer"]),
        (clamps, ["writes to a parameter that is trained", "engine plimsoll"]),
        (transforms, ["complex numbers, such as those of rfft", "engine plimsoll"]),
        (remembers, ["biases of nn.LSTM", "engine plimsoll"]),
        (remembers_without_biases, ["as nn.LSTM does on a CPU", "nn.GRU"]),
        (looks_up, ["nn.Embedding(sparse=True): leave that out"]),
        (conjugates, ["aten._conj.default", "resolve_conj()"]),
    ],
)
def test_what_would_not_be_the_same_elsewhere_is_refused(
    change: Callable[[nn.Module, Tensor], Tensor], texts: list[str]
) -> None:
    """The message names the operator or the line, and a way out."""
    with pytest.raises(WorkloadError) as raised:
        captured(change)
    for text in texts:
        assert text in str(raised.value)


def test_a_tensor_that_is_an_attribute_is_a_buffer() -> None:
    """Ranks build it with the module, and no checkpoint has it."""

    def scales(model: nn.Module, h: Tensor) -> Tensor:
        assert isinstance(model.scale, Tensor)
        return h * model.scale

    graph = captured(scales)
    [state] = [one for one in graph.states if one.name == "scale"]
    assert any(state.node in node.inputs for node in graph.nodes)
    assert "scale" not in branching(model=lambda: Small(scales)).built().state_dict()


def test_tensors_of_a_batch_are_apart() -> None:
    """Also where those of the first step are one, or views of one."""

    def twice(step: int, first: int, count: int) -> Tensors:
        [x, _] = branching().batch(step, first, count)
        return x, x, x.view(count, 4, 4)

    def loss(model: nn.Module, tensors: Tensors) -> Tensor:
        x, y, z = tensors
        found: Tensor = (model(x) - y[:, :4]).square().mean() + z.mean()
        return found

    graph = capture(branching(batch=twice, loss=loss), SAMPLES)
    nodes = [graph.nodes[one] for one in graph.inputs]
    assert len({one.storages for one in nodes}) == 3


def test_an_input_that_is_written_to_is_named() -> None:
    """By its place in the batch, or by the name that a chain of layers has for it."""

    def doubles(model: nn.Module, tensors: Tensors) -> Tensor:
        return loss_of(model, (tensors[0].mul_(2), tensors[1]))

    workload = branching(loss=doubles)
    with pytest.raises(WorkloadError, match=r"writes to tensor 0 of its batch: let"):
        capture(workload, SAMPLES)
    names = ("its first input", "the targets")
    with pytest.raises(WorkloadError, match=r"writes to its first input: let"):
        capture(replace(workload, input_names=names), SAMPLES)
    chain = of_chain(a_gpt())
    assert chain.input_name(0) == "its first input"
    assert chain.input_name(1) == "the targets"


@pytest.mark.parametrize(
    "register",
    [Tensor.register_hook, Tensor.register_post_accumulate_grad_hook],
)
def test_hooks_of_parameters_are_refused(register: Callable[..., object]) -> None:
    """Nobody would call them."""

    def hooked() -> nn.Module:
        model = Small(as_it_is)
        register(model.first.bias, lambda _: None)
        return model

    with pytest.raises(WorkloadError, match="bias has a hook on its gradient"):
        capture(branching(model=hooked), SAMPLES)


def profiled(graph: CapturedGraph) -> GraphProfile:
    """Profile of a graph whose costs nobody looks at."""
    free = OptimizerCost(state_bytes=8, step_bytes=0)
    forms = {graph.nodes[one.node].form.text for one in graph.states}
    return profile_of(graph, Costs(operators={}, optimizers=dict.fromkeys(forms, free)))


def test_a_changed_model_is_refused_by_its_first_new_node(
    graph: CapturedGraph,
) -> None:
    """The same model is accepted; of another one the first difference is named."""
    planned = profiled(graph)
    again = captured()
    require_same(again, planned)
    assert profiled(again).graph_digest == planned.graph_digest
    changed = captured(lambda _, h: h * 2)
    assert profiled(changed).graph_digest != planned.graph_digest
    with pytest.raises(OtherWorkloadError) as raised:
        require_same(changed, planned)
    assert "aten.mul.Tensor" in str(raised.value)
    assert "place this model again" in str(raised.value)


def test_the_order_of_arguments_is_part_of_a_graph() -> None:
    """A difference the other way round is another graph."""
    one = profiled(captured(lambda _, h: h.sin() - h.cos()))
    other = profiled(captured(lambda _, h: -(h.cos() - h.sin())))
    swapped = captured(lambda _, h: torch.sub(*reversed([h.sin(), h.cos()])))
    assert len({one.graph_digest, other.graph_digest}) == 2
    with pytest.raises(OtherWorkloadError, match="node"):
        require_same(swapped, one)
