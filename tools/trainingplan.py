"""Writes what people and editors read of a TrainingPlan: a page and a JSON schema.

In: the types of spec and status with their bounds and sentences, the reasons of
conditions, the table of failures. Out: docs/trainingplan.md and
docs/trainingplan.schema.json. Run by `make docs`; tests/gates/test_formats.py compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from plimsoll_operator.api.definition import MAY_CHANGE
from plimsoll_operator.api.manifest import Metadata
from plimsoll_operator.api.reasons import REASONS, WAITING
from plimsoll_operator.api.schema import Schema, manifest_schema, openapi_schema
from plimsoll_operator.api.sentences import meanings, on_one_line, opening, words
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.names import API_VERSION, KIND, SHORT_NAME
from plimsoll_operator.rules import failures
from plimsoll_operator.rules.failures import FIRST_WAIT_S, LONGEST_WAIT_S
from plimsoll_planner.records.record import Record, RecordShape, shapes_of
from plimsoll_planner.records.shape import ChoiceShape, ListShape, OptionalShape, Shape
from tools.formats import ROOT, table

MAY_CHANGE_TEXT = " and ".join(
    f"`{TrainingPlanSpec.wire_name(field)}`" for field in MAY_CHANGE
)
EXAMPLE = f"""\
apiVersion: {API_VERSION}
kind: {KIND}
metadata:
  name: tiny-gpt
spec:
  workload:
    entrypoint: examples.tiny_gpt:workload
    args: {{depth: 8}}
  training:
    globalBatchSize: 32
    steps: 200
  checkpoint:
    everySteps: 50
  search:
    objective: MinimizeGPUs
    maxGPUs: 4
    rateFloor: "0.5"
  runPolicy:
    oomReplanLimit: 2
"""
HEADER = f"""\
# TrainingPlan

Made from the types by `make docs`; do not edit.

A TrainingPlan asks for one training: what is trained, in which space a plan for it is
looked for, and how its job is run. On one machine `plimsoll run plan.yaml` reads it; on
a cluster it is an object like any other, in a namespace.

| | |
|---|---|
| `apiVersion` | `{API_VERSION}` |
| `kind` | `{KIND}`, short `{SHORT_NAME}` |
| `metadata.name` | {shapes_of(Metadata)["name"]} |

- [spec](#spec): what a person writes
- [status](#status): what is reported back
- [Conditions](#conditions) and their reasons
- [Failures](#failures): what follows them
- [Edits](#edits): what may change when
- [Rules beyond the schema](#rules-beyond-the-schema)

## Example

```yaml
{EXAMPLE}```

Only `workload.entrypoint`, `training.globalBatchSize` and `training.steps` must be
given. Editors with a YAML language server complete and check a manifest whose first
line is `# yaml-language-server: $schema=PATH`, with the path or address of
[trainingplan.schema.json](trainingplan.schema.json).

## How to read the tables

- A field that does not stand here is refused, and the message has the nearest name.
- A field that is left out has its default. *required* has none; *unset* is the same as
  `null`.
- Numbers that need not be whole are decimal numbers in quotes, with at most 9 digits
  after the point: programs round floats differently.
- Whole numbers go up to 2^53 - 1 where no other bound is given.
"""
CONDITIONS = f"""
## Conditions

Each stands in `status.conditions` once, in the order in which they come true. While
another one comes first, it is `Unknown` with the reason `{WAITING}`. `Succeeded` is the
summary: while the ranks do not run it takes on the reason and the message of the step
that is waited for. What is `False` for good ends the plan, and `Succeeded` takes on its
reason as well.
"""
FAILURES = f"""
## Failures

What the end of an attempt counts as, in `status.failures`, and what follows. An error
of the application is waited out, {FIRST_WAIT_S:g} s at first and twice as long each
time, up to {LONGEST_WAIT_S:g} s; so is a disruption that comes soon after the start for
the third time in a row. What `spec.override` fixes is never planned around: it runs out
of memory once. On one machine nobody deletes ranks: what is removed there is started
again.

A plan that has failed and had saved goes on when it is run again. Counts are since
then, or since the spec was edited.
"""
EDITS = f"""
## Edits

Until the ranks run every edit of `spec` is planned anew. While `Launched` is `True`,
and once the plan is over, only {MAY_CHANGE_TEXT} may change: on a cluster the API
server refuses the rest, and says what to do instead. Whoever sets `suspend` may edit
more as soon as `Launched` is `False`; the next attempt goes on from the last
checkpoint.
"""
BEYOND = """
## Rules beyond the schema

The schema of the cluster and that of editors are made from these types, and refuse what
the types refuse, but for this:

- What is printable in a text Unicode says; schemas refuse control characters only.
- How long `args` and `template` may be as JSON no schema can say.
- A whole number is written without a point. `plimsoll run` refuses `200.0`; an API
  server takes it and keeps `200`.
- A field with a default is left out, not `null`. An API server takes `null` for that.
- Whether the parts of `override` go together, and with batch and model, is looked at
  when the search is asked.
"""


TRUTHS = (Truth.UNKNOWN, Truth.TRUE, Truth.FALSE)
Paths = dict[type[Record], str]
"""Path that each record is described at; one that stands in two places is once."""


def paths_below(kind: type[Record], path: str, found: Paths) -> Paths:
    """`found` with the paths of a record and of all inside it."""
    found[kind] = path
    for field, shape in shapes_of(kind).items():
        place, inner = f"{path}.{kind.wire_name(field)}", shape
        while isinstance(inner, OptionalShape | ListShape):
            place += "[]" if isinstance(inner, ListShape) else ""
            inner = inner.inner
        if isinstance(inner, RecordShape) and inner.record not in found:
            paths_below(inner.record, place, found)
    return found


def section(kind: type[Record], paths: Paths) -> Iterator[str]:
    """Yield the lines of one record's section."""
    path = paths[kind]
    yield f"\n{'###' if '.' in path else '##'} {path}\n"
    yield opening(kind) + "\n"
    schema, meaning = openapi_schema(kind), meanings(kind)
    rows: list[tuple[str, ...]] = []
    choices: list[str] = []
    for field, shape in shapes_of(kind).items():
        name = kind.wire_name(field)
        default = default_text(schema, name)
        value = value_text(shape, paths)
        rows.append((f"`{path}.{name}`", value, default, meaning[field]))
        choices += choice_lines(shape, f"{path}.{name}")
    yield from table(("field", "value", "default", "meaning"), rows)
    yield from choices


def default_text(schema: Schema, name: str) -> str:
    """Default of a field as a manifest writes it."""
    if name in schema.get("required", ()):
        return "*required*"
    if "default" not in schema["properties"][name]:
        return "*unset*"
    return f"`{json.dumps(schema['properties'][name]['default'])}`"


def value_text(shape: Shape, paths: Paths) -> str:
    """Words for the values of a field, as in messages about it."""
    match shape:
        case OptionalShape(inner=inner):
            return value_text(inner, paths)
        case ListShape(inner=inner, bound=bound) if bound is not None:
            return f"a list of at most {bound.most}, each {value_text(inner, paths)}"
        case RecordShape(record=record):
            path = paths[record]
            return f"a mapping: [{path}](#{anchor(path)})"
        case ChoiceShape(choices=choices):
            return "one of " + ", ".join(f"`{word.value}`" for word in choices)
        case _:
            return str(shape).replace(" and at most 2^53 - 1", "")


def anchor(heading: str) -> str:
    """Fragment of a link to a heading."""
    return re.sub(r"[^a-z-]", "", heading.lower().replace(" ", "-"))


def choice_lines(shape: Shape, path: str) -> Iterator[str]:
    """Yield the words of a closed set with their meanings; nothing for all else."""
    match shape:
        case OptionalShape(inner=inner):
            yield from choice_lines(inner, path)
        case ChoiceShape(choices=choices):
            yield f"\n`{path}` is one of\n"
            for word, text in words(choices).items():
                yield f"- `{word}`: {text}"
        case _:
            pass


def conditions() -> Iterator[str]:
    """Yield the lines of the conditions and their reasons."""
    yield CONDITIONS.rstrip()
    for kind, meaning in words(ConditionType).items():
        yield f"\n### {kind}\n"
        yield meaning + "\n"
        reasons = REASONS[ConditionType(kind)]
        rows = [
            (f"`{truth}`", f"`{reason}`", reasons[truth, reason])
            for truth, reason in sorted(reasons, key=lambda key: TRUTHS.index(key[0]))
        ]
        yield from table(("status", "reason", "meaning"), rows)


def failure_rows() -> Iterator[list[str]]:
    """Yield the table of failures, its header first, as its module draws it."""
    header, _, *rows = re.findall(r"^    (\S.*)$", failures.__doc__ or "", re.MULTILINE)
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", header)]
    for row in (header, *rows):
        ends = [*starts[1:], None]
        cells = [row[start:end] for start, end in zip(starts, ends, strict=True)]
        yield [re.sub(r"(runPolicy\.\w+)", r"`\1`", cell).strip() for cell in cells]


def what_follows() -> Iterator[str]:
    """Yield the lines of what follows failures."""
    header, *rows = failure_rows()
    yield FAILURES
    yield from table(header, rows)


def rules_beyond(paths: Paths) -> Iterator[str]:
    """Yield the lines of what types refuse and schemas do not."""
    yield BEYOND.rstrip()
    for kind, path in paths.items():
        if kind.check_rules is not Record.check_rules:
            yield f"- `{path}`: {on_one_line(kind.check_rules.__doc__ or '')}"


def page() -> str:
    """Whole page."""
    paths = paths_below(TrainingPlanSpec, "spec", {})
    paths = paths_below(Status, "status", paths)
    lines = [line for kind in paths for line in section(kind, paths)]
    lines += [*conditions(), *what_follows(), EDITS.rstrip(), *rules_beyond(paths)]
    return HEADER + "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """Content of each file that is written, by its path."""
    schema = json.dumps(manifest_schema(), indent=2)
    return {
        ROOT / "docs" / "trainingplan.md": page(),
        ROOT / "docs" / "trainingplan.schema.json": f"{schema}\n",
    }


if __name__ == "__main__":
    for target, text in files().items():
        target.write_text(text)
