"""A request has a key by which a profile that was made before is found."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.errors import WorkloadError


def key(**fields: Any) -> str:
    """Key of a request."""
    defaults: dict[str, Any] = {
        "entrypoint": "model:workload",
        "arguments": '{"depth": 2, "width": 8}',
        "device_kind": DeviceKind.EMULATED,
        "source": Source.MEASURED,
    }
    return ProfileRequest(**(defaults | fields)).key()


@pytest.mark.parametrize(
    "fields",
    [
        {"entrypoint": "model:other"},
        {"arguments": '{"depth": 3, "width": 8}'},
        {"device_kind": DeviceKind.CUDA},
        {"source": Source.TRACED},
        {"micro_batches": (1, 2)},
        {"device_memory_bytes": 2**30},
        {"tensor_degrees": (1, 2)},
        {"image": "train:2"},
        {"graph_micro_batches": (1, 2)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_whatever_changes_the_profile_changes_the_key(fields: dict[str, Any]) -> None:
    """On a smaller device a probe may be lost, and the intervals are wider."""
    assert key(**fields) != key()


def test_requests_without_graphs_keep_their_keys() -> None:
    """As they were before there were graphs: profiles that are kept are found."""
    before = "01fac7688236f6e900f767d3efb23d8c04c141763aa773abf9589da6ec27a15c"
    assert key() == f"sha256:{before}"


def test_the_order_of_arguments_does_not_matter() -> None:
    """They are passed by name."""
    assert key(arguments='{"width":8, "depth":2}') == key()


def test_arguments_that_are_no_object_are_refused() -> None:
    """Before anything is looked up."""
    with pytest.raises(WorkloadError, match="a JSON object"):
        key(arguments="[1]")
