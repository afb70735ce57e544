"""Whether a layer's work on a sample depends on the other samples of its micro-batch.

In: a built layer in its place. Out: what makes it depend, by name. Called by the prober
for every kind of layer. What such a layer trains changes with the micro-batch, which a
person fixes or leaves to the search in words (`BatchStatistics`). Likewise tokens of a
sample, which a last layer must not mix where its loss is taken in pieces (`TokenLoss`).

Found in two ways: modules and operators that are made for it, and, where tensors have
data, by trying: another second sample must leave the first one's output as it was. A
trace has no data, so it misses statistics that are written by hand (docs/workload.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, fx, nn

from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.layer_probe import (
    LayerCase,
    forward_of,
    make_input,
    make_taken,
)
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.random_keys import seed_process
from plimsoll_trainer.torch_internals.graphs import BATCH_NORMS
from plimsoll_trainer.torch_internals.operators import BatchNorm

ALIKE = 0.01
"""Relative difference of an output that rounding makes, in bf16 and in any order."""
FOUND_BY_TRYING = "found by trying"


def batch_statistics(layer: nn.Module, where: LayerCase, bench: Bench) -> list[str]:
    """Names of what lets samples depend on one another; empty if nothing does."""
    found = {type(m).__name__ for m in layer.modules() if keeps_statistics(m)}
    for one in layer.modules():
        if isinstance(one, fx.GraphModule):
            found |= norms_over_samples(one.graph)
    if not found and bench.is_real and mixes_samples(layer, where, bench):
        found = {FOUND_BY_TRYING}
    return sorted(found)


def keeps_statistics(module: nn.Module) -> bool:
    """Whether a module normalises over samples, or keeps what it saw of them."""
    return isinstance(module, BatchNorm) or bool(
        getattr(module, "track_running_stats", False)
    )


def norms_over_samples(graph: fx.Graph) -> set[str]:
    """Names of operators of a captured layer that do as `keeps_statistics` has it."""
    batch, instance = BATCH_NORMS
    found = {
        node.target
        for node in graph.nodes
        if node.target is batch
        # Each sample alone, unless it keeps running statistics, the fourth argument.
        or (node.target is instance and node.args[3] is not None)
    }
    return {str(target).split(".")[1] for target in found}


@torch.no_grad()
def mixes_samples(layer: nn.Module, where: LayerCase, bench: Bench) -> bool:
    """Whether the first sample's output changes with the second sample.

    Every try begins with the same buffers and random numbers. A layer whose output
    differs even so has random numbers of its own, which are no statistics; one
    that does not take the other numbers cannot be tried, which is no error.
    """
    # A table that takes no index but 0: on a GPU another one ends the process.
    has_single_row = any(getattr(m, "num_embeddings", 0) == 1 for m in layer.modules())
    if where.incoming.shape[0] <= 1 or has_single_row:
        return False
    run = forward_of(layer, replace(where, recomputed=False), bench.device)
    x = [make_input(where, bench.device).detach()]
    x += [make_taken(one, bench.device)[0].detach() for one in where.taken]
    changed = list(map(with_other_samples, x))
    buffers = {name: buffer.clone() for name, buffer in layer.named_buffers()}

    def tried(each: Sequence[Tensor]) -> Tensor:
        put_buffers(layer, buffers)
        seed_process(0)
        y = run(*(one.clone() for one in each))  # it may overwrite its input
        outputs = y if isinstance(y, tuple) else (y,)
        return torch.cat([first_sample(one, where) for one in outputs])

    try:
        before, again, after = map(tried, (x, x, changed))
    except Exception as error:  # the user's code may raise anything
        if is_out_of_memory(error):
            raise
        return False
    return differs(before, after) and not differs(before, again)


@torch.no_grad()
def mixes_tokens(layer: nn.Module, where: LayerCase, bench: Bench) -> bool:
    """Whether the last token's output changes if the layer is given that token alone.

    A layer that does not run on numbers of the trial cannot be tried, which is no
    error.
    """
    run = forward_of(layer, replace(where, recomputed=False), bench.device)
    x = make_input(where, bench.device).detach()[:1]
    try:
        among, alone = run(x)[:, -1:].float(), run(x[:, -1:]).float()
    except Exception as error:  # the user's code may raise anything
        if is_out_of_memory(error):
            raise
        return False
    return differs(among, alone)


def put_buffers(layer: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a layer copies of these buffers, in the place of whatever it has now."""
    for name, value in values.items():
        owner, _, attribute = name.rpartition(".")
        setattr(layer.get_submodule(owner), attribute, value.clone())


def with_other_samples(x: Tensor) -> Tensor:
    """Input with the same first sample, and others after it."""
    changed = x.clone()
    match x.dtype:
        case torch.bool:
            changed[1:] = ~changed[1:]
        case dtype if dtype.is_floating_point:
            changed[1:] = changed[1:] * 3 + 1
        case _:
            changed[1:] = 1 - changed[1:]
    return changed


def first_sample(y: Tensor, where: LayerCase) -> Tensor:
    """Output for the first sample, as floating numbers."""
    per_sample = y.reshape(where.incoming.shape[0], -1)
    return per_sample[0].float()


def differs(before: Tensor, after: Tensor) -> bool:
    """Whether outputs differ by more than rounding, where both are finite."""
    is_known = before.isfinite() & after.isfinite()
    if not bool(is_known.any()):
        return False
    before, after = before[is_known], after[is_known]
    scale = max(float(before.abs().max()), 1e-30)
    return float((after - before).abs().max()) > ALIKE * scale
