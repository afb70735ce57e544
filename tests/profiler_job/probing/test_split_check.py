"""A split that is not its layer is found, on real ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.model_profile import Variant
from plimsoll_profiler.probing import split_check
from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.probing.split_check import DRAWN, PARTIAL, PARTIAL_SEQUENCE
from plimsoll_profiler.probing.tensor_groups import SplitVariants
from plimsoll_trainer.workload import Workload
from tests.support.bad_splits import (
    always_dropping,
    biased,
    dropping,
    forgetful,
    forgetful_of_norms,
)
from tests.support.ranks import run_on_device
from tests.support.split_workloads import a_split_gpt


def split_of(made: Callable[[], Workload], degrees: tuple[int, ...]) -> SplitVariants:
    """Variants that a workload is probed in."""
    return Prober(made(), [1], degrees).split


def plain(*degrees: int) -> tuple[Variant, ...]:
    """Tensor groups with whole sequences."""
    return tuple(Variant(tensor_degree=degree) for degree in degrees)


BOTH = Variant(tensor_degree=2, sequence_parallel=True)


def dropping_whole() -> Workload:
    """A GPT that drops out where all ranks have all numbers."""
    return a_split_gpt(depth=1, dropout=0.2)


@pytest.mark.parametrize(
    ("made", "what", "advice"),
    [
        (forgetful, "output", PARTIAL),
        (biased, "output", PARTIAL),
        (dropping, "", DRAWN),
        (always_dropping, "", DRAWN),
    ],
)
def test_a_split_that_changes_the_result_is_refused(
    made: Callable[[], Workload], what: str, advice: str
) -> None:
    """A sum that is missing, a bias of each rank, dropout of parts: under all T."""
    split = run_on_device(split_of, made, (1, 2, 4))
    assert split.possible == plain(1)
    assert {one.tensor_degree for one in split.left_out} == {2, 4}
    for one in split.left_out:
        assert one.why.startswith(f"layer 'block.0' on 2 ranks gives another {what}")
        assert one.why.endswith(advice)


def test_a_split_of_sequences_that_changes_the_result_is_refused() -> None:
    """A norm's gradient that nobody adds up: sequences stay whole, layers are split."""
    split = run_on_device(split_of, forgetful_of_norms, (1, 2, 4))
    assert split.possible == plain(1, 2, 4)
    assert [one.sequence_parallel for one in split.left_out] == [True, True]
    why = "layer 'block.0' on 2 ranks gives another gradient of norm_1"
    assert all(one.why.startswith(why) for one in split.left_out)
    assert all(one.why.endswith(PARTIAL_SEQUENCE) for one in split.left_out)


def test_dropout_is_drawn_alike() -> None:
    """Of the residuals: every rank has all of them, or its part of the sequence."""
    split = run_on_device(split_of, dropping_whole, (1, 2))
    assert split.possible == (*plain(1, 2), BOTH)
    assert (split.left_out, split.not_compared) == ((), ())


def test_what_is_too_large_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding does no arithmetic: it is compared all the same."""
    monkeypatch.setattr(split_check, "MOST_FLOP", 1.0)
    split = split_of(forgetful, (1, 2))
    assert split.possible[:2] == plain(1, 2)
    assert split.not_compared[-2:] == (1, 2)


def test_a_process_that_has_run_backward_compares_nothing() -> None:
    """Torch forbids it in forks of one; the profile says so of all layers."""
    torch.autograd.backward(torch.ones(1, requires_grad=True).sum())
    split = split_of(forgetful, (1, 2))
    assert split.possible[:2] == plain(1, 2)
    assert split.not_compared == (0, 1, 2)
