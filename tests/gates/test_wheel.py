"""The wheel, installed alone: extra by extra, and Python by Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.lab.prepare import may_prepare
from tests.support.cases import at_night, named
from tools import installed_wheel

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
        "plimsoll_operator.rules",
        "plimsoll_operator.backends.local",
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
"""Modules that each extra must be able to import."""
WITHOUT_TORCH = ("planner", "operator", "cli")
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            rooms = {"adapters", "huggingface", "reading"} & {*module.name.split(".")}
            theirs = {"transformers", "safetensors", "peft", "torchvision"}
            if error.name not in theirs or not rooms:
                raise
print(*sorted(name for name in sys.modules if name == "torch"))
"""
WITHIN = """
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

waiting, known = [("plimsoll-train", frozenset([sys.argv[1]]))], set()
while waiting:
    name, extras = waiting.pop()
    if (name, extras) in known:
        continue
    known.add((name, extras))
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        continue
    for needed in map(Requirement, texts):
        marks = [{"extra": extra} for extra in extras or [""]]
        if needed.marker is None or any(map(needed.marker.evaluate, marks)):
            waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
asked = {name for name, _ in known}
owners = metadata.packages_distributions()

class Within(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if owners.get(name) and asked.isdisjoint(map(canonicalize_name, owners[name])):
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Within
sys.argv = sys.argv[1:]
"""
"""Hides what an extra does not ask for, itself or through what it asks for."""
IMPORT_WITHIN = WITHIN + IMPORT_ALL
SUPPORTED = ("3.11", "3.12", "3.13")
UNIT_TESTS = ("planner", "training_job", "profiler_job", "operator", "cli")


def python_of(version: str) -> str:
    """A Python of this machine, the running one if it is of that version.

    Skips the test if there is none, but for CI, which installs it. Looked for are those
    of pyenv, of uv, and of PATH.
    """
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python")):
        return str(path)
    if not (found := found_by_uv(version)) and may_prepare():
        subprocess.run((UV, "python", "install", version), check=False)
        found = found_by_uv(version)
    if not found:
        pytest.skip(f"no Python {version}: run `{UV} python install {version}`")
    return found


def found_by_uv(version: str) -> str:
    """A Python that uv installed or finds on PATH; empty without one."""
    words = ("find", "--no-project", "--no-python-downloads", version)
    done = subprocess.run(
        (UV, "python", *words), capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


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


def test_unit_tests_find_the_packages_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On their Python, in the checkout: none of its folders comes first."""
    monkeypatch.setattr(installed_wheel, "WHEEL", tmp_path / "wheel")
    installed_wheel.main()
    ask = f"import {', '.join(PACKAGES['local'])}; print(*({{}}), sep='\\n')"
    files = ", ".join(f"{package}.__file__" for package in PACKAGES["local"])
    found = run(tmp_path / "wheel/bin/python", "-c", ask.format(files)).split()
    (site,) = (tmp_path / "wheel").glob("lib/python3*/site-packages")
    assert found == [str(site / name / "__init__.py") for name in PACKAGES["local"]]


@pytest.mark.parametrize("version", ["2.1", SUPPORTED[0]])
def test_a_python_that_is_missing_names_the_command_that_adds_it(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No supported one is left out in silence: in CI such a skip is a failure."""
    for name in ("CI", "PLIMSOLL_LAB_BUILD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 99))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pytest.skip.Exception, match=f"uv python install {version}`"):
        python_of(version)


@pytest.mark.parametrize("extra", WITHOUT_TORCH)
def test_an_extra_brings_what_its_packages_import(
    extra: str, wheel: Path, tmp_path: Path
) -> None:
    """Every module of planner, operator and CLI imports, and torch does not come."""
    env = tmp_path / "env"
    python = environment(
        env, sys.executable, f"plimsoll-train[{extra}] @ {wheel.as_uri()}"
    )
    assert not run(python, "-c", IMPORT_ALL, *PACKAGES[extra], cwd=tmp_path).strip()
    assert not any(env.glob("lib/python3*/site-packages/torch"))


def imported(env: Path, extra: str, folder: Path) -> str:
    """Names of what an extra's modules import, with what it asks for itself alone."""
    return run(env, "-c", IMPORT_WITHIN, extra, *PACKAGES[extra], cwd=folder).strip()


@pytest.mark.timeout(900)  # fetches a torch for each Python where none is cached
@pytest.mark.parametrize("version", at_night(SUPPORTED[1:-1], named(SUPPORTED)))
def test_everything_works_on_every_python(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """With all extras every module imports, and a workload is profiled and planned.

    On the oldest and the newest; on those between at night.
    """
    python = python_of(version)
    env = environment(
        tmp_path / "env", python, f"plimsoll-train[local] @ {wheel.as_uri()}"
    )
    assert run(env, "--version").startswith(f"Python {version}.")
    assert imported(env, "local", tmp_path) == "torch"
    if python == sys.executable:
        # What an extra asks for is the same for every Python.
        for extra in ("trainer", "profiler"):
            assert imported(env, extra, tmp_path) == "torch", extra
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    plimsoll = (env, "-m", "plimsoll_cli")
    run(*plimsoll, "profile", "examples.mlp:workload", cwd=tmp_path)
    words = ("plan", "profile.json", "--offers", "examples/offers.csv")
    assert "fewest: 1 GPU" in run(*plimsoll, *words, cwd=tmp_path)
    shutil.rmtree(tmp_path / "env")


def test_the_records_need_nothing_at_all(wheel: Path, tmp_path: Path) -> None:
    """Without any extra, the types that travel into users' images still import."""
    python = environment(tmp_path / "env", sys.executable, str(wheel))
    run(python, "-I", "-c", IMPORT_ALL, "plimsoll_planner.records", cwd=tmp_path)
    run(python, "-I", "-c", "import plimsoll_trainer.process.admission", cwd=tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # a whole suite; each of its tests has a limit of its own
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_suite_passes_on_the_wheel(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """On every supported Python the quick unit tests hold for the wheel.

    Those that are slow start torch, which is not there, or compare thousands of
    searches, which no Python does otherwise; `make test` runs them once.
    """
    python = str(
        environment(
            tmp_path / "env",
            python_of(version),
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
