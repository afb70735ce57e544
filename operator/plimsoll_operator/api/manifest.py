"""A manifest: YAML with one TrainingPlan, and the tables of offers that it refers to.

In: the text of a file, as `kubectl apply` takes it. Out: a `Manifest`. Called on one
machine; on a cluster the API server reads it. What `kubectl` would refuse is refused
here too: a field that is given twice, another kind, a name that no object can have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Any

import yaml

from plimsoll_operator.api.record import ApiRecord
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.names import API_VERSION, KIND
from plimsoll_planner.errors import (
    InvalidFieldError,
    MissingFieldError,
    UnknownFieldError,
    UnreadableError,
)
from plimsoll_planner.records.bounds import Text
from plimsoll_planner.records.record import mapping_of, nearest

FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
TABLE_NAME = "offers.csv"
"""Of the table of offers, in a ConfigMap."""
TEXT_TAG, MERGE_TAG = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
LONGEST_NAME = 40
"""Letters of the name of a plan."""
PlanName = Annotated[
    str,
    Text(
        shortest=1,
        longest=LONGEST_NAME,
        pattern="[a-z]([-a-z0-9]*[a-z0-9])?",
        meaning="lower-case letters, digits and - in the middle, a letter first",
    ),
]
"""So short that the names of all tasks are names of pods; and of a Service, which
opens with a letter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata(ApiRecord):
    """Name and namespace of an object; other metadata is not read."""

    name: PlanName
    """The names of all that is made for the plan open with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The request in one file."""

    name: str
    spec: TrainingPlanSpec
    tables: dict[str, str]
    """Of offers, CSV, by the name of their ConfigMap."""


class Loader(yaml.SafeLoader):
    """Reads YAML, and refuses a field that is given twice or whose name is no text.

    Numbers such as 2e-5 are numbers, as kubectl and YAML 1.2 have them.
    """

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        """Build a mapping; YAML readers differ in which of two values they keep."""
        seen: set[str] = set()
        for name, _ in node.value:
            is_text = name.tag in (TEXT_TAG, MERGE_TAG)
            if not is_text or name.value in seen:
                fault = "given twice" if is_text else "no text: quote it"
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {name.value} is {fault}", name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


add_resolver: Callable[..., None] = Loader.add_implicit_resolver  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
add_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def parse_manifest(text: str | bytes, source: str) -> Manifest:
    """Read a manifest: YAML, one or several documents; `source` opens every message.

    Raises:
        UnreadableError: it is no YAML, or does not hold exactly one TrainingPlan.
        InvalidFieldError: a field is wrong; with its path.
    """
    plans: list[dict[str, object]] = []
    tables: dict[str, str] = {}
    for place, document in enumerate(documents(text, source)):
        path = source if place == 0 else f"{source}, document {place + 1}"
        found = mapping_of(document, path)
        if found.get("kind") == "ConfigMap":
            tables |= table_of(found, path)
            continue
        check_kind(found, path)
        plans.append(found)
    if len(plans) != 1:
        raise UnreadableError(
            f"{source}: holds {len(plans) or 'no'} objects of kind {KIND}, but one is "
            "wanted: each has a file of its own"
        )
    [plan] = plans
    for field, value in plan.items():
        if field not in FIELDS:
            raise UnknownFieldError(f"{source}: {field}", value, nearest(field, FIELDS))
    return Manifest(
        name=name_of(plan, source),
        spec=TrainingPlanSpec.from_json(
            part_of(plan, "spec", source), f"{source}: spec"
        ),
        tables=tables,
    )


def documents(text: str | bytes, source: str) -> list[object]:
    """Documents of a file that are not empty."""
    try:
        found = list(yaml.load_all(text, Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UnreadableError(
            f"{source}: not readable as YAML: {fault_of(error)}"
        ) from None
    return [document for document in found if document is not None]


def fault_of(error: Exception) -> str:
    """Place and reason of a fault in YAML, without a drawing of the line."""
    match error:
        case yaml.MarkedYAMLError(problem=problem, problem_mark=yaml.Mark() as mark):
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
        case yaml.reader.ReaderError(position=position, reason=reason):
            return f"at character {position + 1}: {reason}"
        case _:
            return str(error).partition(";")[0]


def check_kind(found: dict[str, object], path: str) -> None:
    """Refuse what is no TrainingPlan of this version."""
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if field not in found:
            raise MissingFieldError(f"{path}: {field}", None, wanted)
        if found[field] != wanted:
            raise InvalidFieldError(f"{path}: {field}", found[field], wanted)


def part_of(found: dict[str, object], field: str, path: str) -> dict[str, object]:
    """Mapping that a field has."""
    if found.get(field) is None:
        raise MissingFieldError(f"{path}: {field}", None, "a mapping of fields")
    return mapping_of(found[field], f"{path}: {field}")


def name_of(found: dict[str, object], path: str) -> str:
    """Name in the metadata of an object."""
    metadata = part_of(found, "metadata", path)
    only = {"name": metadata["name"]} if "name" in metadata else {}
    return Metadata.from_json(only, f"{path}: metadata").name


def table_of(found: dict[str, object], path: str) -> dict[str, str]:
    """Table of offers in a ConfigMap, by its name."""
    data = part_of(found, "data", path)
    table = data.get(TABLE_NAME)
    if not isinstance(table, str):
        raise InvalidFieldError(f"{path}: data", data, f"a table named {TABLE_NAME}")
    return {str(part_of(found, "metadata", path).get("name")): table}
