"""Names of carried values: each has one giver in front of its takers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from plimsoll_trainer.carried import CarriedValue, carried_values, carrying_layer
from plimsoll_trainer.errors import WorkloadError


@dataclass(frozen=True, kw_only=True)
class Named:
    """A layer as far as names go."""

    name: str
    takes: tuple[str, ...] | None = None
    gives: tuple[str, ...] = ()


def test_values_come_in_the_order_in_which_they_are_given() -> None:
    """Inputs of the model first, each with all of its takers."""
    layers = (
        Named(name="one", gives=("b", "a")),
        Named(name="two", takes=("mask", "a"), gives=("c",)),
        Named(name="three", takes=("c", "a", "b")),
    )
    assert carried_values(layers, ("mask",)) == (
        CarriedValue(name="mask", source=-1, takers=(1,)),
        CarriedValue(name="b", source=0, takers=(2,)),
        CarriedValue(name="a", source=0, takers=(1, 2)),
        CarriedValue(name="c", source=1, takers=(2,)),
    )


def test_a_value_crosses_every_cut_between_its_giver_and_its_last_taker() -> None:
    """In front of its giver there is none, behind its last taker none is needed."""
    value = CarriedValue(name="a", source=1, takers=(2, 4))
    assert [layer for layer in range(7) if value.enters(layer)] == [2, 3, 4]


REFUSED = [
    (
        (Named(name="one", gives=("a",)), Named(name="two", gives=("a",))),
        (),
        "layer 'two' gives 'a', as layer 'one' does: give each value a name of its own",
    ),
    (
        (Named(name="one", gives=("a",)), Named(name="two", takes=("a",))),
        ("a",),
        "layer 'one' gives 'a', as the batch does",
    ),
    ((Named(name="one", gives=("a",)),), (), "'one' gives 'a', which no layer takes"),
    ((Named(name="one"),), ("a",), "the batch gives 'a', which no layer takes"),
    (
        (Named(name="one", gives=("b",)), Named(name="two", takes=("a",))),
        (),
        "'two' takes 'a', which nothing gives: .*; known are b",
    ),
    (
        (Named(name="one", takes=("a",)), Named(name="two", gives=("a",))),
        (),
        "'one' takes 'a', which layer 'two' gives and does not run before it",
    ),
    (
        (Named(name="one", takes=("a",), gives=("a",)),),
        (),
        "'one' takes 'a', which layer 'one' gives and does not run before it",
    ),
    ((Named(name="one", takes=("a", "a")),), ("a",), "'one' takes 'a' twice"),
]


@pytest.mark.parametrize(("layers", "inputs", "why"), REFUSED)
def test_other_names_are_refused(
    layers: tuple[Named, ...], inputs: tuple[str, ...], why: str
) -> None:
    """With the layers and the value."""
    with pytest.raises(WorkloadError, match=why):
        carried_values(layers, inputs)


def test_a_plain_chain_carries_nothing() -> None:
    """What cannot be done for carried values asks this."""
    plain, taking = Named(name="one"), Named(name="two", takes=("a",))
    assert carrying_layer((plain, plain)) == ""
    assert (
        carrying_layer((plain, taking)) == "layer 'two' takes 'a' besides what passes"
    )
