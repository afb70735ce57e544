"""The tree itself obeys the layout (docs/decisions/0001)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_operator import names
from tests.lab import gpus

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {
    "planner": "plimsoll_planner",
    "training_job": "plimsoll_trainer",
    "profiler_job": "plimsoll_profiler",
    "operator": "plimsoll_operator",
    "cli": "plimsoll_cli",
}
NOT_OURS = {"__pycache__", ".mypy_cache", ".ruff_cache"}
each_root = pytest.mark.parametrize(("folder", "package"), SOURCE_ROOTS.items())


def source_files() -> list[Path]:
    """Every Python file of the packages and tools."""
    folders = [ROOT / folder for folder in (*SOURCE_ROOTS, "tools", "benchmarks")]
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


@each_root
def test_a_source_root_holds_one_package_and_its_dockerfile(
    folder: str, package: str
) -> None:
    """A stray module would import in the checkout and be missing from the wheel."""
    found = {path.name for path in (ROOT / folder).iterdir()} - NOT_OURS
    assert found - {"Dockerfile"} == {package}


LISTED = [
    file.parent
    for folder in ("planner", "cli", "operator", "training_job", "profiler_job")
    for file in (ROOT / folder).rglob("__init__.py")
]
"""Packages whose docstring is a table of contents."""


@pytest.mark.parametrize("folder", LISTED, ids=lambda folder: folder.name)
def test_a_package_lists_its_modules(folder: Path) -> None:
    """Whoever opens a package reads there what is in it, and in which order."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = [file.stem for file in folder.glob("*.py")]
    modules += [file.parent.name for file in folder.glob("*/__init__.py")]
    named = set(re.findall(r"\w+", text))
    missing = {name for name in modules if not name.startswith("__")} - named
    assert not missing


def test_no_init_file_shadows_another_package() -> None:
    """`operator/__init__.py` would be found by every `import operator`."""
    shadows = [ROOT / folder / "__init__.py" for folder in SOURCE_ROOTS]
    shadows += (ROOT / "tests").rglob("__init__.py")
    assert [str(path) for path in shadows if path.exists()] == []


def test_the_guard_is_needed(tmp_path: Path) -> None:
    """With that file the standard library's `operator` really is hidden."""
    (tmp_path / "operator").mkdir()
    command = [sys.executable, "-c", "import operator; print(operator.__file__)"]
    for content in (None, ""):
        if content is not None:
            (tmp_path / "operator" / "__init__.py").write_text(content)
        done = subprocess.run(
            command,
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        hidden = done.returncode != 0 or str(tmp_path) in done.stdout
        assert hidden is (content is not None)


@each_root
def test_a_package_is_typed_and_has_its_errors(folder: str, package: str) -> None:
    """Each package says that it is typed and keeps its errors in one module."""
    assert (ROOT / folder / package / "py.typed").read_text() == ""
    assert (ROOT / folder / package / "errors.py").exists()


@pytest.mark.parametrize("file", source_files(), ids=lambda f: str(f.relative_to(ROOT)))
def test_a_module_opens_with_a_docstring_and_stays_readable(file: Path) -> None:
    """At most 400 lines a module, 80 lines a function, and a first sentence."""
    text = file.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    assert text.count("\n") <= 400
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 80, node.name


def test_every_test_states_its_rule() -> None:
    """The docstring of a test says which rule it holds."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if node.name.startswith("test_"):
                assert ast.get_docstring(node), f"{file.name}: {node.name}"


def test_every_python_file_has_a_place() -> None:
    """No module stands where no gate would look at it."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    packages = tuple(f"{folder}/{package}/" for folder, package in SOURCE_ROOTS.items())
    places = (*packages, "tests/", "tools/", "benchmarks/", "examples/")
    strays = [name for name in listed.stdout.split() if not name.startswith(places)]
    assert strays == []


def test_the_lab_marks_emulated_devices_by_the_operators_label() -> None:
    """The lab stands on its own, and its label is still the same word."""
    assert gpus.EMULATED_LABEL == names.EMULATED_DEVICE_LABEL
