"""The usual ways to cut a model, judged by the same model as ours."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_planner.engines import ENGINES, GRAPH, PLIMSOLL, engine_named
from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.baselines import balanced, compare, uniform_cuts
from tests.support.builders import an_offer
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.questions import a_question


def test_uniform_cuts_round_half_to_even() -> None:
    """26 layers on 8 stages, as the published rule has it."""
    assert uniform_cuts(26, 8) == (0, 3, 6, 10, 13, 16, 20, 23)
    assert uniform_cuts(26, 4) == (0, 6, 13, 20)


@pytest.mark.parametrize("size", range(1, 30))
def test_uniform_cuts_rise(size: int) -> None:
    """No stage is empty, however few layers there are."""
    for stages in range(1, size + 1):
        cuts = uniform_cuts(size, stages)
        assert list(cuts) == sorted(set(cuts))
        assert cuts[-1] < size


def test_balanced_cuts_make_the_largest_sum_least() -> None:
    """9 1 1 1 8 in two parts of 10; in three the first cuts with 9 at most."""
    assert balanced([9.0, 1.0, 1.0, 1.0, 8.0])(2) == (0, 2)
    assert balanced([9.0, 1.0, 1.0, 1.0, 8.0])(3) == (0, 1, 3)


def test_ours_is_never_behind() -> None:
    """A heavy head: uniform cuts do not fit where the exact ones do."""
    block = Layer(
        parameters=40,
        boundary=4,
        kept=Activation(saved=60, keeps_input=True, forward=66, backward=80),
        again=Activation(keeps_input=True, forward=36, backward=84),
    )
    head = Layer(
        parameters=300,
        kept=Activation(saved=90, keeps_input=True, forward=120, backward=150),
        again=Activation(keeps_input=True, forward=120, backward=170),
    )
    problem = Problem(
        profile=chain_profile([*[block] * 7, head], device_kind=DeviceKind.EMULATED),
        offers=(an_offer(device_kind=DeviceKind.EMULATED, device_memory_bytes=470),),
        engine=PLIMSOLL,
        global_batch_size=8,
        limits=Limits(max_gpus=4),
        objective=Objective(rate_floor=0.1),
    )
    rows = {row.rule: row for row in compare(problem, 2).rows}
    assert rows["ours"].fits
    assert not rows["uniform"].fits
    assert rows["uniform"].peak_bytes > 470
    assert rows["uniform"].found is not None
    assert rows["uniform"].found.cuts == (0, 4)
    needed = [row.gpus_needed or 99 for row in rows.values()]
    assert rows["ours"].gpus_needed == min(needed)


def test_engines_are_found_by_name() -> None:
    """A typing error is answered with the nearest name."""
    assert engine_named("plimsoll", "2.15.0+cu132") == PLIMSOLL
    assert engine_named("graph", "2.15.0") == GRAPH
    assert set(ENGINES) == {"plimsoll", "graph"}
    with pytest.raises(CannotPlanError, match=r"no engine plimsol; did you mean"):
        engine_named("plimsol", "2.15.0")
    with pytest.raises(CannotPlanError, match=r"no engine x; known: plimsoll, graph"):
        engine_named("x", "2.15.0")


def test_all_rules_may_take_as_long_for_a_step() -> None:
    """So a rule that is faster uses its lead for memory, and none is slower."""
    found = compare(a_question(2000, limits=Limits(max_gpus=4)), 4)
    assert found.step_s is not None
    assert all(row.found and row.found.step_s <= found.step_s for row in found.rows)
    peaks = {row.rule: row.peak_bytes for row in found.rows}
    assert peaks["ours"] == min(peaks.values())
    fixed = Override(num_stages=4, data_degree=1, recomputed_layers=())
    for row in compare(a_question(2000, override=fixed), 4).rows:
        assert row.found is not None
        assert row.found.candidate.num_stages == 4
        assert not any(row.found.recomputed)


def test_a_row_says_what_binds() -> None:
    """The rate, the memory, the space or the work limit: "no" alone names none."""

    def why(memory: int, count: int = 4, **fields: Any) -> tuple[bool | None, str]:
        limits = Limits(max_gpus=count, max_tuples=fields.pop("max_tuples", None))
        question = a_question(memory, limits=limits, **fields)
        row = compare(question, count).rows[-1]
        assert row.is_slow == row.why.startswith("fits, at most ")
        return row.fits, row.why

    assert why(2000) == (True, "")
    fits, text = why(2000, objective=Objective(min_samples_per_s=1e6))
    assert not fits
    assert text.endswith(" samples/s where 1,000,000 are needed")
    assert why(10) == (False, "no plan fits, at any speed")
    assert why(2000, max_tuples=1) == (
        None,
        "the search was cut off by `limits.max_tuples`",
    )
    fits, text = why(2000, 11)
    assert not fits
    assert "does not divide the batch" in text
