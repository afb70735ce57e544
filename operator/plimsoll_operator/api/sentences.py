"""Sentences of the types: those below their fields and words.

In: a record or a closed set of words. Out: text for people. Called where the schema of
the cluster and the pages in docs/ are made: a meaning stands in one place, the types.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from enum import StrEnum

from plimsoll_planner.records.record import Record, RecordShape, shapes_of
from plimsoll_planner.records.shape import ChoiceShape, OptionalShape, Shape


def opening(kind: type) -> str:
    """Docstring of a class on one line."""
    return on_one_line(kind.__doc__ or "")


def sentences(kind: type) -> dict[str, str]:
    """Sentence below each name in the body of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    found: dict[str, str] = {}
    for named, below in itertools.pairwise(body):
        match named, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name))
                | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = on_one_line(text)
            case _:
                pass
    return found


def on_one_line(text: str) -> str:
    """Text without its line ends."""
    return " ".join(text.split())


def meanings(kind: type[Record]) -> dict[str, str]:
    """Meaning of each field: its sentence or row, else that of its type."""
    given = getattr(kind, "row_meanings", {}) | sentences(kind)
    return {
        field: given.get(field, type_meaning(shape))
        for field, shape in shapes_of(kind).items()
    }


def type_meaning(shape: Shape) -> str:
    """Meaning of a record or a closed set of words; empty for all else."""
    match shape:
        case OptionalShape(inner=inner):
            return type_meaning(inner)
        case ChoiceShape(choices=kind) | RecordShape(record=kind):
            return opening(kind)
        case _:
            return ""


def words(choices: type[StrEnum]) -> dict[str, str]:
    """Meaning of each word of a closed set."""
    meanings_by_name = sentences(choices)
    return {choice.value: meanings_by_name[choice.name] for choice in choices}
