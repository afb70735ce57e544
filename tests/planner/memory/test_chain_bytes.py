"""Lines of a profile become arrays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes, with_outputs_held_once
from plimsoll_planner.records.model_profile import Variant
from tests.support.builders import a_profile, byte_columns, layer_costs
from tests.support.chains import Activation, Layer, chain_profile


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_arrays_are_the_lines_at_a_micro_batch(micro_batch: int) -> None:
    """Each entry is what the record itself answers for the layer's kind."""
    costs = layer_costs(
        boundary=byte_columns(3, constant_bytes=(1, 20, 300), residual_bytes=(0, 5, 0)),
        recomputable=(False, True, True),
    )
    profile = a_profile(costs=costs)
    for bound, field in (
        (Bound.LOWER, "lower_bytes"),
        (Bound.EXPECTED, "expected_bytes"),
        (Bound.UPPER, "upper_bytes"),
    ):
        chain = chain_bytes(profile, bound, micro_batch)
        expected = [
            getattr(costs.boundary.at(kind, micro_batch), field)
            for kind in profile.layers.kind
        ]
        assert chain.boundary.tolist() == expected
    chain = chain_bytes(profile, Bound.UPPER, micro_batch)
    assert chain.allowed.tolist() == [[True] * 4, [False, True, True, True]]
    assert chain.state.tolist() == [16 * 2**20] * 4


def test_rows_are_those_of_the_unsplit_variant() -> None:
    """A split variant's numbers never stand in for a whole layer's."""
    costs = layer_costs(6, kind=(0, 1, 2) * 2, variant=(1, 1, 1, 0, 0, 0))
    profile = a_profile(costs=costs, variants=(Variant(), Variant(tensor_degree=2)))
    assert chain_bytes(profile, Bound.UPPER, 1).row.tolist() == [3, 4, 4, 5]
    split = a_profile(variants=(Variant(tensor_degree=2),))
    with pytest.raises(CannotPlanError, match="no unsplit variant"):
        chain_bytes(split, Bound.UPPER, 1)


def test_an_output_that_is_counted_already_adds_nothing_to_the_lower_bytes() -> None:
    """For engines that keep the output of a stage: it may be somebody else's memory.

    The first layer makes its output and lets go of it: nothing changes. The second one
    keeps it, and the third one gives back its input: at the end of a stage backward
    has one boundary less.
    """
    layers = [
        Layer(boundary=4, kept=Activation(forward=4, backward=9)),
        Layer(boundary=4, kept=Activation(keeps_output=True, forward=5, backward=9)),
        Layer(boundary=4, kept=Activation(backward=3)),
    ]
    layers = [replace(one, again=one.kept) for one in layers]
    chain = chain_bytes(chain_profile(layers), Bound.LOWER, 1)
    least = with_outputs_held_once(chain)
    assert chain.own_output.tolist() == [True, True, True]
    assert least.own_output.tolist() == [True, True, False]
    assert (chain.past_output, least.past_output) == (True, False)
    assert least.backward_transient_at_end[0].tolist() == [9, 5, 0]
