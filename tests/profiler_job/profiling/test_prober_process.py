"""The end of a prober is one line with the place and the remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.probing.messages import ProbeRequest
from plimsoll_profiler.profiling.prober_process import ProberProcess
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.user_code.fingerprint import fingerprint_of

MODEL = """
import ctypes
import torch
from torch import nn
from plimsoll_trainer.adapters.sequential import from_sequential
from plimsoll_trainer.torch_internals.operators import FakeTensor
from tests.support.workloads import mean_square, points

class Wrong(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
    def forward(self, x):
        if isinstance(x, FakeTensor):
            return x
        if self.kind == "crash":
            ctypes.string_at(0)
        raise KeyError("no such table")

def make(kind):
    if kind == "large":
        torch.zeros(2**20)
    net = [nn.Linear(6, 6), Wrong(kind)]
    return from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("crash", r"with SIGSEGV at .*their_layers\.py:17; --debug"),
        ("raise", r"layer '1' cannot be .* 1: KeyError: .* at .*their_layers\.py:18; "),
        ("large", r"it needs more memory for itself than .*py:22\), .* let it give"),
    ],
)
def test_what_the_users_code_does_is_placed(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it raises, crashes, or fills the device before anything is probed."""
    (tmp_path / "their_layers.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    request = ProfileRequest(
        entrypoint="their_layers:make",
        arguments=json.dumps({"kind": kind}),
        device_kind=DeviceKind.EMULATED,
        source=Source.MEASURED,
        micro_batches=(1, 2),
        device_memory_bytes=2**20,
    )
    with (
        pytest.raises(BadWorkloadError, match=message) as caught,
        ProberProcess(request) as prober,
    ):
        prober.ask(ProbeRequest(case=1, micro_batch=1))
    assert "\n" not in str(caught.value)


HIDDEN_PARTS = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent / "parts"))
import hidden
"""


@pytest.mark.slow
def test_code_that_moves_the_path_is_known_as_the_ranks_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They compute the fingerprint before they run it, and refuse a plan for other."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "hidden.py").write_text("")
    (tmp_path / "their_layers.py").write_text(HIDDEN_PARTS + MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    request = ProfileRequest(
        entrypoint="their_layers:make",
        arguments='{"kind": "none"}',
        device_kind=DeviceKind.EMULATED,
        source=Source.TRACED,
        micro_batches=(1, 2),
    )
    with ProberProcess(request) as prober:
        known = prober.frame.fingerprint.source_digest
    assert known == fingerprint_of(request.entrypoint).source_digest
