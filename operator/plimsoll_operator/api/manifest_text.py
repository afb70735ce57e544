"""A manifest that asks what was asked on a command line: the inverse of `manifest`.

In: a workload, the problem that was made of options, a table of offers. Out: YAML for
`plimsoll run` and `kubectl apply`. What stands at its default is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any, cast

import yaml

from plimsoll_operator.api.manifest import TABLE_NAME, TEXT_TAG, parse_manifest
from plimsoll_operator.names import API_VERSION, KIND
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search_fields import FIELDS, SearchField

ALWAYS = ("spec.training.globalBatchSize", "spec.training.steps", "spec.search.maxGPUs")
"""Fields that stand there whatever they are: people look for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedWorkload:
    """Workload of a manifest."""

    name: str
    """Of the plan."""
    entrypoint: str
    args: Mapping[str, Any]


class Dumper(yaml.SafeDumper):
    """Writes several lines as lines."""


def in_lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Text as a person would write it."""
    del dumper
    return yaml.ScalarNode(TEXT_TAG, text, style="|" if "\n" in text else None)


Dumper.add_representer(str, in_lines)


def manifest_text(asked: AskedWorkload, problem: Problem, offers: str) -> str:
    """The manifest of a question.

    Args:
        asked: the workload.
        problem: what was asked about it.
        offers: the table of its machines, CSV.

    Raises:
        InvalidFieldError: the name is none that a plan can have.
    """
    table = f"{asked.name}-offers"
    found: dict[str, Any] = {}
    put(found, "spec.workload.entrypoint", asked.entrypoint)
    put(found, "spec.workload.args", dict(asked.args))
    for row in FIELDS:
        value = value_of(problem, row)
        is_told = value != row.default or row.spec in ALWAYS
        if row.spec and value is not None and is_told:
            put(found, row.spec, plain(value, row))
    put(found, "spec.search.offers.configMap", table)
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": asked.name}}
    machines = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": table},
        "data": {TABLE_NAME: offers},
    }
    text = yaml.dump_all([head | found, machines], Dumper=Dumper, sort_keys=False)
    parse_manifest(text, "the manifest")
    return text


def value_of(problem: Problem, row: SearchField) -> Any:
    """Value of a field in a problem."""
    return reduce(getattr, row.record.split("."), problem)


def put(found: dict[str, Any], path: str, value: Any) -> None:
    """Put a value where its path says."""
    *sections, name = path.split(".")
    for section in sections:
        found = found.setdefault(section, {})
    found[name] = value


def plain(value: Any, row: SearchField) -> Any:
    """A value as a spec has it: whole seconds, and decimals as text."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        is_whole = row.spec.endswith("Seconds") and value.is_integer()
        return int(value) if is_whole else str(value)
    return list(cast("tuple[object, ...]", value)) if type(value) is tuple else value
