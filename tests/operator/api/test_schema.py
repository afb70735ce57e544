"""The schema refuses what the types refuse, and knows the fields that they know."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators

from plimsoll_operator.api.manifest import Metadata, parse_manifest
from plimsoll_operator.api.schema import (
    Schema,
    json_schema,
    manifest_schema,
    openapi_schema,
    schema_of,
)
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Status
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.bounds import Fraction, Index, Range
from plimsoll_planner.records.record import Record, shape_of
from plimsoll_planner.records.shape import Shape
from tests.support.api_values import (
    A_SPEC,
    A_STATUS,
    UNKNOWN,
    Place,
    changed,
    documents,
    faults,
    fields_of,
    is_beyond_schemas,
    refusal,
    without_nulls,
)

WHOLE = {TrainingPlanSpec: A_SPEC, Status: A_STATUS}


def pattern_of_re2(
    _validator: Any, pattern: str, value: object, _schema: Any
) -> Iterator[ValidationError]:
    """Judge a pattern: only Python's `$` also matches before the last line's end."""
    in_python = re.sub(r"\$$", r"\\Z", pattern)
    if isinstance(value, str) and not re.search(in_python, value):
        yield ValidationError(f"{value!r} does not match {pattern}")


Judge = validators.extend(  # type: ignore[no-untyped-call] # in its stubs
    Draft202012Validator, {"pattern": pattern_of_re2}
)
JUDGES = {kind: Judge(json_schema(openapi_schema(kind))) for kind in WHOLE}


def agree(kind: type[Record], value: object) -> bool:
    """Compare schema and types on a document; return whether they accept it."""
    error, is_valid = refusal(kind, value), JUDGES[kind].is_valid(value)
    if error is None:
        assert is_valid, [e.message for e in JUDGES[kind].iter_errors(value)]
    elif not is_beyond_schemas(error):
        assert not is_valid, str(error)
    return error is None


EVERY_FIELD = [
    pytest.param(kind, place, shape, id=".".join(map(str, (kind.__name__, *place))))
    for kind in WHOLE
    for place, shape, _ in fields_of(kind)
]


@pytest.mark.parametrize(("kind", "place", "shape"), EVERY_FIELD)
def test_each_bound_is_that_of_the_types(
    kind: type[Record], place: Place, shape: Shape
) -> None:
    """At it, just inside, just outside; absent; of another type; not known."""
    verdicts = {agree(kind, value) for value in faults(WHOLE[kind], place, shape)}
    assert verdicts == {True, False}, "the edges of this field tell nothing"


@pytest.mark.parametrize("kind", WHOLE)
def test_an_unknown_field_is_refused_at_the_root(kind: type[Record]) -> None:
    """As inside of each part, which the test above looks at."""
    assert agree(kind, WHOLE[kind])
    assert not agree(kind, WHOLE[kind] | {UNKNOWN: 1})
    assert not agree(kind, [])


@given(data=st.data())
@pytest.mark.parametrize("kind", WHOLE)
def test_any_document_is_judged_alike(kind: type[Record], data: st.DataObject) -> None:
    """Random ones, half of them with anything at all in one place."""
    agree(kind, data.draw(documents(kind)))


@pytest.mark.parametrize(
    ("kind", "place", "value", "rule"),
    [
        (TrainingPlanSpec, ("training", "steps"), 200.0, "a whole number"),
        (TrainingPlanSpec, ("checkpoint", "path"), "a\u2028b", "printable text"),
        (
            TrainingPlanSpec,
            ("workload", "args"),
            {"a": "b" * 16_384},
            "as JSON at most",
        ),
        (Status, ("conditions", 1, "type"), "Accepted", "entries that occur once"),
    ],
)
def test_some_rules_are_beyond_schemas(
    kind: type[Record], place: Place, value: object, rule: str
) -> None:
    """Each of those left out above is one: types refuse it, the schema does not."""
    whole = changed(WHOLE[kind], place, value)
    error = refusal(kind, whole)
    assert error is not None
    assert rule in error.allowed
    assert is_beyond_schemas(error)
    assert JUDGES[kind].is_valid(whole)


def schemas_in(schema: Schema, before: Place = ()) -> Iterator[tuple[Place, Schema]]:
    """Yield place and schema of every field, those of first entries as well."""
    for name, part in schema.get("properties", {}).items():
        yield (*before, name), part
        inside = (*before, name, 0) if "items" in part else (*before, name)
        yield from schemas_in(part.get("items", part), inside)


@pytest.mark.parametrize("kind", [*WHOLE, Metadata])
def test_every_field_is_in_the_schema_and_means_something(kind: type[Record]) -> None:
    """Those of the types, and no others; none without a sentence."""
    found = dict(schemas_in(openapi_schema(kind)))
    assert list(found) == [place for place, _, _ in fields_of(kind)]
    assert [place for place, part in found.items() if not part["description"]] == []


def with_defaults(schema: Schema, value: Any) -> Any:
    """Fill in defaults as an API server does: from the outside to the inside."""
    if "properties" not in schema or value is None:
        return value
    filled = dict(value)
    for name, part in schema["properties"].items():
        if name not in filled and "default" in part:
            filled[name] = copy.deepcopy(part["default"])
        if name in filled:
            filled[name] = with_defaults(part, filled[name])
    return filled


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        (TrainingPlanSpec, {name: A_SPEC[name] for name in ("workload", "training")}),
        (Status, {}),
    ],
)
def test_defaults_are_those_of_the_types(
    kind: type[Record], least: dict[str, Any]
) -> None:
    """An API server fills in what is read where nothing stands."""
    filled = with_defaults(openapi_schema(kind), least)
    assert agree(kind, filled)
    assert kind.from_json(filled, "") == kind.from_json(least, "")
    assert without_nulls(kind.from_json(least, "").to_json()) == filled


PLAN = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {"name": "tiny-gpt", "labels": {"team": "seven"}},
    "spec": A_SPEC,
}


@pytest.mark.parametrize(
    ("place", "value", "is_right"),
    [
        ((), PLAN, True),
        ((), [], False),
        ((UNKNOWN,), 1, False),
        (("kind",), "TrainPlan", False),
        (("apiVersion",), "plimsoll.dev/v1", False),
        (("metadata",), {}, False),
        (("metadata", "name"), "n" * 40, True),
        (("metadata", "name"), "n" * 41, False),
        (("metadata", "name"), "Tiny", False),
        (("spec", UNKNOWN), 1, False),
        (("spec",), None, False),
    ],
)
def test_a_manifest_is_judged_as_a_whole(
    place: Place, value: object, is_right: bool
) -> None:
    """By an editor, with the schema for files, and by the command."""
    whole = changed(PLAN, place, value)
    assert Judge(manifest_schema()).is_valid(whole) is is_right
    try:
        parse_manifest(json.dumps(whole), "plan.yaml")
    except InvalidInputError:
        assert not is_right
    else:
        assert is_right


@pytest.mark.parametrize(
    ("data", "is_right"), [({"offers.csv": "a,b"}, True), ({}, False), (None, False)]
)
def test_a_table_of_offers_may_stand_beside_it(data: object, is_right: bool) -> None:
    """Editors judge every document of a file, so the schema knows both kinds."""
    table = {"kind": "ConfigMap", "metadata": {"name": "gpus"}, "data": data}
    assert Judge(manifest_schema()).is_valid(table) is is_right
    try:
        parse_manifest(f"{json.dumps(table)}\n---\n{json.dumps(PLAN)}", "plan.yaml")
    except InvalidInputError:
        assert not is_right
    else:
        assert is_right


def test_the_schema_for_editors_is_one() -> None:
    """Of the draft that it names."""
    Draft202012Validator.check_schema(manifest_schema())


@pytest.mark.parametrize(
    "annotation",
    [
        Fraction,
        Annotated[int, Range(minimum=0)],
        Annotated[int, Range(minimum=0, maximum=9, above=True)],
        Annotated[Decimal, Range(minimum=1, maximum=10)],
        Annotated[Decimal, Range(minimum=0, maximum=20)],
        tuple[Index, ...],
    ],
    ids=str,
)
def test_a_field_that_a_schema_cannot_state_is_a_mistake(annotation: Any) -> None:
    """It is found when the schema is made, not by a user."""
    with pytest.raises(TypeError, match="a schema has no words for"):
        schema_of(shape_of(annotation))
