"""What the records cost: start-up, and reading a profile of 1e5 layers.

Bars: the planner's types import within 0.1 s; a profile of 1e5 nodes is read, checked
too, in under a second (every plan reads one). The peer is the standard library's JSON
parser alone on the same text, in turn: the difference is what checking costs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.frame import Goal, Measurement, run, seconds_of
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.layer_costs import (
    ByteColumns,
    LayerCosts,
    SecondsColumns,
    Source,
)
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    EdgeColumns,
    Fingerprint,
    LayerColumns,
    ModelProfile,
    OptimizerMode,
    Precision,
    Recipe,
    Variant,
)

NUM_LAYERS = 100_000
NUM_KINDS = 10_000
"""A tenth: operator graphs repeat themselves less than stacks of blocks."""
DIGEST = "sha256:" + "0" * 64


def large_profile() -> ModelProfile:
    """Build a chain of 1e5 layers of 1e4 kinds."""
    rows = NUM_KINDS
    zeros, ones = (0,) * rows, (1,) * rows
    bytes_of_rows = ByteColumns(
        constant_bytes=tuple(range(rows)),
        slope_bytes_per_sample=tuple(range(rows)),
        residual_bytes=zeros,
        relative_error=(0.01,) * rows,
        source=(Source.TRACED,) * rows,
    )
    seconds_of_rows = SecondsColumns(
        constant_s=(1e-4,) * rows,
        slope_s_per_sample=(1e-3,) * rows,
        residual_s=(0.0,) * rows,
        relative_error=(0.05,) * rows,
        source=(Source.ESTIMATED,) * rows,
    )
    return ModelProfile(
        request_key=DIGEST,
        fingerprint=Fingerprint(
            source_digest=DIGEST, python_version="3", torch_version="2"
        ),
        device_kind=DeviceKind.CUDA,
        recipe=Recipe(
            precision=Precision.BF16,
            optimizer="AdamW",
            optimizer_mode=OptimizerMode.FUSED,
        ),
        input_bytes_per_sample=8,
        target_bytes_per_sample=8,
        kinds=tuple(f"kind.{kind}" for kind in range(rows)),
        variants=(Variant(),),
        layers=LayerColumns(
            name=tuple(f"layer.{layer}" for layer in range(NUM_LAYERS)),
            kind=tuple(layer % rows for layer in range(NUM_LAYERS)),
        ),
        edges=EdgeColumns(
            source=tuple(range(NUM_LAYERS - 1)),
            target=tuple(range(1, NUM_LAYERS)),
            part=(1.0,) * (NUM_LAYERS - 1),
        ),
        costs=LayerCosts(
            kind=tuple(range(rows)),
            variant=zeros,
            parameter_bytes=ones,
            gradient_bytes=ones,
            buffer_bytes=zeros,
            optimizer_bytes=ones,
            optimizer_transient_bytes=zeros,
            optimizer_step_s=(0.0,) * rows,
            saved=bytes_of_rows,
            transient=bytes_of_rows,
            boundary=bytes_of_rows,
            recomputable=(True,) * rows,
            recomputed_saved=bytes_of_rows,
            recomputed_transient=bytes_of_rows,
            forward=seconds_of_rows,
            backward=seconds_of_rows,
            recompute=seconds_of_rows,
        ),
    )


def start_python(statement: str) -> None:
    """Start an interpreter that runs one statement."""
    subprocess.run([sys.executable, "-c", statement], check=True)  # noqa: S603 - own


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    bare, with_records = seconds_of(
        partial(start_python, "pass"),
        partial(start_python, "import plimsoll_planner.records.solution"),
        runs=9,
    )
    yield Measurement(
        name="importing the records, Python's own start included",
        runs=with_records,
        unit="s",
        goal=Goal(at_most=0.1 + min(bare)),
    )
    yield Measurement(name="peer: starting Python", runs=bare, unit="s")
    profile = large_profile()
    text = to_text(profile)
    reading, parsing, writing = seconds_of(
        partial(from_text, text, ModelProfile),
        partial(json.loads, text),
        partial(to_text, profile),
    )
    size = f"{NUM_LAYERS:.0e} layers, {len(text) / 1e6:.1f} MB"
    yield Measurement(
        name=f"reading a profile of {size}",
        runs=reading,
        unit="s",
        goal=Goal(at_most=1.0),
    )
    yield Measurement(name="peer: json.loads of that text", runs=parsing, unit="s")
    yield Measurement(name="writing that profile", runs=writing, unit="s")


if __name__ == "__main__":
    sys.exit(run("records", measure))
