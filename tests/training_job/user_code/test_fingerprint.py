"""Code that runs here is known by its source and versions."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.errors import ForeignFingerprintError, MissingSourceError
from plimsoll_trainer.user_code.fingerprint import (
    fingerprint_of,
    installed_version,
    require_same,
)
from tests.support.builders import a_fingerprint


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `their_model` on the Python path, with one module below it."""
    package = tmp_path / "their_model"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "gpt.py").write_text("from their_model.parts import block\n")
    (package / "parts" / "block.py").write_text("HIDDEN = 64\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def digest(module: str = "their_model.gpt") -> str:
    """Digest of the workload's source as it stands."""
    return fingerprint_of(f"{module}:workload").source_digest


def test_a_changed_source_file_changes_the_fingerprint(workload: Path) -> None:
    """Every file that is imported counts, by name and content."""
    before = digest()
    assert digest() == before
    block = workload / "parts" / "block.py"
    block.write_text("HIDDEN = 65\n")
    changed = digest()
    block.rename(workload / "parts" / "blocks.py")
    (workload / "gpt.py").write_text("from their_model.parts import blocks\n")
    assert len({before, changed, digest()}) == 3


def test_the_place_of_the_source_does_not_matter(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code mounted elsewhere is the same code."""
    before = digest()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    workload.rename(elsewhere / "their_model")
    monkeypatch.syspath_prepend(str(elsewhere))
    assert digest() == before


def test_a_folder_that_is_found_twice_counts_once(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH=. beside the current folder: profiler and trainer saw two sources."""
    (workload / "__init__.py").unlink()
    once = digest()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(".")
    assert digest() == once


def test_a_single_file_is_a_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script counts with what it imports, and without what lies beside it.

    A note written into the folder of a model discarded its running profile.
    """
    (tmp_path / "lone_model.py").write_text("from layers.helper import B\n")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "helper.py").write_text("B = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = digest("lone_model")
    (tmp_path / "notes.py").write_text("C = 3\n")
    (tmp_path / "layers" / "unused.py").write_text("C = 3\n")
    assert digest("lone_model") == before
    (tmp_path / "layers" / "helper.py").write_text("B = 3\n")
    assert digest("lone_model") != before


def test_content_moved_between_files_is_another_source(workload: Path) -> None:
    """The border between two files counts."""
    (workload / "gpt.py").write_text("from . import a, b\n")
    (workload / "a.py").write_text("x\n")
    (workload / "b.py").write_text("y\n")
    before = digest()
    (workload / "a.py").write_text("x\ny\n")
    (workload / "b.py").write_text("")
    assert digest() != before


def test_a_file_that_cannot_be_read_is_named(workload: Path) -> None:
    """A dangling link is no reason for a traceback."""
    (workload / "gone.py").symlink_to("nowhere.py")
    (workload / "gpt.py").write_text("from . import gone\n")
    with pytest.raises(MissingSourceError, match=r"gone\.py: No such file"):
        digest()


def test_versions_are_those_that_run(workload: Path) -> None:
    """Python and torch are the installed ones, and torch is not imported for it."""
    found = fingerprint_of("their_model:workload")
    assert found.python_version == sys.version.split()[0]
    assert found.torch_version == (installed_version("torch") or "none")
    assert workload.exists()


@pytest.mark.parametrize("entrypoint", ["no_such_module:f", "", ":f", "sys:f", "..x:f"])
def test_a_module_without_source_is_refused(entrypoint: str) -> None:
    """The message names the entry point and says what to check."""
    with pytest.raises(MissingSourceError, match="check the name") as caught:
        fingerprint_of(entrypoint)
    assert caught.value.exit_code is ExitCode.BAD_WORKLOAD


def test_arguments_are_part_of_what_is_planned_for(workload: Path) -> None:
    """They build the model; the order of their names, and spaces, build nothing."""
    assert workload.exists()
    one = fingerprint_of("their_model:f", '{"width": 512, "depth": 2}')
    assert one == fingerprint_of("their_model:f", '{"depth":2,"width":512}')
    other = fingerprint_of("their_model:f", '{"depth": 2, "width": 256}')
    message = r'profiled with arguments .*"width": 512.*, but here .*"width": 256'
    with pytest.raises(ForeignFingerprintError, match=message):
        require_same(other, one, "their_model:f")


def test_a_model_that_was_changed_in_its_place_is_another_one(
    workload: Path, tmp_path: Path
) -> None:
    """Arguments name it by a path, which is still the same; data and weights may."""
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "notes.json").write_text('{"text": "one"}')
    (tmp_path / "own.json").write_text('{"model_type": "qwen3"}')
    given = json.dumps(
        {
            "model": str(folder),
            "others": [{"of": str(tmp_path / "own.json")}, str(folder / "notes.json")],
            "texts": ["x" * 2000, "", "~nobody/qwen", "a\0b"],
            "depth": 2,
        }
    )
    before = fingerprint_of("their_model:f", given)
    (folder / "notes.json").write_text('{"text": "two"}')
    (folder / "model.safetensors").write_bytes(b"1")
    assert fingerprint_of("their_model:f", given) == before
    digests = {before.source_digest}
    for file in (folder / "config.json", tmp_path / "own.json", folder / "own.py"):
        file.write_text('{"model_type": "llama"}')
        digests.add(fingerprint_of("their_model:f", given).source_digest)
    assert len(digests) == 4
    message = r"models that are named \(3\), these were written last: .*config\.json"
    with pytest.raises(ForeignFingerprintError, match=message):
        require_same(fingerprint_of("their_model:f", given), before, "their_model:f")
    assert workload.exists()


def test_other_source_is_told_by_its_folder_and_its_latest_files(
    workload: Path,
) -> None:
    """Two digests would say nothing; what was written last is what has changed."""
    before = fingerprint_of("their_model:f")
    (workload / "__init__.py").write_text("from . import new, second, third, fourth\n")
    os.utime(workload / "__init__.py", (1e9, 1e9))
    for age_s, name in enumerate(("new", "second", "third", "fourth")):
        path = workload / f"{name}.py"
        path.write_text("A = 1\n")
        os.utime(path, (2e9 - age_s, 2e9 - age_s))
    message = (
        "not what was planned for: of the Python files that their_model in "
        f"{workload.parent} imports (5, its own included), these were written last: "
        "their_model/new.py, their_model/second.py, their_model/third.py; undo what"
    )
    with pytest.raises(ForeignFingerprintError, match=re.escape(message)):
        require_same(fingerprint_of("their_model:f"), before, "their_model:f")


def test_a_foreign_plan_is_refused() -> None:
    """The first difference is named, and the exit code is the reserved one."""
    require_same(a_fingerprint(), a_fingerprint(), "m:f")
    with pytest.raises(ForeignFingerprintError, match=r"torch_version '2\.11\.0'") as e:
        require_same(a_fingerprint(), a_fingerprint(torch_version="2.11.0"), "m:f")
    assert e.value.exit_code == 81
