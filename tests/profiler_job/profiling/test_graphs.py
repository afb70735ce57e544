"""Graphs of a profile: what a process of its own measures of each micro-batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_profiler.errors import (
    BadWorkloadError,
    ProbingFailedError,
    TracedGraphError,
)
from plimsoll_profiler.probing.grapher import profiled_graphs
from plimsoll_profiler.profiling import graphs
from plimsoll_profiler.profiling.document_process import ProcessKilledError
from plimsoll_profiler.profiling.graphs import graphs_of, require_same
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.user_code.entrypoint import load_workload
from tests.support.builders import a_fingerprint
from tests.support.profiles import ignore
from tests.support.ranks import run_ranks

MLP = "examples.mlp:workload"
ARGUMENTS: dict[str, Any] = {"depth": 1, "width": 16, "num_points": 2}
ROOT = Path(__file__).parents[3]


def a_request(**fields: Any) -> ProfileRequest:
    """Ask for graphs of a small perceptron."""
    defaults: dict[str, Any] = {
        "entrypoint": MLP,
        "arguments": json.dumps(ARGUMENTS),
        "device_kind": DeviceKind.EMULATED,
        "source": Source.MEASURED,
        "micro_batches": (1, 2),
        "tensor_degrees": (1,),
        "graph_micro_batches": (2, 1),
    }
    return ProfileRequest(**(defaults | fields))


def digests() -> list[str]:
    """Digests of the same graphs, captured on this rank."""
    workload = load_workload(MLP, ARGUMENTS)
    found = profiled_graphs(workload, (1, 2), HostDevice())
    return [one.graph.graph_digest for one in found]


@pytest.mark.slow
def test_a_profile_has_the_graphs_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They rise, all nodes are timed, and who captures again finds the same."""
    monkeypatch.chdir(ROOT)
    progress: list[tuple[int, int, str]] = []
    made = profile(a_request(), lambda *words: progress.append(words))
    assert [one.micro_batch for one in made.graphs] == [1, 2]
    [expected] = run_ranks(digests, 1)
    assert [one.graph.graph_digest for one in made.graphs] == expected
    for one in made.graphs:
        seconds = one.graph.nodes.seconds
        assert None not in seconds
        assert sum(filter(None, seconds)) > 0
    assert progress[-2:] == [(2, 2, "operators, one by one"), (2, 2, "")]
    assert from_text(to_text(made), ModelProfile) == made


BRANCHES = """
from torch import nn
from plimsoll_trainer.adapters.sequential import from_sequential
from plimsoll_trainer.workload import AdamW
from tests.support.workloads import mean_square, points

class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def make():
    print("a word of the workload")
    net = [nn.Linear(6, 6), Branch()]
    return from_sequential(net, loss=mean_square, batch=points, optimizer=AdamW())
"""


@pytest.mark.slow
def test_what_depends_on_numbers_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its place, and what can be done."""
    (tmp_path / "their_branches.py").write_text(BRANCHES)
    monkeypatch.syspath_prepend(str(tmp_path))
    request = a_request(entrypoint="their_branches:make", arguments="{}")
    place = r"asks for numbers .*their_branches\.py:9\).* chain of layers \(engine pl"
    with pytest.raises(BadWorkloadError, match=place) as caught:
        graphs_of(request, a_fingerprint(), ignore)
    assert "\n" not in str(caught.value)


def test_graphs_of_a_trace_are_refused() -> None:
    """Before anything is started: nothing would time their operators."""
    request = a_request(source=Source.TRACED, entrypoint="nowhere:workload")
    with pytest.raises(TracedGraphError, match="profile with source measured"):
        profile(request, ignore)


def test_graphs_of_another_workload_are_refused() -> None:
    """They would stand beside layers that they are not of."""
    require_same(a_fingerprint(), a_fingerprint())
    other = a_fingerprint(source_digest="sha256:" + "e" * 64)
    with pytest.raises(ProbingFailedError, match="not the same as when its layers"):
        require_same(a_fingerprint(), other)


class Killed:
    """A process that the kernel kills at once."""

    def __init__(self, *words: object) -> None:
        """Start nothing."""

    def __enter__(self) -> Killed:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def documents(self, kind: type) -> list[object]:
        """Write none of any kind."""
        del kind
        raise ProcessKilledError


def test_a_process_that_was_killed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how far it got; a profile without its graphs would be of no use."""
    monkeypatch.setattr(graphs, "DocumentProcess", Killed)
    with pytest.raises(ProbingFailedError, match="memory, after 0 of 2 graphs"):
        graphs_of(a_request(), a_fingerprint(), ignore)
