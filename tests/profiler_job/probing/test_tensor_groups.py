"""One rank of a tensor group is probed without the others, to the byte."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, Variant
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.messages import ProbeRequest, ProbeResult
from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.probing.tensor_groups import tensor_group
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.sequence_parallel import drop_out_parts, used_on_whole
from plimsoll_trainer.workload import Parallelize, Workload
from tests.support.profiles import a_request, profile_here
from tests.support.ranks import run_on_device
from tests.support.split_workloads import a_split_gpt, over, split_embedding

DEGREES = (1, 2, 4, 8)
WIDTH = 64
SPLIT, WHOLE = (
    f"tests.support.split_workloads:a_{kind}_gpt" for kind in ("split", "whole")
)
Place = tuple[str, Variant]
"""Kind of a layer, and how it is split."""
PLAIN = [Variant(tensor_degree=degree) for degree in (1, 2, 4)]
SEQUENCES = [replace(one, sequence_parallel=True) for one in PLAIN[1:]]


def probed(source: Source) -> dict[Place, ProbeResult]:
    """Probe all kinds of layer under all degrees."""
    prober = Prober(a_split_gpt(width=WIDTH), [2], DEGREES)
    with open_bench(DeviceKind.EMULATED, source) as bench:
        return {
            (prober.cases[case].name, variant): prober.probe(
                ProbeRequest(case=case, micro_batch=2, variant=variant), bench
            )
            for case in range(len(prober.cases))
            for variant in prober.split.possible
        }


def bytes_of(found: ProbeResult) -> dict[str, object]:
    """All that is counted in bytes, but what operators move."""
    assert found.state is not None
    assert found.kept is not None
    assert found.recomputed is not None
    columns = asdict(found.state)
    for way in (found.kept, found.recomputed):
        columns |= {f"{name} {way is found.kept}": v for name, v in asdict(way).items()}
    return {
        name: value
        for name, value in columns.items()
        if "bytes" in name and "traffic" not in name
    }


def test_a_trace_counts_what_a_device_holds_of_a_part() -> None:
    """Layers are split by 1, 2 and 4, in two ways.

    All bytes are equal, and work is a part.
    """
    traced = run_on_device(probed, Source.TRACED)
    measured = run_on_device(probed, Source.MEASURED)
    assert set(traced) == {
        (n, variant)
        for n in ("embedding", "block", "head")
        for variant in PLAIN + SEQUENCES
    }
    for place, found in traced.items():
        assert bytes_of(found) == bytes_of(measured[place]), place
    alone, halved, parts = (
        traced["block", variant] for variant in (*PLAIN[:2], SEQUENCES[0])
    )
    for one, half in ((alone.kept, halved.kept), (alone.recomputed, halved.recomputed)):
        assert one is not None
        assert half is not None
        assert half.forward_flop == one.forward_flop / 2
        assert one.forward_sent_bytes == one.backward_latencies == 0
        # Two sums of [2, 32, 64] in fp32: half of it each way, twice.
        assert half.forward_sent_bytes == 2 * 2 * 32 * WIDTH * 4
        assert half.forward_latencies == 4
        assert half.saved_bytes <= one.saved_bytes
    # Two gathers and two scatters, as much as two sums; once those of norms.
    assert halved.kept is not None
    assert parts.kept is not None
    assert parts.kept.boundary_bytes == halved.kept.boundary_bytes / 2
    assert parts.kept.saved_bytes < halved.kept.saved_bytes
    assert parts.kept.forward_sent_bytes == halved.kept.forward_sent_bytes
    assert parts.kept.forward_latencies == halved.kept.forward_latencies
    assert parts.state is not None
    assert parts.state.step_sent_bytes == 6 * WIDTH * 4  # and biases of out, down
    assert parts.state.step_latencies == 6 * 2


def test_a_degree_that_divides_no_heads_is_left_out() -> None:
    """With the layer, and what fails."""
    prober = Prober(a_split_gpt(width=WIDTH), [1], DEGREES)
    assert prober.split.possible == tuple(
        sorted(PLAIN + SEQUENCES, key=lambda one: one.tensor_degree)
    )
    [left_out] = prober.split.left_out
    assert left_out.tensor_degree == 8
    assert left_out.why.startswith(
        "layer 'block.0' on 8 ranks: RuntimeError: unflatten"
    )


def test_heads_that_a_degree_does_not_divide_are_named() -> None:
    """Of a model of `transformers`, by the field of its configuration."""
    pytest.importorskip("transformers")
    fields = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
    sizes = {"vocab_size": 256, "intermediate_size": 64, "num_hidden_layers": 1}
    tokens = {f"{name}_token_id": None for name in ("bos", "eos", "pad")}
    config = {"model_type": "llama", **tokens, **fields, **sizes}
    prober = Prober(causal_lm(config, sequence_length=8), [1], (1, 2, 4, 8))
    rule = "which the tensor degree does not divide"
    assert [one.why for one in prober.split.left_out] == [
        f"num_key_value_heads is 2, {rule}",
        f"num_attention_heads is 4, {rule}",
    ]


def frozen_norms(factory: Callable[[], nn.Module]) -> nn.Module:
    """A block whose norms are not trained."""
    block = factory()
    for name in ("norm_1", "norm_2"):
        block.get_submodule(name).requires_grad_(requires_grad=False)
    return block


def test_what_is_frozen_stays_so_where_sequences_are_split() -> None:
    """Torch's style makes new parameters of a norm."""
    workload = a_split_gpt(width=WIDTH)
    first, block, *others = workload.layers
    block = replace(block, factory=partial(frozen_norms, block.factory))
    workload = replace(workload, layers=(first, block, *others))
    with tensor_group(2) as mesh:
        layer = build_layer(
            workload, 1, torch.device("cpu"), mesh, sequence_parallel=True
        )
    frozen = {name for name, one in layer.named_parameters() if not one.requires_grad}
    assert frozen == {f"norm_{n}.{kind}" for n in "12" for kind in ("weight", "bias")}


def leaves_it_split(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank some columns of the output alone."""
    over(mesh, module, token=ColwiseParallel())


def leaves(module: nn.Module, mesh: DeviceMesh) -> None:
    """End the process, as a script that checks its arguments."""
    del module, mesh
    sys.exit("no mesh wanted")


def with_first(parallelize: Parallelize) -> Workload:
    """Let the first layer alone be split, and that way."""
    split = a_split_gpt()
    layers = [replace(layer, parallelize=None) for layer in split.layers]
    layers[0] = replace(layers[0], parallelize=parallelize)
    return replace(split, layers=tuple(layers))


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (with_first(leaves_it_split), "layer 'embedding'"),
        (
            with_first(leaves),
            "layer 'embedding' on 2 ranks: SystemExit: no mesh wanted at ",
        ),
        (
            replace(a_split_gpt(), optimizer=partial(torch.optim.Adafactor, lr=1e-3)),
            "a step of the optimizer on a part of a tensor is not that part",
        ),
    ],
    ids=["output", "exit", "optimizer"],
)
def test_what_cannot_be_split_is_named(workload: Workload, why: str) -> None:
    """An output that is not whole, code that exits, an optimizer that mixes numbers."""
    prober = Prober(workload, [1], (1, 2))
    assert prober.split.possible == (Variant(),)
    [left_out] = prober.split.left_out
    assert left_out.why.startswith(why)


def leaves_it_open(module: nn.Module, mesh: DeviceMesh) -> None:
    """Declare nothing of a plain parameter."""
    split_embedding(module, mesh)


def leaves_it_whole(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give whole sequences."""
    split_embedding(module, mesh)
    used_on_whole(module.get_parameter("position"))


def drops_out_rows(module: nn.Module, mesh: DeviceMesh) -> None:
    """Drop out by another module than `nn.Dropout`."""
    drop_out_parts(module.get_submodule("token"), mesh)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (None, "layer 'embedding' has no parallelize_sequence"),
        (leaves_it_open, "parameter 'position' of layer 'embedding' is no DTensor"),
        (leaves_it_whole, "layer 'embedding' gives float32[1, 32, 48] on 2 ranks"),
        (drops_out_rows, "drop_out_parts is given Embedding, but nn.Dropout is needed"),
    ],
)
def test_sequences_that_cannot_be_split_are_named(
    way: Parallelize | None, why: str
) -> None:
    """The layers are split all the same."""
    made = a_split_gpt()
    first, *rest = made.layers
    layers = (replace(first, parallelize_sequence=way), *rest)
    prober = Prober(replace(made, layers=layers), [1], (1, 2))
    assert prober.split.possible == tuple(PLAIN[:2])
    [left_out] = prober.split.left_out
    assert left_out.sequence_parallel
    assert left_out.why.startswith(why)


def test_a_profile_has_rows_of_every_variant() -> None:
    """Those of the second half are of two ranks; ties have bytes of both."""
    made = profile_here(
        a_request(
            SPLIT,
            arguments=f'{{"width": {WIDTH}}}',
            micro_batches=(1, 2),
            tensor_degrees=(1, 2),
        )
    )
    costs = made.costs
    assert made.variants == (*PLAIN[:2], SEQUENCES[0])
    assert list(zip(costs.kind, costs.variant, strict=True)) == [
        (kind, variant) for variant in (0, 1, 2) for kind in range(len(made.kinds))
    ]
    assert costs.forward_messages is not None
    num_kinds = len(made.kinds)
    assert costs.forward_messages.num_latencies[:num_kinds] == (0,) * num_kinds
    assert min(costs.forward_messages.num_latencies[num_kinds:]) > 0
    assert [(tie.variant, tie.parameter_bytes) for tie in made.tied] == [
        (0, 96 * WIDTH * 4),
        (1, 96 * WIDTH * 2),
        (2, 96 * WIDTH * 2),
    ]


def test_layers_that_nobody_splits_have_one_variant() -> None:
    """Each rank of a group would have all of them."""
    made = profile_here(a_request(WHOLE, micro_batches=(1, 2)))
    assert made.variants == (Variant(),)
    assert made.costs.forward_messages is None
