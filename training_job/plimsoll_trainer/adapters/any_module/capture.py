"""The forward pass of a module as a graph, for any number of samples.

In: a `FakeModule`, inputs of which only shape and type count. Out: a `Capture`: the
graph that `torch.export` makes of the training mode, in which operators write in place
as the code does, dropout is one operator, and the number of samples is a symbol.
Nothing is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from plimsoll_trainer.adapters.any_module.call import Call
from plimsoll_trainer.adapters.any_module.fake_modules import FakeModule
from plimsoll_trainer.adapters.any_module.inlining import write_out_blocks
from plimsoll_trainer.adapters.any_module.lost import (
    check_constants,
    check_replaced,
    nothing_lost,
    own_tensors,
    warn_of_added,
)
from plimsoll_trainer.adapters.any_module.refusals import refuse, require_no_numbers
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.random_keys import no_hidden_draws
from plimsoll_trainer.torch_internals.graphs import InputKind, seen_specialisations

PRIMES = (7, 11, 13, 17, 19, 23, 29, 31)
"""Samples that a capture may take for example: a number that nothing else is."""
PREFIX = "module."
"""Of names inside of `Call`."""


@dataclass(frozen=True, eq=False, slots=True)
class OwnTensor:
    """A tensor of the module that the graph uses."""

    name: str
    """In the module, as in a checkpoint of it."""
    tensor: Tensor
    """Fake, or a constant of the code."""
    persistent: bool

    @property
    def is_trained(self) -> bool:
        """Whether it is a parameter that is not frozen."""
        return isinstance(self.tensor, nn.Parameter) and self.tensor.requires_grad


@dataclass(frozen=True, eq=False, slots=True)
class Capture:
    """A graph of the forward pass."""

    graph: fx.Graph
    root: fx.GraphModule
    """Has the graphs inside of the graph."""
    inputs: tuple[fx.Node, ...]
    owned: Mapping[fx.Node, OwnTensor]
    output: fx.Node
    samples: Any
    """Symbol of the number of samples."""


def capture(
    fake: FakeModule,
    inputs: Sequence[Tensor],
    arguments: Sequence[str],
    output: str | None,
) -> Capture:
    """Capture the forward pass.

    Raises:
        WorkloadError: it cannot be captured for any number of samples.
    """
    sizes = {size for one in inputs for size in one.shape[1:]}
    count = next(prime for prime in PRIMES if prime not in sizes)
    with fake.mode:
        examples = tuple(stand_in(one, count) for one in inputs)
    own = own_tensors(fake.module)
    call, samples = Call(fake.module, arguments, output).train(), Dim("samples")
    spec = (tuple({0: samples} for _ in inputs),)
    with no_hidden_draws(), seen_specialisations() as seen, nothing_lost():
        try:
            program = export(call, examples, dynamic_shapes=spec, strict=False)
        except WorkloadError:
            raise
        except Exception as error:  # noqa: BLE001 - their code, and torch's
            refuse(fake.name, examples, error, seen)
    require_no_numbers(fake.name, program.graph)
    found = captured(fake, program)
    replaced = {id(own[name]) for name in call.replaced & own.keys()}
    check_replaced(
        {
            one.name
            for node, one in found.owned.items()
            if node.users and (one.name in call.replaced or id(one.tensor) in replaced)
        }
    )
    warn_of_added(fake.name, call.added)
    return found


def stand_in(example: Tensor, count: int) -> Tensor:
    """An input without values, in the type that a batch has in training."""
    is_number = example.is_floating_point()
    dtype = torch.get_default_dtype() if is_number else example.dtype
    return torch.empty((count, *example.shape[1:]), dtype=dtype, device="cpu")


def captured(fake: FakeModule, program: ExportedProgram) -> Capture:
    """Read what the export says of its inputs.

    Raises:
        WorkloadError: a tensor of the forward pass has become a constant.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    first_name: dict[int, str] = {}
    for name, one in (*fake.module.named_parameters(), *fake.module.named_buffers()):
        first_name.setdefault(id(one), name)
    owned: dict[fx.Node, OwnTensor] = {}
    inputs: list[fx.Node] = []
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
            continue
        target = str(spec.target)
        tensor = tensor_of(program, target)
        name = first_name.get(id(tensor), target.removeprefix(PREFIX))
        owned[node] = OwnTensor(name, tensor, persistent=bool(spec.persistent))
    check_constants(fake, {node: one.tensor for node, one in owned.items()})
    untracked = [node for node, one in owned.items() if not one.tensor.requires_grad]
    write_out_blocks(program.graph_module, untracked)
    outputs: Any = program.graph.output_node().args[0]
    [output] = outputs
    size = inputs[0].meta["val"].shape[0]
    return Capture(
        graph=program.graph,
        root=program.graph_module,
        inputs=tuple(inputs),
        owned=owned,
        output=output,
        samples=size.node.expr,
    )


def tensor_of(program: ExportedProgram, target: str) -> Tensor:
    """Parameter, buffer or constant of an exported program.

    Raises:
        WorkloadError: it is no tensor.
    """
    found = program.constants.get(target, program.state_dict.get(target))
    if not isinstance(found, Tensor):
        raise WorkloadError(
            f"the module uses {target!r}, a {type(found).__name__}, which is no tensor "
            "and cannot be a part of a layer"
        )
    return found
