"""Private names of torch stand in one package: a new release breaks one place."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is missing: run `make test`")

ROOT = Path(__file__).parents[2]
THE_PLACE = "training_job/plimsoll_trainer/torch_internals/"
CLASSES = (
    torch.Tensor,
    torch.UntypedStorage,
    torch.nn.Module,
    torch.optim.Optimizer,
)
"""Anybody may hold an object of these: what is private in them is found by name."""
OF_OBJECTS = {
    name
    for known in (*CLASSES, torch.nn.Module())
    for name in dir(known)
    if name.startswith("_") and not name.startswith("__")
}


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is nobody else's business."""
    return name.startswith("_") and not name.endswith("__")


def roots_of(tree: ast.AST) -> dict[str, str]:
    """Dotted name of everything of torch that a module has imported."""
    roots: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.partition(".")[0]
                roots[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                roots[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {name: full for name, full in roots.items() if full.split(".")[0] == "torch"}


def private_names(text: str) -> Iterator[str]:
    """Yield the private names of torch that a module uses."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (
            name
            for name in dotted
            if name.startswith("torch.") and any(map(is_private, name.split(".")))
        )
    roots = roots_of(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr):
            continue
        first = ast.unparse(node.value).split(".")[0]
        if first in roots or (node.attr in OF_OBJECTS and first not in {"self", "cls"}):
            yield ast.unparse(node)


def test_private_names_of_torch_stand_in_one_package() -> None:
    """No other Python file of the tree imports or reads any, tests included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {
        (name, private)
        for name in listed.stdout.split()
        if not name.startswith(THE_PLACE) and (ROOT / name).exists()
        for private in private_names((ROOT / name).read_text())
    }
    assert found == set()
    for module in (ROOT / THE_PLACE).glob("[a-z]*.py"):
        assert list(private_names(module.read_text())), module


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from torch._C import HashStore", ["torch._C.HashStore"]),
        ("from torch.nn import _reduction", ["torch.nn._reduction"]),
        ("import torch._dynamo", ["torch._dynamo"]),
        ("def f():\n    import torch\n    torch.cuda._sleep(3)", ["torch.cuda._sleep"]),
        ("import torch.distributed as d\nd._tensor.f()", ["d._tensor"]),
        ("from torch.distributed import stage\nstage._x", ["stage._x"]),
        ("x._version", ["x._version"]),
        ("f(x)._parameters", ["f(x)._parameters"]),
        ("self._parameters; self._buffer; other._mine", []),
        ("from torch import nn\nnn.Module.__call__", []),
        ("from mine._torch import x", []),
    ],
)
def test_a_private_name_is_found(text: str, found: list[str]) -> None:
    """However it is come by; our own and a class's own names are none."""
    assert list(private_names(text)) == found
