"""A model that exists, or a list of layers, is a workload like any other."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import (
    ModelProfile,
    OptimizerMode,
    Precision,
)
from plimsoll_trainer.adapters.sequential import from_factories, from_sequential
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.profiles import a_request, profile_here, profile_on_device
from tests.support.ranks import run_ranks
from tests.support.workloads import (
    a_sequential,
    a_sequential_model,
    mean_square,
    points,
)

CPU = torch.device("cpu")
NUM_STEPS, MICRO_BATCH, GLOBAL_BATCH = 6, 4, 16
ROOT = Path(__file__).parents[3]
Values = dict[str, Tensor]


def workload(*layers: nn.Module, **fields: Any) -> Workload:
    """Build a workload from a list of layers."""
    defaults: dict[str, Any] = {
        "loss": mean_square,
        "batch": points,
        "optimizer": AdamW(),
    }
    return from_sequential(layers, **(defaults | fields))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_a_layer_is_built_where_and_as_it_is_asked_for(
    device: str, precision: Precision
) -> None:
    """On the device, in the type of the workload, with the values of the model."""
    made = a_sequential(precision=precision)
    model = a_sequential_model()
    for index, (name, module) in enumerate(model.named_children()):
        built = build_layer(made, index, torch.device(device))
        assert made.layers[index].name == name
        for key, value in module.state_dict().items():
            copied = built.state_dict()[key]
            assert copied.device.type == device
            assert copied.dtype == (
                made.dtype if value.is_floating_point() else value.dtype
            )
            if device == "cpu":
                assert torch.equal(copied, value.to(copied.dtype))
        if index == 3:
            break  # the next one is the third again, which has no name of its own


def test_layers_of_a_workload_are_copies() -> None:
    """Training one changes neither the model nor what is built next."""
    linear = nn.Linear(6, 6)
    made = workload(linear)
    with torch.no_grad():
        first, second = (build_layer(made, 0, CPU) for _ in range(2))
        nn.init.zeros_(first.get_parameter("weight"))
    assert torch.equal(second.get_parameter("weight"), linear.weight)
    assert torch.equal(build_layer(made, 0, CPU).get_parameter("weight"), linear.weight)


class Rotating(nn.Module):
    """Keeps a tensor that is neither parameter nor buffer, and a frozen parameter."""

    def __init__(self, angle: float = 1.0) -> None:
        """Rotate by an angle."""
        super().__init__()
        self.matrix = angle * torch.eye(6)
        self.shift = nn.Parameter(torch.ones(6), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 5, 6] -> [b, 5, 6]."""
        y: Tensor = x @ self.matrix + self.shift
        return y


def test_what_a_layer_keeps_beside_parameters_is_copied_as_well() -> None:
    """Under fake tensors too; what is frozen stays frozen."""
    made = workload(Rotating(2.0), nn.Linear(6, 6), precision=Precision.BF16)
    built = build_layer(made, 0, CPU)
    assert isinstance(built, Rotating)
    assert torch.equal(built.matrix, 2 * torch.eye(6, dtype=torch.bfloat16))
    assert not built.shift.requires_grad
    assert [str(each) for each in boundaries_of(made, 2).between] == [
        "bfloat16[2, 5, 6]"
    ] * 3


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_a_tensor_without_numbers_is_taken_over(shape: tuple[int, ...]) -> None:
    """A cache that is still empty is nothing to stumble over."""
    layer = nn.Linear(6, 6)
    layer.register_buffer("cache", torch.empty(shape, dtype=torch.int64))
    built = build_layer(workload(layer), 0, CPU)
    assert built.get_buffer("cache").shape == shape
    assert built.get_buffer("cache").dtype == torch.int64


class Wide(nn.Module):
    """Prints alike at every width."""

    def __init__(self, width: int) -> None:
        """Build for a width."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, 6))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 5, 6] -> [b, 5, 6]."""
        return x @ self.weight.T @ self.weight


def test_layers_that_cost_the_same_are_of_one_kind() -> None:
    """Whatever they print: parameters, types and attributes decide, not values."""
    same = (nn.Linear(6, 6), nn.Linear(6, 6), Wide(3), Wide(3))
    other = (nn.Linear(6, 6, bias=False), Wide(4), Rotating())
    kinds = [layer.kind for layer in workload(*same, *other).layers]
    assert kinds == ["0", "0", "2", "2", "4", "5", "6"]


def held_on_the_device() -> tuple[int, int]:
    """Bytes that a workload holds, and those of one of its layers."""
    device = EmulatedDevice()
    torch.empty(1)
    before = device.current_bytes
    made = workload(*(nn.Linear(6, 6) for _ in range(50)))
    gc.collect()
    held = device.current_bytes - before
    layer = build_layer(made, 7, CPU)
    assert layer is not None
    return held, device.current_bytes - before - held


def test_what_waits_to_be_built_is_not_on_the_device() -> None:
    """On an emulated device a rank holds its own layers, as on any other."""
    assert run_ranks(held_on_the_device, 1) == [(0, 4 * (36 + 6))]


def train_alone() -> tuple[list[float], Values]:
    """Train the model in a plain loop; return losses and the values at the end."""
    made, model = a_sequential(), a_sequential_model().train()
    parameters = list(model.parameters())
    optimizer = made.optimizer(parameters)
    losses = []
    for step in range(NUM_STEPS):
        count = GLOBAL_BATCH // MICRO_BATCH
        optimizer.zero_grad()
        total = 0.0
        for place in range(count):
            x, y = points(step, place * MICRO_BATCH, MICRO_BATCH)
            loss = mean_square(model(x), y) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        nn.utils.clip_grad_norm_(parameters, made.max_gradient_norm or 0.0)
        optimizer.step()
        losses.append(total)
    return losses, dict(model.named_parameters(remove_duplicate=False))


def train_ranks(cuts: tuple[int, ...], replicas: int) -> tuple[list[float], Values]:
    """Train as one rank."""
    made = a_sequential()
    trainer = Trainer(
        made,
        slices=[StageSlice(first_layer=a, end_layer=b) for a, b in pairwise(cuts)],
        boundaries=boundaries_of(made, MICRO_BATCH),
        num_micro_batches=GLOBAL_BATCH // MICRO_BATCH // replicas,
        world=join_world(len(cuts) - 1, replicas, CPU),
    )
    losses = [float(trainer.run_step(step).loss) for step in range(NUM_STEPS)]
    held = {
        f"{made.layers[int(index)].name}.{name}": value.detach()
        for index, layer in trainer.stage.layers.items()
        for name, value in layer.named_parameters()
    }
    return losses, held


@pytest.mark.parametrize(
    ("cuts", "replicas"),
    [
        ((0, 6), 1),
        ((0, 3, 6), 1),
        ((0, 1, 3, 4, 6), 1),
        ((0, 4, 6), 2),
    ],
)
def test_a_sequential_trains_as_one_process_does(
    cuts: tuple[int, ...], replicas: int
) -> None:
    """Its own values are where it begins; a layer that is used twice stays one."""
    losses, values = train_alone()
    for their_losses, theirs in run_ranks(
        train_ranks, (len(cuts) - 1) * replicas, cuts, replicas
    ):
        assert their_losses == pytest.approx(losses, rel=1e-6)
        for name, value in theirs.items():
            torch.testing.assert_close(value, values[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_sequential_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and measured on the emulated device, with the same bytes.

    Only BatchNorm's backward kernel takes a second gradient of its input for itself
    (80 bytes a sample), which no trace sees.
    """
    monkeypatch.chdir(ROOT)
    entrypoint = "tests.support.workloads:a_sequential"
    sizes = (2, 4, 8)
    traced = profile_here(a_request(entrypoint, micro_batches=sizes))
    measured = profile_on_device(entrypoint=entrypoint, micro_batches=sizes)
    assert isinstance(measured, ModelProfile)
    assert traced.kinds == ("first", "norm", "once", "bend", "last")
    assert traced.layers.kind == (0, 1, 2, 3, 2, 4)
    assert traced.costs.parameter_bytes[2] == 4 * (16 + 4)
    for name in ("parameter_bytes", "optimizer_bytes", "buffer_bytes"):
        assert getattr(traced.costs, name) == getattr(measured.costs, name)
    traced_slopes, measured_slopes = map(backward_slopes, (traced, measured))
    assert measured_slopes.pop("norm") == traced_slopes.pop("norm") + 80
    assert measured_slopes == traced_slopes
    saved = [made.costs.kept.saved.probed_bytes for made in (traced, measured)]
    assert saved[0] == saved[1]
    assert measured.costs.is_timed
    assert {tie.layers for tie in traced.tied} == {(2, 4)}
    assert traced.recipe.optimizer_mode is OptimizerMode.FUSED


def backward_slopes(made: ModelProfile) -> dict[str, int]:
    """Bytes of each kind's backward pass for a further sample."""
    transient = made.costs.kept.backward_transient
    return dict(zip(made.kinds, transient.slope_bytes_per_sample, strict=True))


def test_running_statistics_are_not_recomputed() -> None:
    """Twice forward would move them twice; other layers may be, unless they are named.

    The statistics may stand anywhere inside a layer.
    """
    inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(5))
    forgetful = nn.BatchNorm1d(5, track_running_stats=False)
    made = workload(nn.Linear(6, 6), inner, forgetful)
    assert [layer.recomputable for layer in made.layers] == [True, False, True]
    boundaries_of(made, 2)
    named = from_factories(
        {"a": nn.Identity, "b": nn.Identity},
        never_recomputed=["b"],
        loss=mean_square,
        batch=points,
        optimizer=AdamW(),
    )
    assert [layer.recomputable for layer in named.layers] == [True, False]
    assert not workload(nn.Identity(), never_recomputed=["0"]).layers[0].recomputable
    with pytest.raises(WorkloadError, match=r"never_recomputed names 'c'.* are 0, "):
        workload(nn.Identity(), never_recomputed=["c"])


class Residual(nn.Sequential):
    """Does more than its children do."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """[b, 5, 6] -> [b, 5, 6]."""
        y: Tensor = input + super().forward(input)  # type: ignore[no-untyped-call]
        return y


def test_a_forward_pass_of_its_own_is_refused() -> None:
    """Its children in turn would be another model; as a layer it is welcome."""
    with pytest.raises(WorkloadError, match="Residual has a forward pass of its own"):
        from_sequential(Residual(nn.Linear(6, 6)))
    made = workload(Residual(nn.Linear(6, 6)))
    with FakeTensorMode():
        assert isinstance(made.layers[0].factory(), Residual)


class Net(nn.Module):
    """A plain module."""

    def __init__(self) -> None:
        """Build with one layer."""
        super().__init__()
        self.linear = nn.Linear(6, 6)


class Adapted(Net):
    """Attributes that PEFT's wrapper carries."""

    peft_config: dict[str, Any] = {}  # noqa: RUF012 - as theirs

    def get_base_model(self) -> nn.Module:
        """The wrapped module."""
        return self.linear


def compiled_in_place() -> nn.Module:
    """Build a list of layers, one of which is compiled without a wrapper."""
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    net[1].compile()
    return net


MISTAKEN = [
    (Net, "given Net, which is no nn.Sequential: .* give them as a list of modules"),
    (lambda: nn.ModuleDict({"a": nn.Tanh()}), "given ModuleDict, which is no nn.Seq"),
    (lambda: [nn.Tanh(), torch.tanh], "layer '1' of the list is builtin_.*, but an nn"),
    (Adapted, r"the model is a PEFT model, .*: merge the adapters into it \(merge_and"),
    (lambda: torch.compile(nn.Sequential(nn.Tanh())), "the model is compiled by torch"),
    (lambda: [nn.Tanh(), torch.compile(nn.Tanh())], "layer '1' is compiled by torch"),
    (compiled_in_place, r"the model has '1', which is compiled by .*its _orig_mod"),
]


@pytest.mark.parametrize(("model", "message"), MISTAKEN, ids=range(len(MISTAKEN)))
def test_what_is_no_list_of_plain_layers_is_refused(model: Any, message: str) -> None:
    """In one line that says what to give instead."""
    with pytest.raises(WorkloadError, match=message) as caught:
        from_sequential(model())
    assert "\n" not in str(caught.value)
