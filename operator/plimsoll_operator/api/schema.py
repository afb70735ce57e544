"""The schema of a TrainingPlan, made from its types: no bound stands here again.

In: a record of `spec` or `status`, with the bounds in its annotations. Out: the schema
of a CustomResourceDefinition, and that of whole files for editors. What a type refuses
its schema refuses, but for the few rules that docs/trainingplan.md lists. Called where
definition and documentation are written.

Source: the structural schemas of Kubernetes: a type everywhere, defaults that are valid
themselves, no `additionalProperties` beside `properties` (unknown fields are refused by
strict validation), patterns in RE2.
"""

from __future__ import annotations

import dataclasses
import math
from functools import singledispatch
from typing import Any, Final, cast

from plimsoll_operator.api.manifest import TABLE_NAME, Metadata
from plimsoll_operator.api.sentences import meanings, opening, words
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Condition, Status
from plimsoll_operator.names import API_VERSION, KIND
from plimsoll_planner.records.record import Record, required_fields, shapes_of
from plimsoll_planner.records.shape import (
    MOST_DECIMALS,
    ChoiceShape,
    DecimalShape,
    FlagShape,
    JsonObjectShape,
    ListShape,
    NumberShape,
    OptionalShape,
    RecordShape,
    Shape,
    TextShape,
)

Schema = dict[str, Any]
PRINTABLE: Final = r"[^\x00-\x1f\x7f-\x9f]*"
"""No control characters: what else is not printable no pattern can say."""
LIST_KEYS: Final[dict[type, str]] = {Condition: "type"}
"""The field that tells entries of a list apart."""


def openapi_schema(kind: type[Record]) -> Schema:
    """Return the structural schema of a record.

    Raises:
        TypeError: a field is of a type that such a schema has no words for.
    """
    required = [kind.wire_name(field) for field in required_fields(kind)]
    meaning = meanings(kind)
    schema: Schema = {
        "description": opening(kind),
        "type": "object",
        "properties": {
            kind.wire_name(field.name): property_of(kind, field, meaning[field.name])
            for field in dataclasses.fields(cast("Any", kind))
        },
    }
    return schema | {"required": required} if required else schema


def property_of(
    kind: type[Record], field: dataclasses.Field[Any], meaning: str
) -> Schema:
    """Return the schema of a field: what it holds, what it means, its default."""
    shape = shapes_of(kind)[field.name]
    schema = {"description": "", **schema_of(shape)}
    schema["description"] = " ".join([meaning, *words_of(shape)])
    if field.default_factory is not dataclasses.MISSING:
        schema["default"] = {}  # the fields inside bring their own
    elif field.default is not dataclasses.MISSING and field.default is not None:
        schema["default"] = shape.write(field.default)
    return schema


def words_of(shape: Shape) -> list[str]:
    """Return the words of a closed set with what they mean; none for all else."""
    match shape:
        case OptionalShape(inner=inner):
            return words_of(inner)
        case ChoiceShape(choices=choices):
            return [f"{word}: {text}" for word, text in words(choices).items()]
        case _:
            return []


@singledispatch
def schema_of(shape: Shape) -> Schema:
    """Return the schema of one kind of value."""
    raise TypeError(f"a schema has no words for {shape}")


@schema_of.register
def whole_number(shape: NumberShape) -> Schema:
    """No floats: readers round them differently."""
    bound = shape.bound
    if shape.kind is float or bound.above or bound.maximum == math.inf:
        raise TypeError(f"a schema has no words for {shape}")
    return {
        "type": "integer",
        "format": "int64",
        "minimum": int(bound.minimum),
        "maximum": int(bound.maximum),
    }


@schema_of.register
def flag(shape: FlagShape) -> Schema:  # noqa: ARG001 - there is one kind of flag
    """True or false."""
    return {"type": "boolean"}


@schema_of.register
def text(shape: TextShape) -> Schema:
    """Lengths are counted in characters by all readers."""
    bound = shape.bound
    schema: Schema = {
        "type": "string",
        "pattern": f"^(?:{bound.pattern or PRINTABLE})$",
    }
    if bound.shortest:
        schema["minLength"] = bound.shortest
    return schema | {"maxLength": bound.longest}


@schema_of.register
def decimal(shape: DecimalShape) -> Schema:
    """From 0 to a power of ten: that much a pattern can say of a number."""
    bound = shape.bound
    largest = f"{bound.maximum:.0f}"
    zeros = len(largest) - 1
    if bound.minimum or bound.maximum != 10**zeros:
        raise TypeError(f"a schema has no words for {shape}")
    whole = f"(0|[1-9][0-9]{{0,{zeros - 1}}})" if zeros else "0"
    places = f"{{1,{MOST_DECIMALS}}}"
    pattern = rf"^(?:{whole}(\.[0-9]{places})?|{largest}(\.0{places})?)$"
    schema: Schema = {
        "type": "string",
        "pattern": pattern,
        "maxLength": len(largest) + 1 + MOST_DECIMALS,
    }
    return schema | {"allOf": [{"pattern": "[1-9]"}]} if bound.above else schema


@schema_of.register
def choice(shape: ChoiceShape) -> Schema:
    """One word of a closed set."""
    return {"type": "string", "enum": [word.value for word in shape.choices]}


@schema_of.register
def free_mapping(shape: JsonObjectShape) -> Schema:  # noqa: ARG001 - no bound is said
    """Somebody else knows the fields."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@schema_of.register
def inner_record(shape: RecordShape) -> Schema:
    """Its own schema, in place."""
    return openapi_schema(cast("type[Record]", shape.record))


@schema_of.register
def optional(shape: OptionalShape) -> Schema:
    """Null, as a status is written where nothing is known."""
    schema: Schema = schema_of(shape.inner) | {"nullable": True}
    if "enum" in schema:  # an API server takes no null for one of an enum
        schema["pattern"] = f"^(?:{'|'.join(schema.pop('enum'))})$"
    return schema


@schema_of.register
def entries(shape: ListShape) -> Schema:
    """Writers that share a list need its key; without one it is replaced as a whole."""
    if shape.bound is None:
        raise TypeError(f"a schema has no words for {shape}, without a bound")
    schema: Schema = {
        "type": "array",
        "items": schema_of(shape.inner),
        "maxItems": shape.bound.most,
        "x-kubernetes-list-type": "atomic",
    }
    key = isinstance(shape.inner, RecordShape) and LIST_KEYS.get(shape.inner.record)
    if key:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return schema


def manifest_schema() -> Schema:
    """Return the JSON Schema of each document in a manifest, for editors.

    A document is a TrainingPlan, or a ConfigMap that brings a table of offers.
    """
    metadata = json_schema(openapi_schema(Metadata))
    del metadata["additionalProperties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": KIND,
        "type": "object",
        "if": {"properties": {"kind": {"const": "ConfigMap"}}, "required": ["kind"]},
        "then": {
            "properties": {
                "data": {
                    "type": "object",
                    "properties": {TABLE_NAME: {"type": "string"}},
                    "required": [TABLE_NAME],
                }
            },
            "required": ["data"],
        },
        "else": {
            "properties": {
                "apiVersion": {"const": API_VERSION},
                "kind": {"const": KIND},
                "metadata": metadata,
                "spec": json_schema(openapi_schema(TrainingPlanSpec)),
                "status": json_schema(openapi_schema(Status)),
            },
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "additionalProperties": False,
        },
    }


def json_schema(schema: Schema) -> Schema:
    """Return a structural schema in the words of JSON Schema 2020-12."""
    found: Schema = {
        word: value
        for word, value in schema.items()
        if word not in {"nullable", "format"} and not word.startswith("x-kubernetes-")
    }
    if "properties" in schema:
        parts: dict[str, Schema] = schema["properties"]
        found["properties"] = {name: json_schema(part) for name, part in parts.items()}
        found["additionalProperties"] = False
    if "items" in schema:
        found["items"] = json_schema(schema["items"])
    if schema.get("nullable"):
        found["type"] = [schema["type"], "null"]
    return found
