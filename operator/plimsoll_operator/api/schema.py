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
from typing import Any, Final, cast

from plimsoll_operator.api.manifest import TABLE_NAME, Metadata
from plimsoll_operator.api.sentences import meanings, opening, words
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Condition, Status
from plimsoll_operator.names import API_VERSION, KIND
from plimsoll_planner.records.record import (
    Record,
    RecordShape,
    required_fields,
    shapes_of,
)
from plimsoll_planner.records.shape import (
    MOST_DECIMALS,
    ChoiceShape,
    DecimalShape,
    FlagShape,
    JsonObjectShape,
    ListShape,
    NumberShape,
    OptionalShape,
    Shape,
    TextShape,
)

Schema = dict[str, Any]
PRINTABLE: Final = r"[^\x00-\x1f\x7f-\x9f]*"
"""No control characters: what else is not printable no pattern can say."""
LIST_KEYS: Final[dict[type, str]] = {Condition: "type"}
"""The field that identifies an entry of a list."""


def openapi_schema(kind: type[Record]) -> Schema:
    """Structural schema of a record.

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
    """Schema of a field: what it holds, what it means, its default."""
    shape = shapes_of(kind)[field.name]
    schema = {"description": "", **schema_of(shape)}
    schema["description"] = " ".join([meaning, *words_of(shape)])
    if field.default_factory is not dataclasses.MISSING:
        schema["default"] = {}  # the fields inside bring their own
    elif field.default is not dataclasses.MISSING and field.default is not None:
        schema["default"] = shape.write(field.default)
    return schema


def words_of(shape: Shape) -> list[str]:
    """Words of a closed set with their meanings; none for all else."""
    match shape:
        case OptionalShape(inner=inner):
            return words_of(inner)
        case ChoiceShape(choices=choices):
            return [f"{word}: {text}" for word, text in words(choices).items()]
        case _:
            return []


def schema_of(shape: Shape) -> Schema:
    """Schema of one kind of value.

    Raises:
        TypeError: a schema has no words for it.
    """
    schema: Schema
    match shape:
        case NumberShape():
            schema = number_schema(shape)
        case TextShape():
            schema = text_schema(shape)
        case DecimalShape():
            schema = decimal_schema(shape)
        case ListShape():
            schema = list_schema(shape)
        case OptionalShape(inner=inner):
            schema = optional_schema(inner)
        case ChoiceShape(choices=choices):
            schema = {"type": "string", "enum": [word.value for word in choices]}
        case FlagShape():
            schema = {"type": "boolean"}
        case JsonObjectShape():
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case RecordShape(record=record):
            schema = openapi_schema(record)
        case _:
            raise TypeError(f"a schema has no words for {shape}")
    return schema


def number_schema(shape: NumberShape) -> Schema:
    """Schema of a whole number. Readers round floats differently: there are none."""
    bound = shape.bound
    if shape.kind is float or bound.above or bound.maximum == math.inf:
        raise TypeError(f"a schema has no words for {shape}")
    return {
        "type": "integer",
        "format": "int64",
        "minimum": int(bound.minimum),
        "maximum": int(bound.maximum),
    }


def text_schema(shape: TextShape) -> Schema:
    """Schema of a text; all readers count its length in characters."""
    bound = shape.bound
    schema: Schema = {
        "type": "string",
        "pattern": f"^(?:{bound.pattern or PRINTABLE})$",
    }
    if bound.shortest:
        schema["minLength"] = bound.shortest
    return schema | {"maxLength": bound.longest}


def decimal_schema(shape: DecimalShape) -> Schema:
    """Schema of a number from 0 to a power of ten: a pattern cannot say more."""
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


def optional_schema(inner: Shape) -> Schema:
    """Schema of a value or null: a status has null where nothing is known."""
    schema: Schema = schema_of(inner) | {"nullable": True}
    if "enum" in schema:  # an API server takes no null for one of an enum
        schema["pattern"] = f"^(?:{'|'.join(schema.pop('enum'))})$"
    return schema


def list_schema(shape: ListShape) -> Schema:
    """Schema of a list. Only one with a key can have several writers."""
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
    """JSON Schema of each document in a manifest, for editors.

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
    """Structural schema in the words of JSON Schema 2020-12."""
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
