"""Passes for a loss alone: every plan finds the loss of one process, and trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.devices.device import open_device
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.evaluating import evaluate, rounds
from plimsoll_trainer.engine.evaluation_samples import check_evaluation
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.epochs import Epochs
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import EarlyStop, Evaluation
from plimsoll_trainer.workload import AdamW, TokenLoss, Workload
from tests.support.ranks import run_ranks
from tests.support.split_workloads import a_split_gpt
from tests.support.workloads import (
    a_gpt,
    a_sequential,
    some_tokens,
    sum_of_tokens,
    tokens,
)

CPU = torch.device("cpu")
NUM_SAMPLES = 13
"""No multiple of anything: the last pass has fewer, and some replicas none."""
COUNTED = {"dropout": 0.2, "loss": sum_of_tokens, "batch": some_tokens}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of plan."""

    make: Callable[..., Workload] = a_gpt
    fields: dict[str, Any] = field(default_factory=lambda: {"dropout": 0.2})
    cuts: tuple[int, ...] = (0, 5)
    replicas: int = 1
    parts: int = 1
    of_slices: dict[str, Any] = field(default_factory=dict)
    micro_batch: int = 2
    tolerance: float = 1e-6

    @property
    def num_ranks(self) -> int:
        """Ranks of the plan."""
        return (len(self.cuts) - 1) * self.replicas * self.parts

    def workload(self) -> tuple[Workload, Evaluation]:
        """The workload, with samples of another step than any that is trained on."""
        workload = self.make(**self.fields)
        batch = workload.batch
        return workload, Evaluation(
            data=lambda step, first, count: batch(step + 10**6, first, count),
            num_samples=NUM_SAMPLES,
            every_steps=1,
        )


def a_trainer(kind: Kind, workload: Workload, watch: Any = lambda _: None) -> Trainer:
    """Build this rank's share; a step has eight samples."""
    world = join_world(len(kind.cuts) - 1, kind.replicas, CPU, num_parts=kind.parts)
    recomputed = kind.of_slices.get("recomputed", frozenset())
    slices = [
        StageSlice(
            first_layer=first,
            end_layer=end,
            **kind.of_slices | {"recomputed": recomputed & set(range(first, end))},
        )
        for first, end in pairwise(kind.cuts)
    ]
    return Trainer(
        workload,
        slices=slices,
        boundaries=boundaries_of(workload, kind.micro_batch),
        num_micro_batches=8 // kind.replicas // kind.micro_batch,
        world=world,
        on_phase=watch,
    )


Found = tuple[list[float], list[float], dict[str, int]]
"""Losses of evaluations, of steps, and the device's peak by phase."""


def train_and_evaluate(kind: Kind, *, evaluates: bool = True) -> Found:
    """Be one rank: evaluate before the first step and after each of three."""
    workload, evaluation = kind.workload()
    watch = PeakWatch(open_device(DeviceKind.EMULATED, 0))
    trainer = a_trainer(kind, workload, watch)
    evaluated, trained = [], []
    for step in range(3):
        if evaluates:
            loss, count = evaluate(trainer, evaluation, step)
            assert count > 0
            evaluated.append(float(loss))
            watch(Phase.EVALUATION)
        trained.append(float(trainer.run_step(step).loss))
    if evaluates:
        evaluated.append(float(evaluate(trainer, evaluation, 3)[0]))
        watch(Phase.EVALUATION)
    peaks = {str(phase): used for phase, used in watch.device_bytes.items()}
    peaks["rest"] = EmulatedDevice().current_bytes
    return evaluated, trained, peaks


def plain_loss(kind: Kind) -> float:
    """Loss of the model as it begins, of all samples at once, without the engine."""
    workload, evaluation = kind.workload()
    x, targets = evaluation.batch(0, 0, NUM_SAMPLES)
    layers = [build_layer(workload, i, CPU) for i in range(len(workload.layers))]
    for one in workload.ties:
        (first, name), (other, as_there) = one.places
        tensor = layers[workload.index_of(first)].get_parameter(name)
        module, _, last = as_there.rpartition(".")
        owner = layers[workload.index_of(other)].get_submodule(module)
        setattr(owner, last, tensor)
    with torch.no_grad():
        for layer in layers:
            x = layer.eval()(x)
        made = workload.loss(x, targets)
    total, count = made if isinstance(made, tuple) else (made, 1)
    return float(total / count)


PIECES = {
    "dropout": 0.2,
    "loss": TokenLoss(sum_of_tokens, tokens_at_once=5),
    "batch": some_tokens,
}
LAST = frozenset((2, 4))
KINDS = [
    Kind(cuts=(0, 2, 5)),
    Kind(cuts=(0, 2, 5), fields=COUNTED, replicas=2),
    Kind(fields=COUNTED, replicas=3, micro_batch=1, cuts=(0, 5)),
    Kind(cuts=(0, 3, 5), fields=PIECES, of_slices={"recomputed": LAST}),
    Kind(replicas=2, of_slices={"sharding": Sharding.PARAMETERS}),
    Kind(cuts=(0, 2, 5), fields={"dropout": 0.2, "precision": "bf16"}, tolerance=1e-3),
    Kind(cuts=(0, 2, 5), replicas=2, of_slices={"sharding": Sharding.GRADIENTS}),
    Kind(cuts=(0, 2, 5), of_slices={"offloaded": frozenset((1, 3))}),
    Kind(make=a_split_gpt, fields={}, cuts=(0, 2, 5), parts=2, tolerance=1e-5),
    Kind(
        make=a_split_gpt,
        fields={},
        parts=2,
        of_slices={"sequence_parallel": True},
        tolerance=1e-5,
    ),
]


@cache
def looked_at(place: int) -> list[Found]:
    """All ranks of a kind, which are evaluated."""
    kind = KINDS[place]
    return run_ranks(train_and_evaluate, kind.num_ranks, kind)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(KINDS)))
def test_every_plan_finds_the_loss_of_one_process(place: int) -> None:
    """Before the first step and after it, on every rank, whatever is left over."""
    kind = KINDS[place]
    expected = plain_loss(kind)
    for evaluated, _, _ in looked_at(place):
        assert evaluated[0] == pytest.approx(expected, rel=kind.tolerance)
        assert evaluated[-1] < evaluated[0]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(KINDS)))
def test_an_evaluation_needs_no_more_than_a_step(place: int) -> None:
    """On every rank; a step's peaks are those that are predicted."""
    for _, _, peaks in looked_at(place):
        assert peaks["evaluation"] < max(peaks["backward"], peaks["optimizer-step"])


@pytest.mark.slow
def test_an_evaluation_keeps_nothing_of_a_layer() -> None:
    """Beside what lies there between steps; a step has all layers of a micro-batch."""
    [(_, _, peaks)] = run_ranks(
        train_and_evaluate, 1, Kind(fields={"depth": 6}, cuts=(0, 8))
    )
    step, evaluation = (peaks[p] - peaks["rest"] for p in ("backward", "evaluation"))
    assert evaluation < 0.4 * step


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 4])
def test_training_goes_on_as_if_nobody_had_looked(place: int) -> None:
    """Dropout and all: losses are the same to the bit."""
    kind = KINDS[place]
    unseen = run_ranks(train_and_evaluate, kind.num_ranks, kind, evaluates=False)
    looked = [losses for _, losses, _ in looked_at(place)]
    assert looked == [losses for _, losses, _ in unseen]


def test_running_statistics_are_used_and_stay() -> None:
    """A mean over unlike micro-batches is the mean over all samples."""
    kind = Kind(make=a_sequential, fields={}, cuts=(0, 6))
    [(evaluated, _, _)] = run_ranks(train_and_evaluate, 1, kind)
    assert evaluated[0] == pytest.approx(plain_loss(kind), rel=1e-6)


class Around(nn.Module):
    """Carries a matrix and a number without samples, and samples in columns."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 8] -> [b, 8]."""
        first, second, *middle, last = cast("Sequence[nn.Linear]", self.layers)
        product = first.weight @ second.weight
        scale = product.abs().mean()
        x = functional.linear(x, product).relu() * scale
        turned = torch.cat([x.t(), x.t().square()])
        for layer in middle:
            x = layer(x).relu()
        made: Tensor = last(functional.linear(x, product) + turned[8:].t()) * scale
        return made


def waves(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make vectors of 8 numbers, and targets."""
    places = torch.arange(first, first + count, dtype=torch.float32)
    x = torch.sin(step + places.unsqueeze(1) * torch.arange(1, 9) / 8)
    return x, x.square()


def around(**fields: Any) -> Workload:
    """The module as a chain."""
    torch.manual_seed(0)
    return from_module(
        Around(),
        torch.zeros(2, 8),
        loss=functional.mse_loss,
        batch=waves,
        optimizer=AdamW(),
        **fields,
    )


@pytest.mark.slow
def test_a_value_without_samples_is_received_as_it_is() -> None:
    """In whole passes, and in the last one, which has fewer samples.

    It was cut to as many rows as there are samples, and gloo ended the rank:
    `op.preamble.length <= op.nbytes. 256 vs 128`.
    """
    names = [layer.takes or () for layer in around().layers]
    assert sum(map(len, names)) >= 3, "too little is carried"
    kind = Kind(make=around, fields={}, cuts=(0, 1, len(names)), micro_batch=4)
    torch.manual_seed(0)
    x, targets = waves(10**6, 0, NUM_SAMPLES)
    expected = float(functional.mse_loss(Around()(x), targets).detach())
    for evaluated, _, _ in run_ranks(train_and_evaluate, kind.num_ranks, kind):
        assert evaluated[0] == pytest.approx(expected, rel=1e-6)


def wide(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples of one more token than is trained on."""
    x, y = tokens(step, first, count)
    return torch.cat([x, x[:, :1]], 1), y


def broken(*_: int) -> tuple[Tensor, Tensor]:
    """Make none."""
    raise ValueError("no such file")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            wide,
            r"evaluation: inputs of one of 5 samples are int64\[1, 33\], and those of "
            r"2 in training int64\[2, 32\]: give samples of the same shape and type",
        ),
        (broken, r"evaluation: batch\(0, 0, 1\) raises ValueError: no such file at "),
    ],
)
def test_data_that_cannot_be_evaluated_on(data: Any, text: str) -> None:
    """Is refused before the first step."""
    workload = a_gpt(evaluation=Evaluation(data=data, num_samples=5))
    with pytest.raises(WorkloadError, match=f"^{text}"):
        check_evaluation(workload, boundaries_of(workload, 2))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"data": tokens}, "evaluation has data without a length, so all of it has no"),
        ({"data": tokens, "num_samples": 0}, "evaluation has 0 samples, so it has no "),
        ({"data": []}, "evaluation has 0 samples, so it has no loss: give some, or no"),
        (
            {"data": [tokens(0, 0, 1)], "num_samples": 4},
            "evaluation has num_samples 4, and its data 1 samples: give more data, or",
        ),
        (
            {"data": tokens, "num_samples": 4, "every_steps": -1},
            "evaluation has every_steps -1: give a number of steps, or 0 to evaluate",
        ),
        (
            {"data": tokens, "num_samples": 4, "early_stop": EarlyStop(patience=2)},
            "early stop looks at evaluations, and without every_steps there is one at",
        ),
    ],
)
def test_evaluations_that_make_no_sense(fields: dict[str, Any], text: str) -> None:
    """In one line that says what to give."""
    with pytest.raises(WorkloadError, match=f"^{text}"):
        assert Evaluation(**fields).number


def test_a_data_set_is_evaluated_on_in_its_order() -> None:
    """All of it, or the first samples; one that is trained on in epochs likewise."""
    pairs = [(torch.tensor([float(n)]), torch.tensor(n)) for n in range(5)]
    whole = Evaluation(data=pairs)
    assert whole.number == 5
    assert whole.batch(0, 3, 2)[1].tolist() == [3, 4]
    assert Evaluation(data=pairs, num_samples=2).number == 2
    assert Evaluation(data=Epochs(samples=pairs)).number == 5


def test_all_replicas_make_as_many_passes() -> None:
    """Those that have none left run the first samples again, for nothing."""
    found = [list(rounds(5, 2, replica, 2)) for replica in range(2)]
    assert found == [
        [(0, 2, True), (4, 1, True)],
        [(2, 2, True), (0, 2, False)],
    ]


def test_a_loss_that_is_a_mean_is_weighted_by_samples() -> None:
    """The rest of the samples counts as many as it is."""
    covered: dict[int, int] = {}
    for replica in range(3):
        for first, count, counts in rounds(NUM_SAMPLES, 2, replica, 3):
            covered |= {first: count} if counts else {}
    assert sum(covered.values()) == NUM_SAMPLES
