"""The files that are made from the types say what the types say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from plimsoll_operator.api.definition import definition as definition_of_plans
from plimsoll_operator.api.manifest import parse_manifest
from plimsoll_operator.api.reasons import REASONS
from plimsoll_operator.api.schema import manifest_schema
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Status
from tests.support.api_values import fields_of
from tests.support.builders import every_document
from tools import definition, formats, metrics, trainingplan

ROOT = Path(__file__).parents[2]
FILES = {
    formats.TARGET: formats.page(),
    definition.TARGET: definition.page(),
    metrics.TARGET: metrics.page(),
    **trainingplan.files(),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_page_is_up_to_date(file: Path) -> None:
    """A changed type changes the page: run make docs."""
    assert file.read_text() == FILES[file]


def test_the_chart_carries_the_definition() -> None:
    """YAML reads back as it was written: no word of it is taken for a number."""
    assert yaml.safe_load(definition.TARGET.read_text()) == definition_of_plans()


def test_every_document_is_on_the_page() -> None:
    """No kind of document is undocumented."""
    names = {kind.__name__ for kind in formats.record_classes()}
    assert {type(document).__name__ for document in every_document()} <= names


def test_every_row_of_metrics_has_its_cells() -> None:
    """A sign of tables within a text of an alert would tear its row."""
    rows = [row for row in metrics.page().splitlines() if row.startswith("| `")]
    cells = [re.split(r"(?<!\\)\|", row.strip("|")) for row in rows]
    assert {len(row) for row in cells} == {4, 5}
    assert all(row[-1].strip().endswith(".") for row in cells)


def rows_of(page: str, first: str) -> list[list[str]]:
    """Cells of all table rows whose first cell is code that begins so."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines()]
    return [row for row in rows if re.fullmatch(rf"`{first}[^`]*`", row[0])]


def test_every_field_is_on_the_page_with_its_meaning() -> None:
    """Once, in the order of the types, and no other; what two fields share as well."""
    expected = [
        ".".join((root, *map(str, place))).replace(".0", "[]")
        for root, kind in (("spec", TrainingPlanSpec), ("status", Status))
        for place, _, _ in fields_of(kind)
    ]
    rows = rows_of(trainingplan.page(), "(spec|status)")
    found = [row[0].strip("`") for row in rows]
    shared = [path for path in expected if path.startswith("status.alternatives[].")]
    assert sorted(found) == sorted(set(expected) - set(shared))
    assert shared
    assert [row for row in rows if len(row) != 4 or not all(row)] == []


def test_every_reason_is_on_the_page() -> None:
    """With its condition's, and no other."""
    rows = rows_of(trainingplan.page(), "(True|False|Unknown)")
    found = sorted((row[0].strip("`"), row[1].strip("`")) for row in rows)
    assert found == sorted(key for reasons in REASONS.values() for key in reasons)


def test_links_of_the_page_lead_somewhere() -> None:
    """To a heading of it, or a file beside it."""
    page = trainingplan.page()
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {f"#{trainingplan.anchor(heading)}" for heading in headings}
    targets = set(re.findall(r"\]\(([^)]*)\)", page))
    assert {target for target in targets if target.startswith("#")} <= anchors
    files = {target for target in targets if not target.startswith("#")}
    assert files == {"trainingplan.schema.json"}


def test_the_failures_stand_in_their_columns() -> None:
    """As drawn in the module: limits by name, nothing torn."""
    header, *rows = trainingplan.failure_rows()
    assert header == ["ended by", "counts as", "at most", "goes on by"]
    limit = "`runPolicy.oomReplanLimit`"
    assert rows[0] == ["device out of memory", "out of memory", limit, "another plan"]
    assert rows[-1] == ["bad workload, deadline", "", "never", "-"]


def test_the_example_is_a_manifest() -> None:
    """It is read at home, and an editor finds nothing in it."""
    assert parse_manifest(trainingplan.EXAMPLE, "the page").name == "tiny-gpt"
    judge = Draft202012Validator(manifest_schema())
    assert list(judge.iter_errors(yaml.safe_load(trainingplan.EXAMPLE))) == []
