"""A few pieces of a loss in pieces count as much as all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.counting.work_counter import count_work
from plimsoll_profiler.probing.few_pieces import standing_for
from plimsoll_profiler.probing.layer_probe import LayerCase, MicroBatch
from plimsoll_profiler.probing.pass_costs import work_of
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.gradients import attach_gradients
from plimsoll_trainer.engine.token_pieces import all_places
from plimsoll_trainer.workload import TokenLoss
from tests.support.workloads import SEQUENCE, a_gpt, sum_of_tokens

pieces = pytest.mark.parametrize(
    ("samples", "tokens"),
    [(1, SEQUENCE), (1, 5), (3, SEQUENCE), (3, SEQUENCE // 2), (3, 5), (4, 1)],
)


@pieces
def test_each_piece_is_stood_for_once(samples: int, tokens: int) -> None:
    """Those that are run are different ones, in order, and together stand for all."""
    firsts = range(0, SEQUENCE, tokens)
    places, times = zip(*standing_for(samples, firsts), strict=True)
    assert sum(times) == samples * len(firsts)
    assert list(places) == sorted(set(places))
    assert set(places) <= set(all_places(samples, firsts))


@pieces
def test_work_of_a_few_is_that_of_all(samples: int, tokens: int) -> None:
    """Operations, bytes moved and names of both passes; bytes: `test_layer_probe`."""
    workload = a_gpt(depth=1, tied=False, loss=TokenLoss(sum_of_tokens, tokens))
    shapes = boundaries_of(workload, samples)
    case = LayerCase(
        incoming=shapes.between[2],
        is_untrained=False,
        targets=shapes.targets,
        loss=workload.loss,
        recomputed=True,
    )
    with open_bench(DeviceKind.CUDA, Source.TRACED) as bench:
        layer = build_layer(workload, 2, bench.device)
        attach_gradients(layer.parameters(), workload.gradient_dtype)
        run = MicroBatch(layer, case, bench.device)
        forward = count_work(run.forward)
        run.release_output()
        assert work_of(layer, case, bench) == (forward, count_work(run.backward))
