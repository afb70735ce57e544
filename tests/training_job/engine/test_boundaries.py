"""A workload that breaks its contract is refused by the layer's name."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.engine.batches import check_samples
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW, Layer, SumAndCount, TokenLoss, Workload
from tests.support.jobs import Job, texts
from tests.support.workloads import SEQUENCE, VOCABULARY, a_gpt, next_token_loss, tokens

CALLS = itertools.count()


class Pair(nn.Module):
    """Returns two tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give it twice."""
        return x, x


class Booming(nn.Module):
    """Fails in the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Raise."""
        raise ValueError(f"boom on {len(x)}")


class Detaching(nn.Module):
    """Lets no gradient through."""

    def forward(self, x: Tensor) -> Tensor:
        """Give it without its history."""
        return x.detach()


def linear() -> nn.Module:
    """Build a layer that keeps its input for the backward pass."""
    return nn.Linear(4, 4)


def frozen() -> nn.Module:
    """Build a layer that is not trained."""
    return nn.Linear(4, 4).requires_grad_(requires_grad=False)


def compiled_inside() -> nn.Module:
    """Build a layer, a part of which is compiled."""
    compiled: Any = torch.compile(nn.Linear(4, 4))
    return nn.Sequential(nn.Tanh(), compiled)


class CompiledForward(nn.Linear):
    """Has a forward pass that is compiled."""

    forward: Any = torch.compile(nn.Linear.forward)


def impossible() -> nn.Module:
    """Fail to build."""
    raise ValueError("no such head\nsecond line")


def once_so_once_so(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make other samples at every call."""
    return tokens(step + next(CALLS), first, count)


class Embedded(nn.Embedding):
    """Vectors of tokens."""

    def __init__(self) -> None:
        """Build a small table."""
        super().__init__(VOCABULARY, 8)


def sum_of_all(output: Tensor, targets: Tensor) -> SumAndCount:
    """Sum of everything, over the number of targets."""
    return output.sum(), targets.numel()


def in_pieces(*factories: Any) -> Workload:
    """Build a chain whose loss is taken in pieces, on tokens unless it is one layer."""
    made = chain(*factories)
    batch = made.batch if len(factories) == 1 else tokens
    return replace(made, batch=batch, loss=TokenLoss(sum_of_all))


def chain(*factories: Any) -> Workload:
    """Build a workload on vectors of 4."""
    layers = tuple(
        Layer(name=f"layer.{place}", factory=factory, kind=f"{place}")
        for place, factory in enumerate(factories)
    )

    def batch(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
        del step, first
        return torch.zeros(count, 4), torch.zeros(count)

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return (output.mean(1) - targets).square().mean()

    return Workload(layers=layers, loss=loss, batch=batch, optimizer=AdamW())


def test_boundaries_are_found_without_computing() -> None:
    """Of every layer and of the loss."""
    found = boundaries_of(a_gpt(depth=2, width=16), 3)
    hidden = TensorSpec((3, SEQUENCE, 16), torch.float32)
    logits = TensorSpec((3, SEQUENCE, VOCABULARY), torch.float32)
    inputs = TensorSpec((3, SEQUENCE), torch.int64)
    assert found.between == (inputs, hidden, hidden, hidden, logits)
    assert found.targets == inputs


BAD = [
    (
        chain(lambda: nn.Linear(4, 5), lambda: nn.Linear(4, 4)),
        r"layer 'layer\.1' fails on float32\[2, 5\], which 'layer\.0' gives: ",
    ),
    (chain(lambda: nn.Linear(3, 4)), r"'layer\.0' fails on .* 'the batch' gives"),
    (chain(nn.Identity, Pair), r"layer 'layer\.1' returns tuple, but layers pass one"),
    (
        chain(impossible),
        r"'layer\.0' cannot be built: ValueError: no such head at .*\.py:\d+; --d",
    ),
    (chain(sys.exit), r"'layer\.0' cannot be built: SystemExit; --debug"),
    (
        a_gpt(loss=lambda output, targets: output.sum(0)),  # noqa: ARG005
        r"the loss is float32\[32, 96\], but a scalar is needed: the mean",
    ),
    (
        a_gpt(loss=lambda output, targets: 1.0),  # noqa: ARG005
        "the loss is float, but a scalar is needed",
    ),
    (
        a_gpt(loss=lambda output, targets: (output.sum(), targets)),
        r"the loss counts int64\[2, 32\], but a scalar without a gradient is needed",
    ),
    (
        a_gpt(loss=lambda output, targets: (output.sum(), 2, targets)),
        r"a tuple of float32\[\], int, int64\[2, 32\], but one of two scalars",
    ),
    (
        a_gpt(loss=lambda output, targets: [output.sum(), 2]),  # noqa: ARG005
        r"the loss is a list of float32\[\], int, but a scalar or a tuple is needed: ",
    ),
    (
        a_gpt(loss=lambda output, targets: output.mean().item()),  # noqa: ARG005
        r"the loss asks for the value of a tensor, as \.item\(\), .*: return tensors",
    ),
    *(
        (
            a_gpt(loss=lambda output, targets, count=count: (output.sum(), count)),  # noqa: ARG005
            f"the loss counts {count}, but a finite number above 0 is needed",
        )
        for count in (0, -5, math.nan, math.inf)
    ),
    (
        a_gpt(loss=lambda output: output),
        "the loss fails on float32.* from layer 'head' and targets int64",
    ),
    (a_gpt(batch=once_so_once_so), r"batch\(0, 0, 2\) gives other inputs when called"),
    (
        a_gpt(batch=lambda step, first, count: tokens(step, first, count + 1)),
        r"inputs of shape \[3, 32\], but the first dimension must be 2 samples",
    ),
    (
        a_gpt(batch=lambda step, first, count: [1, 2]),  # noqa: ARG005
        r"gives list, but a tuple of two tensors is needed",
    ),
    (
        a_gpt(batch=lambda step, first, count: ((1, 2), torch.zeros(count))),  # noqa: ARG005
        "gives a tuple of tuple and Tensor, but a tuple of two tensors is needed, "
        "inputs and targets: put several targets into one tensor, and name further",
    ),
    (
        a_gpt(batch=lambda step, first, count: ({}, 1, 2)),  # noqa: ARG005
        "gives a tuple of dict, int and int, but a tuple of two",
    ),
    (
        a_gpt(batch=lambda step, first, count: open("/no/such/file")),  # noqa: ARG005, PTH123, SIM115
        r"batch\(0, 0, 2\) raises FileNotFoundError: .*'/no/such/file' at .*\.py:\d+;",
    ),
    (
        chain(linear, Booming),
        r"'layer\.1' fails on float32\[2, 4\], which 'layer\.0' gives: ValueError: boom"
        r" on 2 at .*test_boundaries\.py:\d+; --debug shows the traceback$",
    ),
    (chain(lambda: 3), r"factory of layer 'layer\.0' gives int, but an nn\.Module is"),
    (
        a_gpt(loss=lambda output, targets: next_token_loss(output.detach(), targets)),
        "nothing would be trained: the loss needs no gradient",
    ),
    (
        chain(linear, lambda: nn.Bilinear(4, 4, 4)),
        r"layer 'layer\.1' takes several inputs, input1, input2, but layers pass one",
    ),
    (
        chain(compiled_inside),
        r"layer 'layer\.0' has '1', which is compiled by torch\.compile",
    ),
    (
        chain(lambda: CompiledForward(4, 4)),
        r"layer 'layer\.0' is compiled by torch\.compile",
    ),
    (chain(frozen, nn.Tanh, frozen), "trained: no layer gives an output that needs"),
    (
        chain(linear, Detaching),
        r"trained: layer 'layer\.1' gives an output .* though what 'layer\.0' gives it",
    ),
    (
        a_gpt(loss=TokenLoss(next_token_loss)),  # type: ignore[arg-type]
        r"in TokenLoss\(next_token_loss, \.\.\.\) gives no sum and count, and means",
    ),
    (
        in_pieces(linear),
        r"samples and tokens .* layer 'layer\.0' takes \[2, 4\] and the targets",
    ),
    (
        in_pieces(Embedded, partial(nn.Flatten, 0, 1)),
        r"'layer\.1' turns 31 of 32 tokens into \[31, 8\], but one output for each",
    ),
    (
        in_pieces(Embedded, partial(nn.LayerNorm, (SEQUENCE, 8))),
        r"layer 'layer\.1' or its loss fails on 31 of 32 tokens: RuntimeError",
    ),
    (
        in_pieces(Embedded, partial(nn.Dropout, 0.1)),
        r"'layer\.1' or its loss runs aten\.bernoulli.*may draw .*: give the loss",
    ),
]


@pytest.mark.parametrize(("workload", "message"), BAD, ids=range(len(BAD)))
def test_what_breaks_the_contract_is_named(workload: Workload, message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(WorkloadError, match=message) as caught:
        boundaries_of(workload, 2)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.BAD_WORKLOAD


def test_a_piece_has_a_token() -> None:
    """A number below 1 is refused where it is written."""
    with pytest.raises(WorkloadError, match="tokens_at_once 0 is below 1: give how"):
        TokenLoss(sum_of_all, 0)


def seeded_by_first(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples from one generator for all of a micro-batch."""
    generator = torch.Generator().manual_seed(1000 * step + first)
    made = torch.randn(count, 8, generator=generator)
    return made, made.sin()


def normalised(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples apart, and take the mean of them all away."""
    x, y = padded(step, first, count)
    return x - x.mean(), y


def padded(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make rows of numbers apart, with targets as long as the longest."""
    last = first + count
    x = torch.arange(first, last).unsqueeze(1).expand(count, 8) + step * 0.5
    return x, torch.zeros(count, last)


def of_a_teacher(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make samples apart, and targets that another model makes of them together."""
    rows = [
        torch.randn(64, generator=torch.Generator().manual_seed(1000 * step + sample))
        for sample in range(first, first + count)
    ]
    x = torch.stack(rows)
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    return x, x @ weight


def of_one_sample(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Know one sample alone."""
    if first + count > 1:
        raise IndexError(first + count)
    return tokens(step, first, count)


@pytest.mark.parametrize(
    ("batch", "what"),
    [(seeded_by_first, "inputs"), (normalised, "inputs"), (padded, "targets")],
)
def test_a_sample_depends_on_no_other(batch: Any, what: str) -> None:
    """Else the data would follow from the micro-batch, which the planner chooses."""
    message = (
        rf"batch\(0, 0, 2\) gives other {what} than batch\(0, 0, 1\) and .*: derive"
    )
    with pytest.raises(WorkloadError, match=message) as caught:
        check_samples(a_gpt(batch=batch))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("batch", [tokens, of_a_teacher, of_one_sample])
def test_samples_that_depend_on_themselves_are_taken(batch: Any) -> None:
    """Rounding is no difference; of one sample there is nothing to compare."""
    check_samples(a_gpt(batch=batch))


def test_every_rank_refuses_it_before_it_trains(job: Job) -> None:
    """All with the same line; nobody waits for another."""
    ends = job.try_to_run((0, 2, 5), 3, entrypoint="tiny_model:loss_of_a_vector")
    lines = texts(ends)
    assert len(lines) == 2
    assert all("WorkloadError: the loss is float32[2]" in line for line in lines)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ("0", "the loss counts 0 in all of step 1, so nothing is trained: let every"),
        ("-5", "the loss counts what is not finite or below 0 in step 1, so nothing"),
        ("nan", "the loss counts what is not finite or below 0 in step 1, so nothing"),
        ("inf", "the loss counts what is not finite or below 0 in step 1, so nothing"),
    ],
)
def test_a_step_that_counts_nothing_ends_every_rank(
    job: Job, count: str, message: str
) -> None:
    """Each value trained nothing, in silence; tensors have theirs in a step only."""
    args = json.dumps({"count": count})
    ends = job.try_to_run((0, 2, 5), 3, entrypoint="tiny_model:counting", args=args)
    lines = texts(ends)
    assert len(lines) == 2
    assert all(f"WorkloadError: {message}" in line for line in lines)


def overwriting() -> nn.Module:
    """Build a layer that writes to its input."""
    return nn.ReLU(inplace=True)


def test_layers_that_overwrite_their_input_are_told() -> None:
    """None of them can be recomputed; what a layer overwrites inside is its own."""
    made = chain(linear, overwriting, lambda: nn.Sequential(linear(), overwriting()))
    assert boundaries_of(made, 2).overwritten == {1}


@pytest.mark.parametrize("between", [[], [nn.Flatten]])
def test_no_layer_overwrites_what_the_one_before_needs(between: list[Any]) -> None:
    """Torch would refuse in the backward pass, and name no layer."""
    layers = [linear, nn.Sigmoid, *between, overwriting]
    last = f"layer.{len(layers) - 1}"
    message = (
        f"'{last}' overwrites what layer 'layer.1' gives and needs in its backward"
    )
    with pytest.raises(WorkloadError, match=message):
        boundaries_of(chain(*layers), 2)


class Swapping(nn.Module):
    """Puts another tensor in the place of its buffer at every pass."""

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 4] -> [b, 4]."""
        self.mean = x.detach().mean(0)
        return x + self.shift


@pytest.mark.parametrize(
    ("factory", "buffer"),
    [
        (lambda: nn.BatchNorm1d(4), "num_batches_tracked"),
        (lambda: nn.Sequential(nn.Identity(), nn.BatchNorm1d(4)), "1.num_batches_"),
        (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), "_u'"),
        (Swapping, "'mean'"),
    ],
)
def test_a_layer_that_writes_its_buffers_must_say_so(factory: Any, buffer: str) -> None:
    """A recompute would write twice; what declares it, or writes nothing, may run."""
    boundaries_of(chain(lambda: nn.BatchNorm1d(4, track_running_stats=False)), 2)
    workload = chain(factory)
    with pytest.raises(WorkloadError, match=f"writes its buffer .*{buffer}.* declare"):
        boundaries_of(workload, 2)
    (layer,) = workload.layers
    declared = replace(layer, recomputable=False)
    boundaries_of(replace(workload, layers=(declared,)), 2)
