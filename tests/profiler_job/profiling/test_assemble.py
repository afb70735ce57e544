"""From probes to lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_planner.records.layer_costs import ByteColumns, SecondsColumns, Source
from plimsoll_planner.records.model_profile import ProbeOutcome
from plimsoll_profiler.profiling.kinds import quickest
from plimsoll_profiler.profiling.line_fit import bytes_line, fit_samples, seconds_line
from tests.support.probes import STATE, a_result


def columns(micro_batches: tuple[int, ...], values: tuple[int, ...]) -> ByteColumns:
    """Build columns of one row from probes."""
    line = fit_samples(micro_batches, values, bytes_line)
    return ByteColumns(
        constant_bytes=(line.constant,),
        slope_bytes_per_sample=(line.slope,),
        residual_bytes=(line.residual,),
        relative_error=(0.0,),
        source=(Source.TRACED,),
        probed_bytes=(line.probed,),
    )


def test_probed_micro_batches_are_exact_and_others_on_the_last_line() -> None:
    """max(100 b, 40 b + 120) with 7 more at one sample: exact at 1 to 4, 100 b behind.

    At 3 samples the line through 4 and 8 gives 300, which was probed: no residual.
    """
    values = {b: max(100 * b, 40 * b + 120) + 7 * (b == 1) for b in (1, 2, 3, 4, 8)}
    found = columns(tuple(values), tuple(values.values()))
    for b, value in values.items():
        assert found.at(0, b).expected_bytes == value
    assert found.at(0, 64).expected_bytes == 6400
    assert found.at(0, 64).upper_bytes == 6400


def test_a_late_bend_shows_as_a_residual() -> None:
    """max(100 b, 10 b + 540): the line 100 b through 6 and 8 misses 570 at 3 by 270."""
    found = columns((1, 2, 3, 6, 8), (550, 560, 570, 600, 800))
    assert found.at(0, 16).expected_bytes == 1600
    assert found.at(0, 16).upper_bytes == 1600 + 270
    assert found.at(0, 16).lower_bytes == 1600 - 270
    assert found.at(0, 3).upper_bytes == 570


def test_one_probe_alone_grows_with_the_samples() -> None:
    """From 90 bytes at one sample: at most 90 for each."""
    found = columns((1,), (90,))
    assert (found.at(0, 1).expected_bytes, found.at(0, 5).expected_bytes) == (90, 450)


def test_seconds_are_exact_where_they_were_probed() -> None:
    """One sample costs nearly as much as two; behind the probes a line goes on."""
    line = fit_samples((1, 2, 4, 8), (1.0, 1.5, 3.0, 5.0), seconds_line)
    found = SecondsColumns(
        constant_s=(line.constant,),
        slope_s_per_sample=(line.slope,),
        residual_s=(line.residual,),
        relative_error=(0.1,),
        source=(Source.MEASURED,),
        probed_s=(line.probed,),
    )
    assert [found.at(0, b).expected_s for b in (1, 2)] == [1.0, 1.5]
    assert found.at(0, 1).upper_s == pytest.approx(1.1)
    assert found.at(0, 16).expected_s == pytest.approx(9.0)
    assert found.at(0, 16).upper_s == pytest.approx(1.1 * (9.0 + 0.5))


def test_the_least_seconds_of_all_rounds_count() -> None:
    """A neighbour on the machine adds to one round, never takes away."""
    lost = a_result(
        0, 0, micro_batch=2, outcome=ProbeOutcome.OUT_OF_MEMORY, state=None, kept=None
    )
    slow = a_result(2.0, 3.0, state=replace(STATE, optimizer_step_s=0.5))
    found = quickest([a_result(1.0, 5.0), lost, slow])
    assert [(r.micro_batch, r.outcome) for r in found] == [
        (1, ProbeOutcome.COMPLETED),
        (2, ProbeOutcome.OUT_OF_MEMORY),
    ]
    assert found[0].kept is not None
    assert (found[0].kept.forward_s, found[0].kept.backward_s) == (1.0, 3.0)
    assert found[0].state is not None
    assert found[0].state.optimizer_step_s == 0.5
