"""Operators of captured graphs: what they write, share memory with and draw."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

__all__ = ["InputKind", "ShapeEnv", "free_unbacked_symbols"]

aten = torch.ops.aten
NUMBER = aten._local_scalar_dense.default
"""What `item()` is."""
GRADIENT_SWITCH = torch.ops.higher_order.wrap_with_set_grad_enabled
AUTOCAST = torch.ops.higher_order.wrap_with_autocast
BATCH_NORMS = (aten.batch_norm.default, aten.instance_norm.default)
"""They write running statistics, which their schema does not say."""
STATISTICS = ("running_mean", "running_var")


@cache
def names_of(operator: Any) -> tuple[str, ...]:
    """Names of an operator's arguments in order; none of one without a schema."""
    schema = getattr(operator, "_schema", None)
    return tuple(one.name for one in schema.arguments) if schema else ()


def arguments_of(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, as far as they are given."""
    return dict(zip(names_of(operator), args, strict=False)) | dict(kwargs)


@cache
def written_by(operator: Any) -> frozenset[str]:
    """Names of the arguments that an operator writes to, running statistics aside."""
    return frozenset(
        one.name for one in schema_arguments(operator) if is_written(one.alias_info)
    )


@cache
def shared_by(operator: Any) -> frozenset[str]:
    """Names of the arguments whose memory an operator's result may share."""
    return frozenset(
        one.name for one in schema_arguments(operator) if one.alias_info is not None
    )


def given_back(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The one argument that an operator writes to and gives back; None: no such."""
    if len(names := written_by(operator)) != 1:
        return None
    returns = operator._schema.returns
    is_same = len(returns) == 1 and is_written(returns[0].alias_info)
    return arguments_of(operator, args, kwargs).get(*names) if is_same else None


def schema_arguments(operator: Any) -> Sequence[Any]:
    """Arguments as the schema has them."""
    schema = getattr(operator, "_schema", None)
    return schema.arguments if schema else ()


def is_written(alias: Any) -> bool:
    """Whether an argument's memory is changed."""
    return alias is not None and bool(alias.is_write)


def draws(operator: Any) -> bool:
    """Whether a result depends on random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


Seen = list[tuple[int, traceback.StackSummary]]
"""Constants that a symbol was found to be, and the code that asked."""


@contextmanager
def seen_specialisations() -> Iterator[Seen]:
    """Within it, what makes a constant of a symbol is noted."""
    seen: Seen = []
    original = ShapeEnv._set_replacement

    def noted(self: ShapeEnv, a: Any, tgt: Any, msg: str) -> None:
        if getattr(tgt, "is_Integer", False):
            seen.append((int(tgt), traceback.extract_stack()))
        original(self, a, tgt, msg)

    with mock.patch.object(ShapeEnv, "_set_replacement", noted):
        yield seen


@contextmanager
def no_backward(instead: Callable[..., Any]) -> Iterator[None]:
    """Within it, something else is called in the place of every backward pass."""
    with mock.patch("torch.autograd._engine_run_backward", instead):
        yield
