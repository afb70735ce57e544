"""The CustomResourceDefinition of TrainingPlans, made from their types.

In: the types that a manifest is read with, and their schema. Out: the definition as
plain data, as an API server takes it. Called by tools/definition.py, which writes it
into the chart, and by tests that ask a real API server.

What a schema has no words for stands in rules (CEL):

    a name    opens those of all tasks, and of a Service
    spec      may be edited while the ranks do not run: it is planned anew. While they
              run, and once the plan is over, only `suspend` and `runPolicy` may change.

Source: what an API server makes of nulls and of free mappings was measured on
Kubernetes 1.36 (tests/lab/test_definition_on_a_server.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple, cast

from plimsoll_operator.api.manifest import Metadata
from plimsoll_operator.api.reasons import DRY_RUN
from plimsoll_operator.api.schema import Schema, openapi_schema
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.names import (
    CATEGORY,
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAME,
    SINGULAR,
    VERSION,
)
from plimsoll_planner.records.record import shapes_of
from plimsoll_planner.records.shape import TextShape

NAME: Final = f"{PLURAL}.{GROUP}"
"""Of the definition itself."""
OPENING: Final = (
    "A TrainingPlan asks for one training: what is trained, in which space a plan for "
    "it is looked for, and how its job is run."
)
MAY_CHANGE: Final = ("suspend", "run_policy")
"""Fields of a spec, whatever runs."""
ANYTHING: Final[Schema] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "nullable": True,
}
ABOVE_ZERO: Final[Schema] = {
    "rule": "self.matches('[1-9]')",
    "message": "must be above 0",
}
"""With two patterns for one text `kubectl explain` takes the field for an object."""
FREE: Final[Schema] = {"type": "object", "additionalProperties": ANYTHING}
"""A mapping of which somebody else knows the names."""
TEMPLATE_METADATA: Final = (
    "The labels and annotations that all pods of the plan get; `kubectl explain "
    "pod.metadata` has the fields."
)
TEMPLATE_SPEC: Final = (
    "The spec of all pods of the plan, with one container named trainer, or one alone; "
    "`kubectl explain pod.spec` has the fields."
)
LAUNCHED: Final = (
    "the job was launched with it, and only spec.suspend and spec.runPolicy may change "
    "now: set spec.suspend and edit once the condition Launched is False, or make a "
    "plan of another name"
)
OVER: Final = (
    "the plan is over: make one of another name; spec.checkpoint.resumeFrom lets it go "
    "on from the checkpoints of this one"
)


class Column(NamedTuple):
    """A column of `kubectl get`."""

    name: str
    place: str
    meaning: str
    type: str = "string"
    is_wide: bool = False
    """Shown with `-o wide` alone."""


ENDING: Final = f'.status.conditions[?(@.type=="{ConditionType.SUCCEEDED}")].reason'
COLUMNS: Final = (
    Column("GPUs", ".status.plan.gpus", "Ranks, one on each GPU.", "integer"),
    Column("Product", ".status.plan.product", "The device it is made for."),
    Column(
        "Predicted",
        ".status.plan.predictedPeak",
        "Upper bound of the fullest rank's device memory.",
    ),
    Column(
        "Observed",
        ".status.observed.peak",
        "Device memory that the fullest rank has used.",
    ),
    Column(
        "Cost",
        ".status.plan.hourlyCost",
        "Price of the nodes for an hour.",
        is_wide=True,
    ),
    Column(
        "Claim",
        ".status.checkpoints.claimName",
        "Claim of the checkpoints.",
        is_wide=True,
    ),
    Column(
        "Checkpoints",
        ".status.checkpoints.folder",
        "Folder of the checkpoints, below the root of the claim.",
        is_wide=True,
    ),
    Column("Status", ENDING, "How it ended, or what it does or waits for."),
    Column("Age", ".metadata.creationTimestamp", "Since it was made.", "date"),
)


def definition() -> dict[str, Any]:
    """The whole definition."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {
                "name": column.name,
                "type": column.type,
                "jsonPath": column.place,
                "description": column.meaning,
                "priority": int(column.is_wide),
            }
            for column in COLUMNS
        ],
        "schema": {"openAPIV3Schema": root_schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": PLURAL,
                "singular": SINGULAR,
                "kind": KIND,
                "listKind": f"{KIND}List",
                "shortNames": [SHORT_NAME],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def root_schema() -> Schema:
    """Schema of a whole object, with the rules beyond it."""
    spec = served(openapi_schema(TrainingPlanSpec))
    template = spec["properties"]["template"]
    # Rules can read this field only where its own fields are named.
    template["properties"] = {
        "metadata": {"description": TEMPLATE_METADATA, **FREE},
        "spec": {"description": TEMPLATE_SPEC, **FREE},
    }
    template["x-kubernetes-preserve-unknown-fields"] = True
    del template["additionalProperties"]
    return {
        "description": OPENING,
        "type": "object",
        "properties": {"spec": spec, "status": served(openapi_schema(Status))},
        "required": ["spec"],
        "x-kubernetes-validations": [name_rule(), *edit_rules()],
    }


def served(schema: Schema) -> Schema:
    """Schema with which an API server sees what is equal, and what is not.

    Two things rules do not compare as they are meant. A null differs from a field that
    is absent: without `nullable` it is dropped. And in a mapping of which no schema
    knows the fields, one that has another name now is overlooked: as additional
    properties they are all known.
    """
    found: Schema = {
        word: value
        for word, value in schema.items()
        if word not in (*ANYTHING, "allOf")
    }
    if "allOf" in schema:
        found["x-kubernetes-validations"] = [ABOVE_ZERO]
    if "x-kubernetes-preserve-unknown-fields" in schema:
        found |= FREE
    if "properties" in schema:
        parts = cast("dict[str, Schema]", schema["properties"])
        found["properties"] = {name: served(part) for name, part in parts.items()}
    if "items" in schema:
        found["items"] = served(schema["items"])
    return found


def name_rule() -> Schema:
    """Rule for names; a schema of metadata would say it in its own words."""
    shape = cast("TextShape", shapes_of(Metadata)["name"])
    longest, pattern = shape.bound.longest, shape.bound.pattern
    name = "self.metadata.name"
    return {
        "rule": f"size({name}) <= {longest} && {name}.matches('^(?:{pattern})$')",
        "message": f"metadata.name must be {shape}: the names of all that is made for "
        "the plan open with it",
    }


def edit_rules() -> list[Schema]:
    """Rules of what may change when, one for each field that may not."""
    fields = [field.name for field in dataclasses.fields(TrainingPlanSpec)]
    frozen = [field for field in fields if field not in MAY_CHANGE]
    return [edit_rule(TrainingPlanSpec.wire_name(field)) for field in frozen]


def edit_rule(field: str) -> Schema:
    """Rule that a field of the spec stays while the ranks run, and after.

    Whether it is there is asked first: reading what is not ends a rule with an error
    of its own.
    """
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    has_ended = was_reported(ConditionType.SUCCEEDED, f"status != '{Truth.UNKNOWN}'")
    was_dry = was_reported(ConditionType.SUCCEEDED, f"reason == '{DRY_RUN}'")
    is_over = f"({has_ended} && !{was_dry})"
    is_launched = was_reported(ConditionType.LAUNCHED, f"status == '{Truth.TRUE}'")
    same = f"has({now}) ? has({before}) && {now} == {before} : !has({before})"
    return {
        "rule": f"!({is_over} || {is_launched}) || ({same})",
        "messageExpression": f"{is_over} ? '{OVER}' : '{LAUNCHED}'",
        "message": LAUNCHED,
        "reason": "FieldValueForbidden",
        "fieldPath": f".spec.{field}",
    }


def was_reported(kind: ConditionType, what: str) -> str:
    """Expression that a condition was reported, with a status or a reason."""
    status = "oldSelf.status"
    among = f"{status}.conditions.exists(c, c.type == '{kind}' && c.{what})"
    return f"(has({status}) && has({status}.conditions) && {among})"
