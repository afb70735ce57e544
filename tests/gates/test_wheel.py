"""The wheel, installed alone: extra by extra, and Python by Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
PACKAGES = {
    "planner": ("plimsoll_planner",),
    "trainer": ("plimsoll_planner", "plimsoll_trainer"),
    "profiler": ("plimsoll_planner", "plimsoll_trainer", "plimsoll_profiler"),
    "operator": ("plimsoll_planner", "plimsoll_operator"),
    "cli": (
        "plimsoll_planner",
        "plimsoll_operator.api",
        "plimsoll_operator.brain",
        "plimsoll_operator.home",
        "plimsoll_cli",
    ),
    "local": (
        "plimsoll_planner",
        "plimsoll_trainer",
        "plimsoll_profiler",
        "plimsoll_operator",
        "plimsoll_cli",
    ),
}
"""What each extra must be able to import, module by module."""
WITHOUT_TORCH = ("planner", "operator", "cli")
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != "transformers" or ".adapters." not in module.name:
                raise
print(*sorted(name for name in sys.modules if name == "torch"))
"""
SUPPORTED = ("3.11", "3.12", "3.13")
UNIT_TESTS = ("planner", "training_job", "profiler_job", "operator", "cli")


def pythons() -> dict[str, str]:
    """Return the supported Pythons of this machine; the running one is always there."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in SUPPORTED:
        candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
        candidates += [
            Path(path) for path in [shutil.which(f"python{version}")] if path
        ]
        if candidates:
            found.setdefault(version, str(candidates[0]))
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    return next(folder.glob("*.whl"))


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints.

    When it fails all of that is shown, and tests that failed by their own names.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    assert done.returncode == 0, f"{Path(str(command[0])).name} {command[1:4]}"
    return done.stdout


def environment(folder: Path, python: str, *requirements: str) -> Path:
    """Make a clean environment and return its Python."""
    run(UV, "venv", "--quiet", "--no-config", "--python", python, folder)
    constraints = ROOT / "constraints.txt"
    interpreter = folder / "bin" / "python"
    options = ("--quiet", "--python", interpreter, "--constraints", constraints)
    run(UV, "pip", "install", *options, *requirements)
    return interpreter


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    """Five typed packages and the metadata; no tests, no tools."""
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    packages = {name for name in top if not name.endswith(".dist-info")}
    assert packages == set(PACKAGES["local"])
    for package in packages:
        assert f"{package}/py.typed" in names
        assert f"{package}/errors.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "plimsoll_trainer/emulated/shim.c" in names
    for template in (ROOT / "cli/plimsoll_cli/report/templates").iterdir():
        assert f"plimsoll_cli/report/templates/{template.name}" in names


@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_brings_what_its_packages_import(
    extra: str, wheel: Path, tmp_path: Path
) -> None:
    """Every module imports; planner, operator and CLI come without torch.

    Adapters of transformers need an extra of their own.
    """
    env = tmp_path / "env"
    python = environment(
        env, sys.executable, f"plimsoll-train[{extra}] @ {wheel.as_uri()}"
    )
    imported = run(python, "-c", IMPORT_ALL, *PACKAGES[extra], cwd=tmp_path)
    has_torch = any(env.glob("lib/python3*/site-packages/torch"))
    assert has_torch is (extra not in WITHOUT_TORCH)
    assert (imported.strip() == "torch") is has_torch
    shutil.rmtree(env)


def test_the_records_need_nothing_at_all(wheel: Path, tmp_path: Path) -> None:
    """Without any extra, the types that travel into users' images still import."""
    python = environment(tmp_path / "env", sys.executable, str(wheel))
    run(python, "-I", "-c", IMPORT_ALL, "plimsoll_planner.records", cwd=tmp_path)
    run(python, "-I", "-c", "import plimsoll_trainer.admission", cwd=tmp_path)


@pytest.mark.timeout(3600)  # a whole suite; each of its tests has a limit of its own
@pytest.mark.parametrize(("version", "python"), pythons().items(), ids=list(pythons()))
def test_the_suite_passes_on_the_wheel(
    version: str, python: str, wheel: Path, tmp_path: Path
) -> None:
    """On every supported Python found here, the quick unit tests hold for the wheel.

    Those that are slow start torch, which is not there, or compare thousands of
    searches, which no Python does otherwise; `make test` runs them once.
    """
    python = str(
        environment(
            tmp_path / "env",
            python,
            f"plimsoll-train[cli,operator] @ {wheel.as_uri()}",
            *(
                "pytest",
                "pytest-timeout",
                "hypothesis",
                "jsonschema",
                "highspy",
                "pyyaml",
            ),
        )
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    folders = [f"tests/{part}" for part in UNIT_TESTS]
    for needed in (*folders, "tests/support", "tests/lab", "tools", "examples"):
        shutil.copytree(ROOT / needed, tmp_path / needed)
    words = ("-q", "-m", "not slow", "-p", "tests.support.drawing", *folders)
    output = run(python, "-m", "pytest", *words, cwd=tmp_path)
    assert " passed" in output
    assert run(python, "--version").startswith(f"Python {version}.")
