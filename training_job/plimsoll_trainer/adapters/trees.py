"""Arguments and results of modules: tuples, lists and dicts with tensors in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

LeafT = TypeVar("LeafT")


def map_leaves(tree: Any, kind: type[LeafT], change: Callable[[LeafT], Any]) -> Any:
    """Copy a tree with every leaf of a kind changed, in order; lists become tuples."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        return tuple(map_leaves(item, kind, change) for item in tree)
    if isinstance(tree, dict):
        return {key: map_leaves(item, kind, change) for key, item in tree.items()}
    return tree


def leaves_of(tree: Any, kind: type[LeafT]) -> list[LeafT]:
    """Leaves of a kind, in the order of `map_leaves`."""
    found: list[LeafT] = []
    map_leaves(tree, kind, found.append)
    return found


def tensors_of(tree: Any) -> list[Tensor]:
    """Tensors of a tree, in the order of `map_leaves`."""
    return leaves_of(tree, Tensor)


def beside(tree: Any, kind: type[object], other: Any) -> list[Any]:
    """What another tree of the same shape has where a tree has leaves of a kind."""
    if isinstance(tree, kind):
        return [other]
    if isinstance(tree, dict):
        pairs = [(item, other[key]) for key, item in tree.items()]
    elif isinstance(tree, (tuple, list)):
        pairs = list(zip(tree, other, strict=True))
    else:
        pairs = []
    return [leaf for one, two in pairs for leaf in beside(one, kind, two)]
