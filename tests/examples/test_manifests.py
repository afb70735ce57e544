"""Every manifest in examples/ is one that all readers of manifests take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from plimsoll_operator.api.manifest import parse_manifest
from plimsoll_planner.offer_catalog import parse_offers
from tools.images import PREFIX, name_of

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted(ROOT.glob("examples/*.yaml"))
SCHEMA = json.loads((ROOT / "docs/trainingplan.schema.json").read_text())
every_manifest = pytest.mark.parametrize(
    "path", MANIFESTS, ids=[path.stem for path in MANIFESTS]
)


@every_manifest
def test_home_takes_it(path: Path) -> None:
    """It is named as its file is, and the table it refers to stands in it."""
    found = parse_manifest(path.read_bytes(), path.name)
    assert found.name == path.stem
    table = found.spec.search.offers.config_map
    assert list(found.tables) == [table][: len(table)]
    for name, text in found.tables.items():
        assert parse_offers(text, name).offers


@every_manifest
def test_an_editor_takes_it(path: Path) -> None:
    """The published schema has nothing to say against any of its documents."""
    for document in yaml.safe_load_all(path.read_text()):
        assert not list(Draft202012Validator(SCHEMA).iter_errors(document))


@every_manifest
def test_its_image_is_that_of_this_release(path: Path) -> None:
    """If it names one: `make images` builds it by this name."""
    named = re.findall(r"image: (\S+)", path.read_text())
    assert set(named) <= {name_of("examples", PREFIX)}


@every_manifest
def test_the_readme_lists_it(path: Path) -> None:
    """With what it shows and how long it takes."""
    rows = (ROOT / "examples/README.md").read_text().splitlines()
    assert any(row.startswith(f"| [{path.name}]({path.name}) |") for row in rows)


@every_manifest
def test_a_test_runs_it(path: Path) -> None:
    """By the command in its comment, to its end."""
    names = ("test_examples.py", "test_finetune.py")
    text = "".join(Path(__file__).with_name(name).read_text() for name in names)
    assert f'"{path.stem}"' in text
