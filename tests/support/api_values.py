"""JSON values for the fields of a TrainingPlan: at, inside and outside of each bound.

Made from the types alone, never from the schema: the two are to be compared. `faults`
lists documents with one odd place each; `documents` draws random ones.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from hypothesis import strategies as st

from plimsoll_operator.api.status import ConditionType
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import Entries
from plimsoll_planner.records.record import (
    Record,
    RecordShape,
    required_fields,
    shapes_of,
)
from plimsoll_planner.records.shape import (
    ChoiceShape,
    DecimalShape,
    JsonObjectShape,
    ListShape,
    NumberShape,
    OptionalShape,
    Shape,
    TextShape,
)

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
Place = tuple[str | int, ...]
"""Names and numbers that lead into a document."""
ODD: tuple[object, ...] = (None, True, 0, -1, 1.5, "", "{}", "1", [], [0], {})
"""Of every type."""
ODD_DECIMALS = ("1e0", "-0", "+1", "01", ".5", "1.", " 1", "1_0", "\u0661", "NaN", 0.5)
ODD_TEXTS = (
    *("a:b", "a.b:c_1", "a:1", "a.:b", "a:b:c", "a:\u00e9", "a:b\n"),
    *("a-b", "-a", "a-", "a.b", "A", "A1", "A-", "a b", "\u00e9", "a\tb", "\x7f"),
    *("\x85", "\u2028", "\u0661", "1.5Gi", "1.1234567", "1Pi", "1 Gi", "16gb", "500m"),
    *("1" * 12, "1" * 13, "1" * 13 + "m", "0.5m", ".5", "1Ki", "1ki", "1k", "\u0661m"),
    *("2026-11-21T09:30:00Z", "2026-11-21T09:30:00", "202\u0666-11-21T09:30:00Z"),
)
"""Texts that one or another pattern takes, or nearly does."""
STEPS = (-1, 0, 1)
"""Around a bound."""
UNKNOWN = "unknownField"

A_SPEC: dict[str, Any] = {
    "suspend": True,
    "workload": {"entrypoint": "examples.tiny_gpt:workload", "args": {"depth": 8}},
    "training": {
        "globalBatchSize": 32,
        "steps": 200,
        "batchStatistics": "PerMicroBatch",
    },
    "checkpoint": {
        "everySteps": 50,
        "claimName": "checkpoints",
        "path": "tiny-gpt",
        "exportWeights": True,
        "resumeFrom": "another",
    },
    "search": {
        "objective": "MinimizeCost",
        "maxGPUs": 4,
        "rateFloor": "0.25",
        "minSamplesPerSecond": "1.5",
        "throughputTolerance": "0.1",
        "deadlineSeconds": 3600,
        "headroom": "0.02",
        "maxMicroBatch": 8,
        "wholeNodes": True,
        "engine": "plimsoll",
        "offers": {"configMap": "gpu-offers"},
    },
    "override": {
        "gpus": 4,
        "pipeline": 2,
        "data": 2,
        "tensor": 1,
        "microBatch": 2,
        "cuts": [0, 3],
        "recomputedLayers": [1, 2],
        "offloadedLayers": [1, 2],
        "inFlightCaps": [2, 1],
        "sharding": "optimizer",
        "optimizerHome": "host",
        "sequences": "split",
    },
    "profile": {"policy": "Always", "source": "Traced", "timeoutSeconds": 60},
    "launch": {
        "policy": "PlanOnly",
        "requireCertified": False,
        "rehearse": "IfDevice",
        "backend": "JobSet",
        "queueName": "training",
        "priorityClassName": "low",
        "perGPU": {"cpu": "500m", "memory": "512Mi"},
    },
    "runPolicy": {
        "backoffLimit": 1,
        "oomReplanLimit": 1,
        "hostMemoryDoublings": 1,
        "nodeLostSeconds": 60,
        "pendingSeconds": 60,
        "runningSeconds": 60,
        "replanOnline": False,
        "replanCooldownSeconds": 10,
        "replanLimit": 1,
    },
    "template": {"spec": {"tolerations": [{"operator": "Exists"}]}},
}
"""Every field, and none as it is by default."""

A_PLAN: dict[str, Any] = {
    "digest": "sha256:0123",
    "revision": 2,
    "product": "H100-80GB",
    "gpus": 4,
    "nodes": 1,
    "pipeline": 2,
    "data": 2,
    "tensor": 1,
    "sequences": "whole",
    "sharding": "optimizer, none",
    "optimizerHome": "device",
    "offloadedLayers": 3,
    "microBatch": 2,
    "schedule": "1F1B",
    "predictedPeakBytes": 10**10,
    "predictedPeak": "9.32 GiB",
    "capacityBytes": 2 * 10**10,
    "hourlyCost": "24.5",
    "currency": "USD",
}
A_STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": kind.value,
            "status": "True",
            "reason": "Trained" if kind is ConditionType.SUCCEEDED else "Valid",
            "message": "said in a few words",
            "observedGeneration": 2,
            "lastTransitionTime": "2026-11-21T09:30:00Z",
        }
        for kind in ConditionType
    ],
    "profile": {"requestKey": "sha256:4567", "source": "traced", "isCached": True},
    "plan": dict(A_PLAN),
    "certificate": {
        "smallerGPUs": 3,
        "paidGPUs": 8,
        "verdict": "fails",
        "reason": "rank 0, backward: needs 1.31 GiB, has 1.00 GiB",
        "fewestAtAnySpeed": 3,
        "fewestUnfixed": 4,
        "space": "without offload",
    },
    "alternatives": [dict(A_PLAN)],
    "workloadRef": {"name": "tiny-gpt-train-2", "uid": "89ab", "attempt": 2},
    "observed": {
        "peakBytes": 10**10,
        "peak": "9.32 GiB",
        "errorPercent": "0.4",
        "stepSeconds": "0.25",
    },
    "checkpoints": {
        "claimName": "ckpt",
        "folder": "path/89ab",
        "weights": "path/89ab/weights",
    },
    "revisions": [
        {
            "revision": 2,
            "state": "refused",
            "cause": "Pace",
            "movedLayers": 3,
            "stepPercent": "87.5",
            "step": 40,
            "seconds": "0.25",
            "message": "no room",
            "time": "2026-11-21T10:30:00Z",
        }
    ],
    "attempt": 2,
    "failures": {"application": 1, "outOfMemory": 1, "disruption": 1},
    "startTime": "2026-11-21T09:30:00Z",
    "completionTime": "2026-11-21T19:30:00Z",
}
"""Every field."""


def fields_of(
    kind: type[Record], before: Place = ()
) -> Iterator[tuple[Place, Shape, bool]]:
    """Yield place, shape and need of every field, those of first entries as well."""
    for field, shape in shapes_of(kind).items():
        place = (*before, kind.wire_name(field))
        yield place, shape, field in required_fields(kind)
        inner = shape
        while isinstance(inner, OptionalShape | ListShape):
            place = (*place, 0) if isinstance(inner, ListShape) else place
            inner = inner.inner
        if isinstance(inner, RecordShape):
            yield from fields_of(inner.record, place)


def edges(shape: Shape, now: Any) -> list[object]:
    """Values at, just inside and just outside of a shape's bounds.

    Args:
        shape: of the field.
        now: a valid value of it.
    """
    found: list[object] = [now]
    match shape:
        case NumberShape(bound=bound):
            ends = (int(bound.minimum), int(bound.maximum))
            found += [end + step for end in ends for step in STEPS] + [2.0]
        case DecimalShape(bound=bound):
            found += decimal_edges(int(bound.maximum))
        case TextShape(bound=bound):
            ends = (bound.shortest, bound.longest)
            found += text_edges(max(0, end + n) for end in ends for n in STEPS)
        case ChoiceShape(choices=choices):
            words = [word.value for word in choices]
            found += [*words, words[0].swapcase(), f"{words[0]}\n"]
        case JsonObjectShape(bound=bound):
            most = bound.longest - len('{"a": ""}')
            found += [
                {"a": {"b": [1, None]}},
                *({"a": "b" * (most + n)} for n in STEPS),
            ]
        case ListShape(inner=inner, bound=Entries(most=most)):
            found += [list(islice(cycle(now), most + step)) for step in STEPS]
            found += [[edge] for edge in edges(inner, now[0])]
        case OptionalShape(inner=inner):
            found += edges(inner, now)
        case _:
            pass
    return found


def decimal_edges(maximum: int) -> list[object]:
    """Decimals around 0 and the maximum, and around the places allowed."""
    near = ("0", "0.0", "0.000000001", "0.0000000001", "0.5", "0.5\n")
    inside = (f"{maximum - 1}.999999999", f"{maximum}", f"{maximum}.000000000")
    outside = (f"{maximum}.000000001", f"{maximum + 1}", f"{maximum}0")
    return [*near, *inside, *outside, *ODD_DECIMALS]


def text_edges(lengths: Iterable[int]) -> list[object]:
    """Texts of some lengths, and what patterns may stumble over."""
    long = [(start * n)[:n] for n in lengths for start in ("a", "A", "1")]
    return [*long, *(("a:" + text)[: len(text)] for text in long), *ODD_TEXTS]


def faults(whole: Any, place: Place, shape: Shape) -> Iterator[Any]:
    """Yield documents that differ in one field: at its edges, odd, or absent."""
    for value in (*edges(shape, at(whole, place)), *ODD):
        yield changed(whole, place, value)
    without = copy.deepcopy(whole)
    del at(without, place[:-1])[place[-1]]
    yield without
    for inside in places(at(whole, place), place):
        if isinstance(at(whole, inside), dict):
            yield changed(whole, (*inside, UNKNOWN), 1)


def at(whole: Any, place: Place) -> Any:
    """Value at a place."""
    for name in place:
        whole = whole[name]
    return whole


def changed(whole: Any, place: Place, value: object) -> Any:
    """Copy with another value at a place."""
    if not place:
        return value
    found = copy.deepcopy(whole)
    at(found, place[:-1])[place[-1]] = value
    return found


def places(whole: Any, before: Place = ()) -> Iterator[Place]:
    """Yield every place in a document, its root first."""
    yield before
    if isinstance(whole, dict | list):
        inside = whole.items() if isinstance(whole, dict) else enumerate(whole)
        for name, value in inside:
            yield from places(value, (*before, name))


def refusal(kind: type[Record], value: object) -> InvalidFieldError | None:
    """Error of the types about a value; None if they take it."""
    try:
        kind.from_json(value, "spec")
    except InvalidFieldError as error:
        return error
    return None


def is_beyond_schemas(error: InvalidFieldError) -> bool:
    """Whether a refusal is one that a schema has no words for."""
    value = error.value
    if isinstance(value, str) and error.allowed.startswith("a mapping"):
        return len(value) > 16_384  # its text as JSON
    return (
        (isinstance(value, float) and value.is_integer())
        or (isinstance(value, str) and not value.isprintable() and not CONTROLS(value))
        or error.allowed == "entries that occur once"
    )


def without_nulls(value: object) -> object:
    """Document without the fields that are null."""
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {n: without_nulls(v) for n, v in value.items() if v is not None}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)
"""Whatever JSON can say."""


def values(shape: Shape) -> st.SearchStrategy[Any]:
    """Draw values of a shape, most of them within its bounds."""
    found: st.SearchStrategy[Any] = st.booleans()
    match shape:
        case NumberShape(bound=bound):
            found = st.integers(int(bound.minimum), int(bound.maximum))
        case DecimalShape(bound=bound):
            drawn = st.decimals(0, int(bound.maximum), places=9)
            found = drawn.map("{:f}".format) | st.from_regex(r"[0-9]{1,3}(\.[0-9]+)?")
        case TextShape(bound=bound):
            pattern = bound.pattern
            found = st.from_regex(pattern, fullmatch=True) if pattern else TEXTS
        case ChoiceShape(choices=choices):
            found = st.sampled_from([word.value for word in choices])
        case JsonObjectShape():
            found = st.dictionaries(TEXTS, JUNK, max_size=3)
        case ListShape(inner=inner):
            found = st.lists(values(inner), max_size=3)
        case OptionalShape(inner=inner):
            found = st.none() | values(inner)
        case RecordShape(record=record):
            found = records(record)
        case _:
            pass
    return found


def records(kind: type[Record]) -> st.SearchStrategy[Any]:
    """Draw documents of a record, with some of the fields that may be absent."""
    drawn = {kind.wire_name(f): values(shape) for f, shape in shapes_of(kind).items()}
    required = {kind.wire_name(field) for field in required_fields(kind)}
    return st.fixed_dictionaries(
        {name: drawn[name] for name in drawn if name in required},
        optional={name: drawn[name] for name in drawn if name not in required},
    )


@st.composite
def documents(draw: st.DrawFn, kind: type[Record]) -> Any:
    """Draw documents of a record, half of them with junk at one place."""
    whole = draw(records(kind))
    if draw(st.booleans()):
        return changed(whole, draw(st.sampled_from(list(places(whole)))), draw(JUNK))
    return whole
