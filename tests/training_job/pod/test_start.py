"""The way into a pod's image: modules are found, and an old Python is refused."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.emulated.device import LIBRARY_VARIABLE
from plimsoll_trainer.pod import start

SHOW = """
import json, os, subprocess, sys
import of_the_image, shared
child = [sys.executable, "-c", "import shared; print(shared.__file__)"]
print(json.dumps({
    "arguments": sys.argv[1:],
    "name": __name__,
    "shared": shared.__file__,
    "shared_of_a_child": subprocess.check_output(child, text=True).strip(),
    "shim": os.environ.get("PLIMSOLL_SHIM"),
    "paths": os.environ["PYTHONPATH"],
}))
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder as the init container leaves it, with a main module that shows all."""
    folder = tmp_path / "runtime"
    package = folder / "plimsoll_trainer" / "pod"
    package.mkdir(parents=True)
    shutil.copy(start.__file__, folder / "start.py")
    (folder / "plimsoll_trainer" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(SHOW)
    (folder / "shared.py").touch()
    return folder


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The modules of an image: one of its own, and one of a name that we have too."""
    folder = tmp_path / "image"
    folder.mkdir()
    for name in ("of_the_image", "shared"):
        (folder / f"{name}.py").touch()
    return folder


def shown(runtime: Path, image: Path, **environment: str) -> dict[str, object]:
    """Start the runtime in that image; return what its main module sees."""
    done = subprocess.run(
        [sys.executable, runtime / "start.py", "--flag", "word"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(image), **environment},
        cwd=image.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("safe", ["", "1"])
def test_the_runtime_stands_before_the_image(
    safe: str, runtime: Path, image: Path
) -> None:
    """Here and in processes started from here; modules of the image stay in reach."""
    seen = shown(runtime, image, PYTHONSAFEPATH=safe)
    assert seen["arguments"] == ["--flag", "word"]
    assert seen["name"] == "__main__"
    assert seen["shared"] == seen["shared_of_a_child"] == f"{runtime}/shared.py"
    assert seen["paths"] == f"{runtime}:{image}"


def test_the_shim_is_named_where_it_was_brought(runtime: Path, image: Path) -> None:
    """A library that the pod names itself stays; without one none is named."""
    assert shown(runtime, image)["shim"] is None
    (runtime / "shim.so").touch()
    assert shown(runtime, image)["shim"] == f"{runtime}/shim.so"
    assert shown(runtime, image, PLIMSOLL_SHIM="/own.so")["shim"] == "/own.so"
    assert start.SHIM_VARIABLE == LIBRARY_VARIABLE


def test_an_old_python_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with both versions, and the exit code of what no retry mends."""
    monkeypatch.setattr(sys, "version_info", (3, 8, 10, "final", 0))
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == start.INCOMPATIBLE == ExitCode.INCOMPATIBLE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Plimsoll needs Python 3.11 or newer, and ")
    assert "of this image is 3.8: " in line


def test_an_old_python_can_read_the_file() -> None:
    """Its grammar is that of Python 3.6; a newer one would end in a SyntaxError."""
    ast.parse(Path(start.__file__).read_text(), feature_version=(3, 6))
