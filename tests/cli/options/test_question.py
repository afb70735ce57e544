"""A search field is one row: what the command line and the spec have of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import plimsoll_cli
import plimsoll_operator
import plimsoll_planner
from plimsoll_cli.verbs.compare import compare
from plimsoll_cli.verbs.plan import plan
from plimsoll_planner.search_fields import FIELDS, INPUTS, SearchField

PACKAGES = (plimsoll_planner, plimsoll_operator, plimsoll_cli)
RECORD = "plimsoll_planner/records/limits.py"
TABLE = "plimsoll_planner/search_fields.py"
FIELD = '''
    headroom: Fraction = 0.0
    """Of the device memory, kept free on every device."""
'''
MADE_UP_FIELD = '''
    spare_part: Fraction = 0.25
    """Of the nodes, kept for others."""
'''
TABLE_HEAD = "FIELDS: Final = ("
MADE_UP_ROW = """
    SearchField(
        record="limits.spare_part",
        spec="spec.search.sparePart",
        option="--spare",
        help="The part of the nodes that others have; beside `limits.headroom`.",
    ),
"""
ASK = """
import sys
from plimsoll_cli.__main__ import main
from plimsoll_operator.api.schema import openapi_schema
from plimsoll_operator.api.spec import Search, parse_spec
from plimsoll_operator.rules.question import limits_of
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.vocabulary import IN_SPEC

main(["plan", "--help"])
main(["plan", "p.json", "--offers", "o.csv", "--spare", "2"])
print(openapi_schema(Search)["properties"]["sparePart"], file=sys.stderr)
given = {
    "workload": {"entrypoint": "a:b"},
    "training": {"globalBatchSize": 8, "steps": 1},
}
print(limits_of(parse_spec(given)).spare_part)
print(limits_of(parse_spec(given | {"search": {"sparePart": "0.5"}})).spare_part)
print(IN_SPEC.path("Problem.limits.spare_part"))
"""


def plant(file: Path, below: str, text: str) -> None:
    """Add a text to a module, below another one that it has once."""
    before = file.read_text()
    assert before.count(below) == 1
    file.write_text(before.replace(below, below.rstrip() + text.rstrip() + "\n"))


def test_a_new_field_is_a_field_of_a_record_and_a_row(tmp_path: Path) -> None:
    """Option, spec, schema, question and errors have it, and nothing else changed."""
    for package in PACKAGES:
        skipped = shutil.ignore_patterns("__pycache__")
        folder = Path(package.__path__[0])
        shutil.copytree(folder, tmp_path / folder.name, ignore=skipped)
    plant(tmp_path / RECORD, FIELD, MADE_UP_FIELD)
    plant(tmp_path / TABLE, TABLE_HEAD, MADE_UP_ROW)
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert (
        "--spare NUMBER The part of the nodes that others have; beside --headroom. "
        "[default: 0.25; 0<=x<=1]"
    ) in shown
    assert shown.endswith("0.25 0.5 spec.search.sparePart")
    assert "'--spare': 2.0 is not in the range 0<=x<=1" in done.stderr
    assert "others have; beside `spec.search.headroom`." in done.stderr
    assert "'default': '0.25'" in done.stderr


@pytest.mark.parametrize("row", [*INPUTS, *FIELDS], ids=lambda row: row.record)
def test_every_row_is_an_option_of_plan(row: SearchField) -> None:
    """And of `compare`, but for those that have no meaning at one count."""
    options = {name: option for option in plan.params for name in option.opts}
    assert row.option in options
    others = {name for option in compare.params for name in option.opts}
    without = {"--objective", "--whole-nodes", "--cuts"}
    assert (row.option in others) is (row.option not in without)
