"""Runs of ranks under a cap, and how they ended.

In: work, and a cap for each rank. Out: `Run`. Called where a plan is shown to fit, or
not to, by running it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from benchmarks.frame import CannotRunError
from tests.support import ranks

FULL_TEXT = "can't allocate memory"
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How the ranks of one plan ended."""

    is_done: bool
    is_full: bool
    """Some rank died of memory."""
    message: str = ""
    """Other cause of a rank's death."""


def run_capped(
    work: Callable[P, T], caps_bytes: Sequence[int], *args: P.args, **kwargs: P.kwargs
) -> Run:
    """Run `work` on one rank for each cap."""
    ended = ranks.try_ranks(work, caps_bytes, *args, **kwargs)
    died = [end.text for end in ended if isinstance(end, ranks.Died)]
    is_full = any(FULL_TEXT in text for text in died)
    return Run(
        is_done=not died, is_full=is_full, message="" if is_full else " ".join(died)
    )


def require_no_other_death(runs: Sequence[Run]) -> None:
    """A run that ends of something else than memory proves nothing.

    Raises:
        CannotRunError: one did.
    """
    message = next((run.message for run in runs if run.message), "")
    if message:
        raise CannotRunError(f"a rank died, and not of memory: {message}")
