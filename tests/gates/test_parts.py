"""Which part of which gate runs a test: each test is in one part, and none in two.

The tests are collected once; the folders and the marker expression of each part, as its
command has them, are then applied to what was found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tools.gates import GATES
from tools.part_queue import Part

pytestmark = pytest.mark.slow  # 13 s of CPU: it imports all that any test imports
ROOT = Path(__file__).parents[2]
LISTER = """\
import json, os

def pytest_collection_finish(session):
    found = {i.nodeid: [m.name for m in i.iter_markers()] for i in session.items}
    with open(os.environ["PLIMSOLL_LISTED"], "w") as file:
        json.dump(found, file)
"""
"""A plugin that writes down every test and its markers."""
FEWEST = 4000
"""Tests that there are at least, so that an empty list is no success."""

IGNORE = "--ignore="


@pytest.fixture(scope="module")
def markers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """Names of the markers of every test of the tree."""
    folder = tmp_path_factory.mktemp("listed")
    (folder / "lister.py").write_text(LISTER)
    listed = folder / "listed.json"
    words = ("-q", "--collect-only", "-p", "lister", "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(folder), "PLIMSOLL_LISTED": str(listed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    found: dict[str, list[str]] = json.loads(listed.read_text())
    assert len(found) > FEWEST
    return found


def chosen(part: Part, markers: Mapping[str, Iterable[str]]) -> set[str]:
    """Tests that the arguments of a part's pytest choose; none of another command."""
    if "pytest" not in part.command:
        return set()
    words = part.command
    folders = tuple(f"{word}/" for word in words if word.startswith("tests/"))
    ignored = tuple(
        f"{word.removeprefix(IGNORE)}/" for word in words if word.startswith(IGNORE)
    )
    # Such an expression, of names alone, means in Python what it means to pytest.
    expression = compile(words[words.index("-m", 2) + 1], "-m", "eval")
    return {
        test
        for test, names in markers.items()
        if test.startswith(folders or "tests/")
        and not test.startswith(ignored)
        and eval(expression, {}, defaultdict(bool, dict.fromkeys(names, True)))  # noqa: S307 - our own
    }


def parts_of(gate: str, markers: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Names of the parts of a gate that run a test, for every test."""
    found: dict[str, list[str]] = {test: [] for test in markers}
    for part in GATES[gate]:
        for test in chosen(part, markers):
            found[test].append(part.name)
    return found


def test_the_whole_runs_each_test_in_one_part(
    markers: Mapping[str, list[str]],
) -> None:
    """`make test-all` leaves no test out and runs none twice."""
    wrong = {t: p for t, p in parts_of("all", markers).items() if len(p) != 1}
    assert wrong == {}


def test_each_change_runs_all_tests_but_those_of_a_night(
    markers: Mapping[str, list[str]],
) -> None:
    """`make test` leaves out what is marked long or nightly, and nothing else."""
    found = parts_of("test", markers)
    assert {t: p for t, p in found.items() if len(p) > 1} == {}
    left_out = {test for test, parts in found.items() if not parts}
    assert left_out == {t for t, m in markers.items() if {"long", "nightly"} & set(m)}


def test_the_inner_loop_runs_all_quick_tests_once(
    markers: Mapping[str, list[str]],
) -> None:
    """`make check` leaves out what is slow, needs the lab or installs the wheel."""
    found = parts_of("check", markers)
    assert {t: p for t, p in found.items() if len(p) > 1} == {}
    left_out = {test for test, parts in found.items() if not parts}
    costly = {"slow", "control_plane", "nodes", "wheel"}
    assert left_out == {t for t, m in markers.items() if costly & set(m)}


def test_long_tests_have_a_gate_of_their_own(
    markers: Mapping[str, list[str]],
) -> None:
    """`make test-nodes` runs those, and those alone."""
    found = {test for test, parts in parts_of("nodes", markers).items() if parts}
    assert found == {test for test, names in markers.items() if "long" in names}
    assert found
