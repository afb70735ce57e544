"""Chains whose layers give values to layers further behind, written down or random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from plimsoll_planner.records.carried import AN_INPUT, CarriedColumns
from plimsoll_planner.records.model_profile import ModelProfile
from tests.support.chains import lines, random_profiles
from tests.support.random_questions import Asked


@dataclass(frozen=True, kw_only=True)
class Value:
    """One carried value."""

    giver: int = 0
    takers: tuple[int, ...] = (2,)
    num_bytes: int = 1
    """Of one sample."""
    has_gradient: bool = True


def carried_columns(
    values: Sequence[Value], relative_error: float = 0.0
) -> CarriedColumns:
    """Build the columns of some values."""
    return CarriedColumns(
        name=tuple(f"value.{place}" for place in range(len(values))),
        source=tuple(value.giver for value in values),
        takers=tuple(value.takers for value in values),
        needs_gradient=tuple(value.has_gradient for value in values),
        value=lines([value.num_bytes for value in values], relative_error),
    )


@st.composite
def random_values(draw: st.DrawFn, size: int, untrained: int) -> tuple[Value, ...]:
    """Draw values of a chain of so many layers, inputs of the model among them."""
    found: list[Value] = []
    for _ in range(draw(st.integers(1, 4)) if size > 1 else 0):
        giver = draw(st.integers(AN_INPUT, size - 2))
        behind = st.integers(giver + 1, size - 1)
        takers = draw(st.sets(behind, min_size=1, max_size=3))
        may_have = giver >= untrained and giver != AN_INPUT
        value = Value(
            giver=giver,
            takers=tuple(sorted(takers)),
            num_bytes=draw(st.integers(0, 5)),
            has_gradient=may_have and draw(st.integers(0, 3)) > 0,
        )
        found.append(value)
    return tuple(found)


@st.composite
def carrying_profiles(draw: st.DrawFn, longest: int = 7) -> ModelProfile:
    """Draw a chain with inputs, targets, ties and carried values."""
    profile = draw(random_profiles(longest))
    size = len(profile.layers.name)
    values = draw(random_values(size, profile.num_untrained))
    error = draw(st.sampled_from([0.0, 0.25]))
    return replace(profile, carried=carried_columns(values, error))


def carrying(question: Asked, dice: random.Random) -> Asked:
    """The same question with layers that carry up to three values past others."""
    size, values = len(question.layers), list[Value]()
    for _ in range(dice.randint(1, 3)):
        giver = dice.randint(AN_INPUT, size - 2)
        behind = range(giver + 1, size)
        takers = dice.sample(behind, dice.randint(1, min(2, len(behind))))
        value = Value(
            giver=giver,
            takers=tuple(sorted(takers)),
            num_bytes=dice.randint(1, 5) * max(question.layers[0].numbers // 16, 1),
            has_gradient=giver != AN_INPUT and dice.random() < 0.8,
        )
        values.append(value)
    return replace(question, carried=carried_columns(values, question.byte_error))
