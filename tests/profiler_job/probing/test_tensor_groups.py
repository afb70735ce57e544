"""One rank of a tensor group is probed without the others, to the byte."""

from __future__ import annotations

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
from plimsoll_trainer.workload import Workload
from tests.support.profiles import a_request, profile_here
from tests.support.ranks import run_on_device
from tests.support.split_workloads import a_split_gpt, over

DEGREES = (1, 2, 4, 8)
WIDTH = 64
SPLIT, WHOLE = (
    f"tests.support.split_workloads:a_{kind}_gpt" for kind in ("split", "whole")
)
Place = tuple[str, int]
"""Kind of a layer, T."""


def probed(source: Source) -> dict[Place, ProbeResult]:
    """Probe all kinds of layer under all degrees."""
    prober = Prober(a_split_gpt(width=WIDTH), [2], DEGREES)
    with open_bench(DeviceKind.EMULATED, source) as bench:
        return {
            (prober.cases[case].name, degree): prober.probe(
                ProbeRequest(case=case, micro_batch=2, tensor_degree=degree), bench
            )
            for case in range(len(prober.cases))
            for degree in prober.tensor_degrees
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
    """Layers are split by 1, 2 and 4; all bytes are equal, and work is a part."""
    traced = run_on_device(probed, Source.TRACED)
    measured = run_on_device(probed, Source.MEASURED)
    assert set(traced) == {
        (n, d) for n in ("embedding", "block", "head") for d in (1, 2, 4)
    }
    for place, found in traced.items():
        assert bytes_of(found) == bytes_of(measured[place]), place
    alone, halved = (traced["block", degree] for degree in (1, 2))
    for one, half in ((alone.kept, halved.kept), (alone.recomputed, halved.recomputed)):
        assert one is not None
        assert half is not None
        assert half.forward_flop == one.forward_flop / 2
        assert one.forward_sent_bytes == one.backward_latencies == 0
        # Two sums of [2, 32, 64] in fp32: half of it each way, twice.
        assert half.forward_sent_bytes == 2 * 2 * 32 * WIDTH * 4
        assert half.forward_latencies == 4
        assert half.saved_bytes <= one.saved_bytes


def test_a_degree_that_divides_no_heads_is_left_out() -> None:
    """With the layer, and what fails."""
    prober = Prober(a_split_gpt(width=WIDTH), [1], DEGREES)
    assert prober.tensor_degrees == (1, 2, 4)
    [left_out] = prober.split.left_out
    assert left_out.tensor_degree == 8
    assert left_out.why.startswith("layer 'block.0' on 8 ranks: RuntimeError: shape")


def leaves_it_split(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank some columns of the output alone."""
    over(mesh, module, token=ColwiseParallel())


def with_head(split: Workload) -> Workload:
    """Let the first block be split so that its output is."""
    layers = [replace(layer, parallelize=None) for layer in split.layers]
    layers[0] = replace(layers[0], parallelize=leaves_it_split)
    return replace(split, layers=tuple(layers))


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (with_head(a_split_gpt()), "layer 'embedding'"),
        (
            replace(a_split_gpt(), optimizer=partial(torch.optim.Adafactor, lr=1e-3)),
            "a step of the optimizer on a part of a tensor is not that part",
        ),
    ],
    ids=["output", "optimizer"],
)
def test_what_cannot_be_split_is_named(workload: Workload, why: str) -> None:
    """An output that is not whole, an optimizer that mixes numbers."""
    prober = Prober(workload, [1], (1, 2))
    assert prober.tensor_degrees == (1,)
    [left_out] = prober.split.left_out
    assert left_out.why.startswith(why)


def test_a_profile_has_rows_of_every_variant() -> None:
    """Those of the second half are of two ranks; ties have bytes of both."""
    made = profile_here(
        a_request(SPLIT, arguments=f'{{"width": {WIDTH}}}', tensor_degrees=(1, 2))
    )
    costs = made.costs
    assert made.variants == (Variant(), Variant(tensor_degree=2))
    assert list(zip(costs.kind, costs.variant, strict=True)) == [
        (kind, variant) for variant in (0, 1) for kind in range(len(made.kinds))
    ]
    assert costs.forward_messages is not None
    num_kinds = len(made.kinds)
    assert costs.forward_messages.num_latencies[:num_kinds] == (0,) * num_kinds
    assert min(costs.forward_messages.num_latencies[num_kinds:]) > 0
    assert [(tie.variant, tie.parameter_bytes) for tie in made.tied] == [
        (0, 96 * WIDTH * 4),
        (1, 96 * WIDTH * 2),
    ]


def test_layers_that_nobody_splits_have_one_variant() -> None:
    """Each rank of a group would have all of them."""
    made = profile_here(a_request(WHOLE))
    assert made.variants == (Variant(),)
    assert made.costs.forward_messages is None
