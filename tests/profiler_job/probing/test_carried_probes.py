"""Layers that take and give values, alone: what counts as theirs, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.cases import cases_of
from plimsoll_profiler.probing.layer_probe import (
    LayerCase,
    TakenSpec,
    probe_activations,
)
from plimsoll_profiler.probing.messages import Activations, ProbeRequest
from plimsoll_profiler.probing.prober import Prober
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from tests.support.builders import a_fingerprint
from tests.support.ranks import run_on_device
from tests.support.skips import MODELS, Part

FORM = TensorSpec((3, 8), torch.float32)
ONE = FORM.nbytes
LAST, BETWEEN, STILL = (
    TakenSpec(spec=FORM, needs_gradient=grad, is_last=last)
    for grad, last in ((True, True), (True, False), (False, True))
)


def probe(
    run: Callable[..., Any], *taken: TakenSpec, recomputed: bool = False
) -> Activations:
    """Probe a layer between two others, on fake tensors."""
    case = LayerCase(
        incoming=FORM, is_untrained=False, taken=taken, recomputed=recomputed
    )
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        return probe_activations(Part(run), case, bench)


def add(parts: nn.ModuleDict, x: Tensor, skip: Tensor) -> Tensor:
    """The sum: saves nothing."""
    del parts
    return x + skip


def multiply(parts: nn.ModuleDict, x: Tensor, skip: Tensor) -> Tensor:
    """The product: saves both."""
    del parts
    return x * skip


def branch(parts: nn.ModuleDict, x: Tensor) -> tuple[Tensor, Tensor]:
    """Pass one bend and give another, whose backward pass needs it."""
    del parts
    return x * 2, torch.sigmoid(x)


def test_the_last_taker_makes_the_buffer_of_the_gradient() -> None:
    """The gradient of the sum is dx and that of the value, which is copied: dy, dv."""
    found = probe(add, LAST)
    assert found.forward_transient_bytes == ONE
    assert found.saved_bytes == 0
    assert found.backward_transient_bytes == 2 * ONE


def test_other_takers_add_to_it() -> None:
    """The buffer is there before, and the engine's: dy alone is new."""
    assert probe(add, BETWEEN).backward_transient_bytes == ONE


def test_a_value_without_a_gradient_has_no_buffer() -> None:
    """Such as a mask."""
    assert probe(add, STILL).backward_transient_bytes == ONE


def test_a_taken_value_is_not_saved() -> None:
    """Backward needs x and the value; x is the layer's, the value the engine's."""
    for recomputed in (False, True):
        found = probe(multiply, LAST, recomputed=recomputed)
        assert (found.saved_bytes, found.keeps_input) == (0, True)


def test_a_given_value_is_not_saved_and_its_gradient_counts() -> None:
    """Forward makes y and v. Backward begins with v, dy, dv, and makes their products.

    Of v the backward pass of the sigmoid needs all, which counts as held, not saved.
    At its peak: v, dy, dv and the gradient through the sigmoid.
    """
    found = probe(branch)
    assert found.forward_transient_bytes == 2 * ONE
    assert (found.saved_bytes, found.keeps_output) == (0, False)
    assert found.backward_transient_bytes == 4 * ONE


def test_the_last_taker_is_of_another_kind() -> None:
    """If a gradient comes back; it makes no difference to a mask."""
    names = {}
    for model in ("memory", "masked"):
        workload = MODELS[model]()
        cases, _ = cases_of(workload, boundaries_of(workload, 2))
        names[model] = [case.name for case in cases]
    assert names["memory"][-3:] == ["attend", "attend at decode.1", "words"]
    assert names["masked"] == ["embed_masked", "masked_block", "words"]


def bytes_found(source: Source) -> dict[str, list[dict[str, object]]]:
    """Bytes of every case of every model, in every way."""
    found = {}
    for model, make in MODELS.items():
        prober = Prober(make(), [4])
        with open_bench(DeviceKind.EMULATED, source) as bench:
            results = [
                prober.probe(ProbeRequest(case=case, micro_batch=4), bench)
                for case in range(len(prober.cases))
            ]
        found[model] = [
            {name: asdict(passes)[name] for name in Activations.__dataclass_fields__}
            for result in results
            for passes in (result.kept, result.recomputed, result.offloaded)
            if passes is not None
        ]
    return found


def both_sources() -> list[dict[str, list[dict[str, object]]]]:
    """Measured and traced, on an emulated device."""
    return [bytes_found(source) for source in (Source.MEASURED, Source.TRACED)]


def test_a_trace_finds_what_is_measured() -> None:
    """To the byte, of each layer in each way."""
    measured, traced = run_on_device(both_sources)
    for model, expected in measured.items():
        assert traced[model] == expected, model


def test_a_frame_tells_of_what_is_carried() -> None:
    """Bytes at every micro-batch, in units of the allocator; all inputs count."""
    workload = MODELS["inputs"]()
    prober = Prober(workload, [1, 3])
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        frame = prober.frame(a_fingerprint(), bench)
    assert [(one.name, one.source, one.takers) for one in frame.carried] == [
        ("z", -1, (1,)),
        ("a", -1, (2,)),
    ]
    assert [one.num_bytes for one in frame.carried] == [(32, 96), (128, 384)]
    assert frame.input_bytes_per_sample == 64 + 32 + 128
