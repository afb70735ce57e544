"""Gradients and parameters divided over replicas: bytes and messages by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import ChainBytes, chain_bytes
from plimsoll_planner.memory.layer_state import Tie
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.techniques.sharded_layers import LayersAtWork, ShardedLayers
from tests.support.builders import a_recipe
from tests.support.chains import Layer, chain_profile, of_adam

LONG, SHORT = of_adam(63 * 16), of_adam(48)
MOST = 8
FP32 = a_recipe(precision=Precision.FP32)


def a_chain(*layers: Layer, bound: Bound = Bound.EXPECTED) -> ChainBytes:
    """Bytes of layers in fp32, of one sample."""
    return chain_bytes(chain_profile(layers, recipe=FP32), bound, 1)


def sharded(
    chain: ChainBytes, level: Sharding, degree: int = 4, *, in_place: bool = True
) -> ChainBytes:
    """The same with a level of sharding."""
    work = LayersAtWork(level, most=MOST)
    return ShardedLayers(degree, in_place=in_place, work=work).bytes(chain)


def test_a_layer_by_hand() -> None:
    """D = 4: 1,008 numbers are padded to 1,024, of which a replica keeps 256.

    At work it has 1,008 parameters and as many gradients in addition, 4 bytes each.
    """
    whole = a_chain(LONG)
    forward, backward = whole.forward_transient, whole.backward_transient
    parameters = sharded(whole, Sharding.PARAMETERS)
    assert parameters.parameter.tolist() == parameters.gradient.tolist() == [4 * 256]
    assert parameters.optimizer.tolist() == [8 * 256 + 4]
    assert (parameters.forward_transient - forward == 4 * 1008).all()
    assert (parameters.backward_transient - backward == 8 * 1008).all()
    gradients = sharded(whole, Sharding.GRADIENTS)
    assert gradients.parameter.tolist() == [4 * 1024]
    assert gradients.gradient.tolist() == [4 * 256]
    assert (gradients.forward_transient == forward).all()
    assert (gradients.backward_transient - backward == 4 * 1008).all()


@pytest.mark.parametrize(
    ("level", "in_place", "halves"),
    [
        (Sharding.GRADIENTS, True, (0, 1, 1)),
        (Sharding.GRADIENTS, False, (0, 2, 1)),
        (Sharding.PARAMETERS, True, (1, 2, 0)),
        (Sharding.PARAMETERS, False, (1, 3, 0)),
    ],
)
def test_what_is_exchanged(
    level: Sharding, in_place: bool, halves: tuple[int, int, int]
) -> None:
    """In halves of an all-reduce: of forward, of backward, at the end of a step.

    In place each gathering and each reduction is one; gloo reduces by an all-reduce.
    """
    found = sharded(a_chain(LONG), level, in_place=in_place)
    exchanged = found.exchanged_forward, found.exchanged_backward, found.exchanged
    assert tuple(int(one[0]) for one in exchanged) == tuple(
        half * 4 * 1008 // 2 for half in halves
    )


def test_layers_that_share_a_parameter_or_are_short_stay_whole() -> None:
    """They have no more at work, and exchange nothing in a pass."""
    tie = Tie(
        members=np.array([0, 2]),
        parameter=4 * 1008,
        gradient=4 * 1008,
        buffer=0,
        optimizer=0,
        waiting_bytes=0,
        exchanged=4 * 1008,
        owned=1008,
    )
    whole = replace(a_chain(LONG, LONG, LONG, SHORT), ties=(tie,))
    found = sharded(whole, Sharding.PARAMETERS)
    more = (found.backward_transient - whole.backward_transient)[0]
    assert more.tolist() == [0, 8 * 1008, 0, 8 * 48]
    assert found.parameter.tolist() == [4 * 1024, 4 * 256, 4 * 1024, 4 * 48]
    assert (found.exchanged_forward > 0).tolist() == [False, True, False, False]


@pytest.mark.parametrize("level", [Sharding.GRADIENTS, Sharding.PARAMETERS])
@pytest.mark.parametrize("degree", [2, 3, 5, 8])
@pytest.mark.parametrize("layer", [LONG, SHORT])
def test_bounds_enclose_what_is_expected(
    layer: Layer, degree: int, level: Sharding
) -> None:
    """Lower bytes are no more than expected ones, and those no more than upper ones."""
    every = [sharded(a_chain(layer, bound=one), level, degree) for one in Bound]
    for column in ("state", "forward_transient", "backward_transient"):
        low, middle, high = (getattr(one, column) for one in every)
        assert (low <= middle).all(), column
        assert (middle <= high).all(), column
