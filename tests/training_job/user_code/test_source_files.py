"""The files that an entry point imports, read from their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_trainer.user_code.source_files import installed_in, source_files

SCRIPT = "lone_model"
ALL = {"lone_model", "parts/__init__", "parts/block", "parts/deep/far", "notes"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script beside a package and notes, on the Python path."""
    for name in ALL:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("A = 1\n")
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "other.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_what_pip_installs_into_any_folder_is_a_library(folder: Path) -> None:
    """By the list of files that it leaves there; a file beside it is the user's own."""
    (folder / "library.py").write_text("import notes\n")
    (folder / f"{SCRIPT}.py").write_text("import library, parts\n")
    assert names() == {SCRIPT, "library", "notes", "parts/__init__"}
    record = folder / "library-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("library.py,,\nlibrary-1.0.dist-info/RECORD,,\n")
    installed_in.cache_clear()
    assert names() == {SCRIPT, "parts/__init__"}


def names(entrypoint: str = f"{SCRIPT}:workload") -> set[str]:
    """Names of the files that count."""
    return {name.removesuffix(".py") for name, _ in source_files(entrypoint)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json, other, plimsoll_trainer.workload", set()),
        ("import parts.block", {"parts/__init__", "parts/block"}),
        ("from parts import block", {"parts/__init__", "parts/block"}),
        ("from parts.block import A as B", {"parts/__init__", "parts/block"}),
        ("import parts.deep.far", {"parts/__init__", "parts/deep/far"}),
        ("def workload():\n    import notes", {"notes"}),
        ("if False:\n    import notes", {"notes"}),
        ("import importlib\nimportlib.import_module('notes')", {"notes"}),
        ("N = 'notes'\n__import__(N)", ALL),
        ("exec('import notes')", ALL),
        ("from importlib import import_module as load", ALL),
        ("from importlib import import_module\nmap(import_module, ['notes'])", ALL),
        ("import importlib\nload = importlib.import_module\nload('notes')", ALL),
        ("import importlib\ngetattr(importlib, 'import_module')('notes')", ALL),
        ("import importlib\nimportlib.import_module('.notes', __package__)", ALL),
        ("import importlib as i\ngetattr(i, 'import_' + 'module')('notes')", ALL),
        ("import importlib\nm = importlib\nvars(m)", ALL),
        ("from importlib.machinery import SourceFileLoader", ALL),
        ("import importlib\nimportlib.machinery.SourceFileLoader", ALL),
        ("import importlib.util as u", ALL),
        ("from importlib import util", ALL),
        ("import runpy\nrunpy.run_path('no' + 'tes')", ALL),
        ("from imp import load_source", ALL),
        ("from pydoc import locate\nlocate('notes')", ALL),
        ("import pkgutil\npkgutil.resolve_name('notes')", ALL),
        ("import pkgutil\nfor m in pkgutil.iter_modules(['.']): print(m)", ALL),
        ("import sys\nsys.path.insert(0, 'parts/deep')\nimport far", ALL),
        ("from sys import path\npath.append('parts')", ALL),
        ("import sys as s\ns.path.append('parts')", ALL),
        ("import sys\ngetattr(sys, 'pa' + 'th').append('parts')", ALL),
        ("import far", ALL),
        ("import parts.nowhere", ALL),
        ("try:\n    import far\nexcept ImportError:\n    far = None", ALL),
        ("eval('__import__')('notes')", ALL),
        ("run = exec", ALL),
        ("text = open('notes.py').read()", ALL),
        ("__import__('parts', fromlist=['block'])", ALL),
        ("import builtins", ALL),
        ("__builtins__", ALL),
        ("__path__.append('parts')", ALL),
        pytest.param("table = 1" + " + 1" * 2000, ALL, id="generated"),
        pytest.param("table = 1" + " + 1" * 100_000, set(), id="unreadable"),
        pytest.param("table = " + "-" * 100_000 + "1", set(), id="unparsed"),
        ("import sys, os, time, other\nprint(sys.argv, os.path, sys.modules)", set()),
        ("import re, other\nre.compile('a')\nother.Linear(1, 1).eval()", set()),
        ("import importlib.metadata\nimportlib.metadata.version('x')", set()),
        ("import notes, lone_model", {"notes"}),
    ],
)
def test_imports_are_followed_as_far_as_own_code_goes(
    folder: Path, text: str, found: set[str]
) -> None:
    """Wherever they stand; a name that only a run tells lets all around count."""
    (folder / "lone_model.py").write_text(text + "\n")
    assert names() == {SCRIPT} | found


def test_packages_import_relatively(folder: Path) -> None:
    """Dots lead up from the module's package, or from the package itself."""
    (folder / "parts" / "__init__.py").write_text("from . import block\n")
    (folder / "parts" / "deep" / "far.py").write_text("from ...parts import block\n")
    (folder / "parts" / "block.py").write_text("from .deep.far import A\n")
    assert names("parts:f") == {"parts/__init__", "parts/block", "parts/deep/far"}
    assert names("parts.deep.far:f") == names("parts:f")


def test_what_is_installed_counts_where_it_is_the_workload() -> None:
    """An image that installs the model has it among its libraries."""
    assert names("other:f") == {"other"}


def test_text_that_is_no_python_has_no_imports(folder: Path) -> None:
    """Whoever imports the file says what is wrong with it."""
    (folder / "lone_model.py").write_text("import notes\nthis is (not\n")
    assert names() == {SCRIPT}


def test_an_open_module_elsewhere_lets_its_own_folder_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that it loads lie beside it as likely as beside the entry point."""
    shared = folder.parent / f"{folder.name}_shared"
    (shared / "kit").mkdir(parents=True)
    (shared / "kit" / "__init__.py").write_text("load = __import__\n")
    (shared / "kit" / "hidden.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(shared))
    (folder / "lone_model.py").write_text("import kit\n")
    assert names() == {*ALL, SCRIPT, "kit/__init__", "kit/hidden"}
