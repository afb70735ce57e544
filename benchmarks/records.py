"""Cost of the records: start-up, and reading a profile of 1e5 layers.

Bars: the planner's types import within 0.1 s; a profile of 1e5 nodes is read, checked
too, in under a second (every plan reads one). The peer is the standard library's JSON
parser alone on the same text, in turn: the difference is what checking costs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.frame import Goal, Measurement, run, seconds_of, start_python
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.model_profile import LayerColumns, ModelProfile
from tests.support.builders import a_profile, layer_costs

NUM_LAYERS = 100_000
NUM_KINDS = 10_000
"""A tenth: operator graphs repeat themselves less than stacks of blocks."""


def large_profile() -> ModelProfile:
    """Build a chain of 1e5 layers of 1e4 kinds."""
    return a_profile(
        kinds=tuple(f"kind.{kind}" for kind in range(NUM_KINDS)),
        layers=LayerColumns(
            name=tuple(f"layer.{layer}" for layer in range(NUM_LAYERS)),
            kind=tuple(layer % NUM_KINDS for layer in range(NUM_LAYERS)),
        ),
        costs=layer_costs(NUM_KINDS),
        tied=(),
        probes=(),
    )


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
