"""The definition of the kind: complete, and drawn from the types alone."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll_operator.api.definition import (
    ANYTHING,
    COLUMNS,
    MAY_CHANGE,
    Column,
    definition,
    edit_rules,
    root_schema,
)
from plimsoll_operator.api.schema import Schema
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Status
from plimsoll_operator.names import CATEGORY, GROUP, KIND, SHORT_NAME
from tests.support.api_values import fields_of

MOST_BYTES = 262_144
"""Of an annotation, into which `kubectl apply` writes the whole object."""


def test_the_kind_has_the_names_of_the_project() -> None:
    """One version, in namespaces, its status written apart from its spec."""
    made = definition()
    spec = made["spec"]
    assert made["metadata"]["name"] == f"trainingplans.{GROUP}"
    assert (spec["group"], spec["scope"]) == (GROUP, "Namespaced")
    names = spec["names"]
    assert (names["kind"], names["shortNames"]) == (KIND, [SHORT_NAME])
    assert names["categories"] == [CATEGORY]
    [version] = spec["versions"]
    assert version["subresources"] == {"status": {}}


def test_it_can_be_applied_by_hand() -> None:
    """No pod template with all its fields is in it."""
    assert len(json.dumps(definition())) < MOST_BYTES / 2


def at(schema: Schema, place: str) -> Schema:
    """Schema of the field that a path of a column leads to."""
    for word in re.findall(r"[^.]+", re.sub(r"\[[^]]*\]", ".*", place)):
        schema = schema["items"] if word == "*" else schema["properties"][word]
    return schema


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_column_shows_a_field_as_it_is(column: Column) -> None:
    """One of the types, of the type that it is shown as; none is found by its place."""
    assert not re.search(r"\[\d", column.place)
    if column.place != ".metadata.creationTimestamp":
        assert at(root_schema(), column.place)["type"] == column.type


def test_every_field_of_a_spec_may_change_or_stays() -> None:
    """A new field stays, unless somebody decides otherwise."""
    fields = [field.name for field in dataclasses.fields(TrainingPlanSpec)]
    assert set(MAY_CHANGE) < set(fields)
    frozen = [rule["fieldPath"] for rule in edit_rules()]
    names = [TrainingPlanSpec.wire_name(f) for f in fields if f not in MAY_CHANGE]
    assert frozen == [f".spec.{name}" for name in names]


def schemas_in(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from schemas_in(part, f"{path}.{name}")
    if "items" in schema:
        yield from schemas_in(schema["items"], f"{path}[]")


def test_every_field_of_the_types_is_served_with_its_meaning() -> None:
    """And, beyond them, the two parts of a template."""
    schemas = schemas_in(root_schema())
    found = {path: schema for path, schema in schemas if not path.endswith("[]")}
    expected = {"", ".spec", ".status"} | {
        ".".join((part, *map(str, place))).replace(".0", "[]")
        for part, kind in ((".spec", TrainingPlanSpec), (".status", Status))
        for place, _, _ in fields_of(kind)
    }
    template = {".spec.template.metadata", ".spec.template.spec"}
    assert set(found) == expected | template
    assert all(found[path]["description"] for path in found)


def test_a_meaning_stands_alone() -> None:
    """`kubectl explain` shows that of one field, with nothing around it."""
    leans = re.compile(r"(Of|Its|Their|The same|On that|It|They|Exactly)\b")
    for path, schema in schemas_in(root_schema()):
        if path and not path.endswith("[]"):
            said = schema["description"]
            opening = said.partition(". ")[0]
            assert not leans.match(said), f"{path}: {said}"
            assert len(opening.split()) > 2, f"{path}: {said}"
            assert said.endswith("."), f"{path}: {said}"


def test_rules_compare_what_is_served_as_it_is_meant() -> None:
    """Null is absent everywhere, and no mapping has fields that are not compared."""
    for path, schema in schemas_in(root_schema()):
        assert "nullable" not in schema, path
        is_free = schema["type"] == "object" and "properties" not in schema
        anything: Any = schema.get("additionalProperties")
        assert (anything == ANYTHING) is is_free, path
