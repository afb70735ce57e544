"""The families of the benches of claims: their sizes, and profiles of any depth."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from dataclasses import replace

from benchmarks.support.families import LARGE, SMALL, in_turn, num_parameters, workload
from benchmarks.support.family_profiles import profile_of, traced
from plimsoll_trainer.engine.boundaries import boundaries_of

PUBLISHED = {
    # 32 blocks of 12 * 4096 ** 2, and two tables, of which GPT-3 has one.
    "GPT 6.7B": 6.65e9 + 50257 * 4096,
    # Of 1000 classes; here there are 100.
    "ResNet-101": 44.55e6 - 900 * 2048,
    "Swin-B": 87.77e6 - 900 * 1024,
}
MOST_ERROR = 0.01
"""Biases, norms and relative positions differ."""


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_published_size_has_its_parameters(family: str) -> None:
    """Within a hundredth."""
    found = num_parameters(family, LARGE[family].depth)
    assert found == pytest.approx(PUBLISHED[family], rel=MOST_ERROR)


@pytest.mark.parametrize("family", SMALL)
def test_the_smallest_model_chains_and_has_every_kind(family: str) -> None:
    """So its trace knows all layers of deeper ones."""
    least = workload(family=family, depth=SMALL[family].least_depth)
    deep = workload(family=family, depth=SMALL[family].depth)
    assert {layer.kind for layer in least.layers} == {
        layer.kind for layer in deep.layers
    }
    assert len(boundaries_of(deep, micro_batch=1).between) == len(deep.layers) + 1


@pytest.mark.parametrize("family", SMALL)
def test_a_deeper_model_has_one_block_more(family: str) -> None:
    """And more parameters."""
    depth = SMALL[family].depth
    one, next_one = (workload(family=family, depth=d) for d in (depth, depth + 1))
    assert len(next_one.layers) == len(one.layers) + 1
    assert num_parameters(family, depth + 1) > num_parameters(family, depth)


def test_blocks_are_added_to_stages_in_turn() -> None:
    """The front first."""
    assert [in_turn(depth, 3) for depth in (3, 4, 5, 6)] == [
        [1, 1, 1],
        [2, 1, 1],
        [2, 2, 1],
        [2, 2, 2],
    ]


@pytest.mark.slow  # two traces in processes with torch
def test_a_profile_of_any_depth_is_that_of_the_profiler() -> None:
    """Column by column; only what identifies the model differs."""
    grown, whole = profile_of("GPT", 3), traced("GPT", 3)
    assert whole == replace(
        grown, request_key=whole.request_key, fingerprint=whole.fingerprint
    )
