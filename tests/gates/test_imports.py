"""Who may import whom: the contracts hold, and each of them bites when broken.

Contracts between packages, and of what is forbidden, are import-linter's. What is
allowed from outside is a list for each package, checked here inside functions as well.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"
ROOTS = ("planner", "training_job", "profiler_job", "operator", "cli")
OURS = {
    "plimsoll_planner": {"plimsoll_planner"},
    "plimsoll_trainer": {"plimsoll_planner", "plimsoll_trainer"},
    "plimsoll_profiler": {
        "plimsoll_planner",
        "plimsoll_trainer",
        "plimsoll_profiler",
    },
    "plimsoll_operator": {"plimsoll_planner", "plimsoll_operator"},
    "plimsoll_cli": {
        "plimsoll_planner",
        "plimsoll_profiler",
        "plimsoll_operator",
        "plimsoll_cli",
    },
}
OUTSIDE: dict[str, set[str]] = {
    "plimsoll_planner": {
        "moocore",  # in the one module that finds fronts
        "numpy",
        "import_module(f'{package}.{module}')",  # its own schedules and techniques
    },
    "plimsoll_trainer": {
        "torch",
        "numpy",
        "transformers",  # in the adapter that takes its models apart, and huggingface
        "datasets",  # texts of every kind of file; by whoever names one
        "peft",  # low-rank adapters; by whoever asks for some
        "safetensors",  # weights in the format of transformers, which brings it
        "torchvision",  # where one of its classifiers is asked for
        "huggingface_hub",  # where a configuration is neither here nor bundled
        "importlib.import_module(module)",  # the user's entry point
        "import_module(module)",  # what an optimizer is made from, if it is asked for
        "import_module('wandb')",  # where a workload names it
        "import_module('mlflow')",  # the same
    },
    "plimsoll_profiler": {"numpy", "torch"},
    "plimsoll_operator": {
        "aiohttp",
        "alembic",
        "kopf",
        "kubernetes",
        "prometheus_client",
        "psutil",
        "psycopg",
        "sqlalchemy",
        "yaml",
    },
    "plimsoll_cli": {
        "click",
        "platformdirs",
        "jinja2",
        "rich",
        "import_module(f'{verbs.__name__}.{name}')",  # its own verbs
    },
}
"""Imports of each package besides the standard library; grows with its use."""
ROOMS = "rooms of the command"
CIRCLES = "no two modules or folders of a package import each other"
OPERATOR = "operator/plimsoll_operator"
PLANTED = [
    ("planner/plimsoll_planner", "import torch", "the planner is pure"),
    ("planner/plimsoll_planner", "import sqlalchemy", "the planner is pure"),
    ("planner/plimsoll_planner", "import plimsoll_cli.output", "imports point down"),
    ("training_job/plimsoll_trainer", "import plimsoll_profiler", "imports point down"),
    ("operator/plimsoll_operator", "import plimsoll_trainer", "the operator starts"),
    ("operator/plimsoll_operator", "import torch", "the operator starts"),
    ("profiler_job/plimsoll_profiler", "import kopf", "trainer and profiler travel"),
    ("planner/plimsoll_planner/records", "import numpy", "records need the standard"),
    (
        "planner/plimsoll_planner/memory",
        "import plimsoll_planner.search",
        "rooms of the planner",
    ),
    (
        "planner/plimsoll_planner/text",
        "import plimsoll_planner.overhead",
        "rooms of the planner",
    ),
    ("cli/plimsoll_cli/options", "import plimsoll_cli.output.console", ROOMS),
    ("cli/plimsoll_cli/state", "import plimsoll_cli.verbs.run", ROOMS),
    ("cli/plimsoll_cli/output", "import plimsoll_cli.report.page", ROOMS),
    ("cli/plimsoll_cli/verbs", "import plimsoll_cli.verbs.run", "a verb needs no"),
    (
        f"{OPERATOR}/store",
        "import plimsoll_operator.objects.manifests",
        "rooms of the operator",
    ),
    (
        f"{OPERATOR}/ingest",
        "import plimsoll_operator.backends",
        "rooms of the operator",
    ),
    (f"{OPERATOR}/control", "import kubernetes.aio", "kubernetes is imported by"),
    (
        f"{OPERATOR}/objects",
        "from kubernetes import client",
        "kubernetes is imported by",
    ),
    (f"{OPERATOR}/control", "import kopf", "kopf is imported by the watches"),
    (f"{OPERATOR}/solving", "import sqlalchemy", "tables are known to the store"),
    (f"{OPERATOR}/rules", "import subprocess", "the reconcile rules see no"),
    (f"{OPERATOR}/rules", "import time", "the reconcile rules see no"),
    (f"{OPERATOR}/rules", "import psutil", "the reconcile rules know nobody"),
    (f"{OPERATOR}/rules", "import sqlalchemy", "the reconcile rules know nobody"),
    (
        f"{OPERATOR}/rules",
        "import plimsoll_operator.kube.times",
        "the reconcile rules know nobody",
    ),
    (
        f"{OPERATOR}/rules",
        "import plimsoll_operator.store.rows",
        "the reconcile rules know nobody",
    ),
    (
        f"{OPERATOR}/backends/local",
        "import plimsoll_operator.kube.api",
        "one machine needs no client",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, to plant an import in."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for root in ROOTS:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / root, folder / root, ignore=skipped)
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts over the packages below a folder."""
    path = ":".join(str(folder / root) for root in ROOTS)
    return subprocess.run(
        [LINTER, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_hold(copy: Path) -> None:
    """The packages as they are import only what they may."""
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@contextmanager
def planted(*files: tuple[Path, str]) -> Generator[None]:
    """Modules with one import each, as long as the block lasts."""
    for file, statement in files:
        file.write_text(f'"""Planted."""\n\n{statement}\n')
    try:
        yield
    finally:
        for file, _ in files:
            file.unlink()


def breaks(done: subprocess.CompletedProcess[str], contract: str) -> bool:
    """Whether the contract that opens with these words is broken."""
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    return done.returncode != 0 and any(line.startswith(contract) for line in broken)


@pytest.mark.parametrize(("package", "statement", "contract"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    package: str, statement: str, contract: str, copy: Path
) -> None:
    """The contract is named, with the file and line that broke it."""
    with planted((copy / package / "planted.py", statement)):
        done = lint(copy)
    assert breaks(done, contract), done.stdout
    assert "planted" in done.stdout
    assert "l.3" in done.stdout


TRAINER, PROFILER = "training_job/plimsoll_trainer", "profiler_job/plimsoll_profiler"
IN_ROOMS = [
    (f"{TRAINER}/engine", "import plimsoll_trainer.process.options", "process life on"),
    (f"{TRAINER}/engine", "import plimsoll_trainer.devices.device", "process life on"),
    (f"{TRAINER}/checkpoint", "import plimsoll_trainer.reporting", "process life on"),
    (f"{TRAINER}/process", "import plimsoll_trainer.supervisor", "process life on"),
    (f"{TRAINER}/attic", "", "process life on"),
    (f"{PROFILER}/counting", "import plimsoll_profiler.probing.cases", "what counts"),
    (f"{PROFILER}/probing", "import plimsoll_profiler.ranks", "what counts"),
]


@pytest.mark.parametrize(("room", "statement", "contract"), IN_ROOMS)
def test_a_planted_import_between_rooms_breaks_its_contract(
    room: str, statement: str, contract: str, copy: Path
) -> None:
    """Rooms of trainer and profiler are layers; a new one has to be given a place."""
    is_new = not (copy / room).exists()
    (copy / room).mkdir(exist_ok=True)
    planted = copy / room / ("__init__.py" if is_new else "planted.py")
    planted.write_text(f'"""Planted."""\n\n{statement}\n')
    try:
        done = lint(copy)
    finally:
        shutil.rmtree(planted.parent) if is_new else planted.unlink()
    assert done.returncode != 0
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert broken
    # An import against the order of the rooms may close a circle as well.
    alone = [line for line in broken if CIRCLES not in line]
    assert alone, done.stdout
    assert all(contract in line for line in alone), done.stdout
    assert ("attic" if is_new else "planted") in done.stdout


def test_a_circle_between_folders_breaks_its_contract(copy: Path) -> None:
    """Also between two folders that stand in one room."""
    files = [
        (copy / OPERATOR / "backends" / one / "planted.py", f"import {other}")
        for one, other in (
            ("pods", "plimsoll_operator.backends.local.planted"),
            ("local", "plimsoll_operator.backends.pods.planted"),
        )
    ]
    with planted(*files):
        assert breaks(lint(copy), CIRCLES)


def test_a_room_that_stands_nowhere_breaks_the_contract(copy: Path) -> None:
    """Whoever opens another room of the operator says who may import it."""
    with planted((copy / OPERATOR / "another_room.py", "import json")):
        assert breaks(lint(copy), "rooms of the operator point down")


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level name of every import, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            yield ast.unparse(node)


BY_NAME = {"__import__", "import_module", "importlib.import_module"}
"""Imports by name; a package that needs one says so on its list."""


def strangers(package: str, text: str) -> set[str]:
    """Names that a module of `package` imports and may not."""
    allowed = OURS[package] | OUTSIDE[package] | sys.stdlib_module_names
    return set(imports_of(ast.parse(text))) - allowed


@pytest.mark.parametrize("root", ROOTS)
def test_a_package_imports_only_what_is_on_its_list(root: str) -> None:
    """Lazy imports count as well; a new library is a decision, not an accident."""
    for file in sorted((ROOT / root).rglob("*.py")):
        package = file.relative_to(ROOT / root).parts[0]
        assert strangers(package, file.read_text()) == set(), file


@pytest.mark.parametrize(
    "text",
    [
        "import yaml",
        "def f():\n    import yaml",
        "from torch import nn",
        "import importlib\nimportlib.import_module('torch')",
        "__import__('torch')",
        "from tools.gates import main",
    ],
)
def test_the_list_bites(text: str) -> None:
    """A name that is not on it is found, wherever in a module it stands."""
    assert strangers("plimsoll_planner", text)
