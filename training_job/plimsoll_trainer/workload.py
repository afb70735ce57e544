"""The workload contract: what a user writes, and all that the trainer knows of a model.

In: layers that form a chain, a loss, batches by step, an optimizer. A function that
returns a `Workload` is an entry point (`my_model:workload`); adapters build one from
what people have. Every rank calls the same function and builds its own layers alone,
so nothing here may depend on the rank, on the clock or on an unseeded source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_planner.records.model_profile import DeviceKind, OptimizerMode, Precision
from plimsoll_trainer.carried import CarriedValue, carried_values
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.evaluation import Evaluation

Batch = tuple[Any, Tensor]
"""Inputs and targets; the first dimension of both counts samples. Inputs are a tensor,
or a tuple of the first one and those that `Workload.inputs` names."""
BatchOfSeveral = tuple[tuple[Tensor, ...], Tensor]
"""The same with a tuple of inputs, however many."""
MakeBatch = Callable[[int, int, int], Batch]
"""(step, first sample, number of samples) of the step's global batch -> those samples.
The same arguments give the same batch on every rank, in every process, every time."""
SumAndCount = tuple[Tensor, Tensor | float]
"""A loss summed over what counts, such as tokens that are not ignored; how many those
are. Both scalars; over a step it is the sum of all sums over the sum of all counts."""
Loss = Callable[[Tensor, Tensor], Tensor | SumAndCount]
"""(output of the last layer, targets) -> mean loss over the samples, a scalar; or sum
and count, where samples do not count alike: a mean of means would then depend on which
samples share a micro-batch. See `TokenLoss` for one that need not see all at once."""
TOKENS_AT_ONCE = 512
"""Enough for products of matrices to fill a device; logits of 128k words in fp32 are
250 MiB, and three of them are alive at a time."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A loss that judges each token alone, so that it may be taken piece by piece.

    Where a plan recomputes the last layer, that layer and the loss run on a few tokens
    at a time, forward and backward, and the whole output, such as the logits of all
    tokens, is never there. The layer must turn each token into its output alone,
    without random numbers; input and targets are [samples, tokens, ...].

    Raises:
        WorkloadError: a piece has no token.
    """

    loss: Callable[[Tensor, Tensor], SumAndCount]
    """(output, targets) -> sum and count, of any number of samples and tokens."""
    tokens_at_once: int = TOKENS_AT_ONCE
    """Of one sample, at most: fewer take less memory and more time."""

    def __post_init__(self) -> None:
        """Refuse pieces of nothing."""
        if self.tokens_at_once < 1:
            raise WorkloadError(
                f"tokens_at_once {self.tokens_at_once} is below 1: give how many "
                "tokens the last layer and the loss take at a time, such as 512"
            )

    def __call__(self, output: Tensor, targets: Tensor) -> SumAndCount:
        """Loss of the whole output."""
        return self.loss(output, targets)

    @property
    def name(self) -> str:
        """Name of the loss in a message."""
        return str(getattr(self.loss, "__name__", type(self.loss).__name__))


Parallelize = Callable[[nn.Module, DeviceMesh], None]
"""(module, ranks that share it) -> None; see `Layer.parallelize`."""
ReadLayer = Callable[[str], Mapping[str, Tensor]]
"""Name of a layer -> its trained parameters and saved buffers in the host's memory, by
their names inside the layer; masters in fp32 where the optimizer has them."""
Export = Callable[[ReadLayer, Path], None]
"""(trained layers, folder that is empty) -> None; see `Workload.export`."""
MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
"""Parameters of one layer -> their optimizer; called once for each layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One step: module(passed, *taken) -> passed; (passed, *given) where it gives."""

    name: str
    """Tells the layer apart; a checkpoint of another kind of plan finds it by this."""
    factory: Callable[[], nn.Module]
    """Builds the module with random weights; called under a seed of the layer's own."""
    kind: str
    """Layers of one kind and input shape cost the same and are profiled once."""
    parallelize: Parallelize | None = None
    """Splits the module over the ranks of a mesh of one dimension, in place, as
    `torch.distributed.tensor.parallel.parallelize_module` does with
    `src_data_rank=None`; inputs and outputs stay whole. None: each rank has all of it.
    """
    parallelize_sequence: Parallelize | None = None
    """Splits the module likewise, and the sequence, the second dimension of what passes
    between layers: inputs and outputs are this rank's part of it, but for the inputs of
    the first layer and the outputs of the last. Every trained parameter is then a
    DTensor, or declared by `plimsoll_trainer.sequence_parallel`. None in any layer: the
    model cannot be split like this.
    """
    recomputable: bool = True
    """False where running the forward pass twice would change the result."""
    takes: tuple[str, ...] | None = None
    """Values that earlier layers give, or `Workload.inputs`; not to be written to."""
    gives: tuple[str, ...] = ()
    """Values for later layers; the module then returns (passed, *given). They need not
    count samples in any dimension."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tie:
    """A tensor, parameter or buffer, that several layers share."""

    places: tuple[tuple[str, str], ...]
    """(layer name, tensor name inside the layer); the first one's values count."""
    constant: bool = False
    """True for a buffer that is alike wherever it is built: nothing is exchanged."""


def constant(step: int) -> float:
    """Leave the learning rate as the optimizer was made with."""
    del step
    return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LossScaling:
    """How the scale of the loss follows what overflows, where products are in fp16.

    Rules and numbers are those of `torch.amp.GradScaler`: a step with a gradient that
    is not finite, on any rank, is left out on all of them.

    Raises:
        WorkloadError: a number is out of its bounds.
    """

    first: float = 2.0**16
    """Scale of the first step."""
    growth: float = 2.0
    """Factor on the scale after `steps_to_growth` steps without overflow."""
    backoff: float = 0.5
    """Factor on the scale after a step that is left out."""
    steps_to_growth: int = 2000

    def __post_init__(self) -> None:
        """Refuse a scale that would not stay above 0, or not find its way."""
        rules = (
            ("first", self.first > 0, "above 0"),
            ("growth", self.growth > 1, "above 1"),
            ("backoff", 0 < self.backoff < 1, "between 0 and 1"),
            ("steps_to_growth", self.steps_to_growth >= 1, "1 or more"),
        )
        for field, holds, rule in rules:
            if not holds:
                raise WorkloadError(
                    f"loss_scaling: {field} {getattr(self, field)} is not {rule}"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A training job, apart from how it is spread over devices.

    Raises:
        WorkloadError: a name or tie contradicts the layers, or there is no such
            precision.
    """

    layers: tuple[Layer, ...]
    loss: Loss
    batch: MakeBatch
    optimizer: MakeOptimizer
    precision: Precision = Precision.FP32
    """Of parameters, activations and the gradients that a backward pass computes."""
    gradient_precision: Precision = Precision.FP32
    """In which gradients are added up over micro-batches and replicas. BF16 saves two
    bytes for each parameter in bf16, and loses 1 % of a sum of 100 (decision 16)."""
    loss_scaling: LossScaling = LossScaling()
    """Where products are in fp16; else the loss is not scaled."""
    max_gradient_norm: float | None = 1.0
    """Gradients are scaled down to this 2-norm over all layers; None: never."""
    learning_rate_factor: Callable[[int], float] = constant
    """Step -> factor on the optimizer's learning rate."""
    ties: tuple[Tie, ...] = ()
    not_split: str = ""
    """Why no layer has a `parallelize`, for those who ask; empty: nobody knows."""
    seed: int = 0
    """Of weights and dropout."""
    inputs: tuple[str, ...] = ()
    """Names of further inputs of the model; a batch then has a tuple of tensors."""
    example_inputs: tuple[Tensor, ...] = ()
    """Batches have their shapes behind the samples, and types; empty: any are taken."""
    tokens_per_sample: int = 1
    export: Export | None = None
    """Writes trained weights in the model's own format; None: it has none, and what is
    trained is in the checkpoints alone."""
    evaluation: Evaluation | None = None
    """Data besides that of training, on which the loss is looked at; None: none is."""
    stops_at_nan: bool = True
    """Whether a loss that is not finite ends the job; else it is one line, once."""
    callbacks: tuple[object, ...] = ()
    """Whom rank 0 calls between steps, see `plimsoll_trainer.callbacks`; or where to
    find a function that makes one, as in `my_module:function`."""
    loading_workers: int = 0
    """Processes of each rank that makes data, which make the next steps' while one is
    trained on; 0: the rank makes what it needs before each step."""

    def __post_init__(self) -> None:
        """Refuse what no rank could build."""
        for field in ("precision", "gradient_precision"):
            given = getattr(self, field)
            try:
                object.__setattr__(self, field, Precision(given))
            except ValueError:
                raise WorkloadError(
                    f"{field} {given!r} is none that can be trained in: give "
                    f"{' or '.join(Precision)}"
                ) from None
        self._check_sums()
        if self.loading_workers < 0:
            raise WorkloadError(
                f"loading_workers {self.loading_workers}: give a number of processes, "
                "or 0 to make samples before each step"
            )
        names = [layer.name for layer in self.layers]
        if not names:
            raise WorkloadError("the workload has no layers: give at least one")
        if twice := {name for name in names if names.count(name) > 1}:
            raise WorkloadError(
                f"layer name {min(twice)!r} occurs twice: checkpoints need names that "
                "tell layers apart"
            )
        self._check_ties(names)
        _ = self.carried

    def _check_sums(self) -> None:
        """Refuse sums of gradients in a type that loses, or could not be unscaled."""
        sums, computed = self.gradient_precision, self.precision.of_parameters
        if sums not in {Precision.FP32, Precision.BF16}:
            raise WorkloadError(
                f"gradient_precision {str(sums)!r} is none that gradients are added up "
                "in: give fp32 or bf16"
            )
        if sums is Precision.BF16 and computed is not Precision.BF16:
            raise WorkloadError(
                "gradient_precision bf16 would round gradients that are computed in "
                f"{computed}: leave it out, or give precision bf16 as well"
            )

    def _check_ties(self, names: Sequence[str]) -> None:
        """Refuse ties of no layer, and two that are one."""
        seen: set[tuple[str, str]] = set()
        for name, tensor in (place for tie in self.ties for place in tie.places):
            if name not in names:
                raise WorkloadError(
                    f"tie of {tensor!r} in layer {name!r}: there is no such layer; "
                    f"the layers are {', '.join(names[:8])}, ..."
                )
            if (name, tensor) in seen:
                raise WorkloadError(
                    f"tie of {tensor!r} in layer {name!r}: it is in two ties; give one "
                    "tie with all places"
                )
            seen.add((name, tensor))

    @property
    def carried(self) -> tuple[CarriedValue, ...]:
        """Values that layers carry past others, in the order of a send."""
        return carried_values(self.layers, self.inputs)

    @property
    def dtype(self) -> torch.dtype:
        """The type of parameters, and of what passes between layers."""
        return DTYPES[self.precision.of_parameters]

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """The type of products inside of layers, if it is another one."""
        precision = self.precision
        return DTYPES[precision.of_products] if precision.is_autocast else None

    @property
    def stepped_dtype(self) -> torch.dtype:
        """The type that the optimizer steps on, unless a parameter is fp32 anyway."""
        return DTYPES[self.precision.stepped_in]

    @property
    def gradient_dtype(self) -> torch.dtype:
        """The type that gradients are added up in."""
        return DTYPES[self.gradient_precision]

    def index_of(self, name: str) -> int:
        """Place of a layer in the chain."""
        return next(i for i, layer in enumerate(self.layers) if layer.name == name)


DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}


def decayed_groups(
    parameters: Sequence[nn.Parameter], weight_decay: float
) -> list[dict[str, Any]]:
    """Groups of an optimizer: matrices are decayed, vectors are not."""
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW:
    """The usual optimizer, as a `MakeOptimizer`; vectors are not decayed.

    Others are in `plimsoll_trainer.optimizers`.
    """

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    mode: OptimizerMode = OptimizerMode.FUSED
    """Fused holds nothing on top of the state during its step."""

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer."""
        beta1, beta2 = self.betas
        return torch.optim.AdamW(
            decayed_groups(parameters, self.weight_decay),
            lr=self.learning_rate,
            betas=(beta1, beta2),
            eps=self.epsilon,
            fused=self.mode is OptimizerMode.FUSED,
            foreach=self.mode is OptimizerMode.FOREACH,
        )


def sample_optimizer(
    workload: Workload, device: torch.device | str
) -> torch.optim.Optimizer:
    """Make the workload's optimizer, for a small parameter of no layer.

    Raises:
        WorkloadError: it cannot be made, or is none.
    """
    sample = nn.Parameter(torch.zeros(2, 2, device=device))
    try:
        made: object = workload.optimizer([sample])
    except Exception as error:
        raise WorkloadError(
            f"the optimizer cannot be made for a parameter of 2 x 2: {located(error)}"
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise WorkloadError(
            f"optimizer(parameters) gives {type(made).__name__}, but an optimizer of "
            "torch.optim is needed: return one for these parameters"
        )
    return made


LOOPS_BY_DEFAULT = (torch.optim.Adafactor,)
"""On a GPU too: it is chosen where memory is short, as its documentation says."""


def optimizer_mode(
    optimizer: torch.optim.Optimizer, device_kind: DeviceKind
) -> OptimizerMode:
    """Mode in which an optimizer walks its parameters on a kind of device.

    Torch's own default is spelt out: lists on a GPU, one after the other elsewhere.
    Where the parameters lie now says nothing, as a trace for a GPU runs on the CPU.
    """
    options = optimizer.defaults
    if options.get("fused"):
        return OptimizerMode.FUSED
    foreach = options.get("foreach")
    if foreach is None and "foreach" in options and not options.get("differentiable"):
        by_default = options.get("fused") is None
        foreach = by_default and device_kind is DeviceKind.CUDA
        foreach = foreach and not isinstance(optimizer, LOOPS_BY_DEFAULT)
    return OptimizerMode.FOREACH if foreach else OptimizerMode.LOOP
