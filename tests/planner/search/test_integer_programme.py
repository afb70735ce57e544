"""The same questions as integer programmes, answered by HiGHS."""

from __future__ import annotations

import itertools
from typing import Any

import highspy
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import ChainBytes, chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.memory.stage_peaks import (
    least_peaks,
    least_seconds,
    room_of,
    stage_bytes,
)
from plimsoll_planner.search.partition import least_suffix_peaks
from tests.support.chains import (
    SMALL,
    Activation,
    Layer,
    chain_profile,
    full_flow,
    random_profiles,
)
from tests.support.drawing import draws

HELD = holding_factors(PLIMSOLL.holds)


def quiet() -> Any:
    """Solver that prints nothing."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    return solver


def least_largest_by_flow(peaks: list[list[list[int]]], size: int) -> int:
    """Least largest peak of a path of stages from layer 0 to the end.

    y[s, A, B] = 1 where stage s is [A, B); what enters a layer at stage s leaves it at
    stage s + 1; z is at least the peak of every stage taken.
    """
    solver = quiet()
    stages = len(peaks)
    z = solver.addVariable(lb=0)
    runs = list(itertools.combinations(range(size + 1), 2))
    taken = {(s, *run): solver.addBinary() for s in range(stages) for run in runs}
    for s in range(stages):
        mine = [taken[s, *run] for run in runs]
        solver.addConstr(sum(mine) == 1)
        cost = sum(int(peaks[s][a][b]) * taken[s, a, b] for a, b in runs)
        solver.addConstr(z >= cost)
    solver.addConstr(sum(taken[0, 0, b] for b in range(1, size + 1)) == 1)
    solver.addConstr(sum(taken[stages - 1, a, size] for a in range(size)) == 1)
    for s, layer in itertools.product(range(stages - 1), range(1, size)):
        entering = sum(taken[s, a, layer] for a in range(layer))
        leaving = sum(taken[s + 1, layer, b] for b in range(layer + 1, size + 1))
        solver.addConstr(entering == leaving)
    solver.minimize(z)
    return round(float(solver.getInfo().objective_function_value))


@settings(max_examples=draws(60))
@given(random_profiles(6), st.integers(1, 4), st.integers(0, 4))
def test_the_least_peak_is_the_optimum_of_a_flow(
    profile: object, num_stages: int, more: int
) -> None:
    """Least largest peak over all cuts, as a path of binary variables."""
    chain = chain_bytes(profile, Bound.UPPER, 1)  # type: ignore[arg-type]
    num_stages = min(num_stages, chain.num_layers)
    count = num_stages + more
    options, stages = build_options(chain, HELD, None), stage_bytes(chain, HELD)

    def peaks(left: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        flow = Flow(
            in_flight=min(left, count),
            num_micro_batches=count,
            micro_batch=1,
            data_degree=1,
        )
        return least_peaks(stages, options, flow)

    in_order = [peaks(num_stages - s).tolist() for s in range(num_stages)]
    found = least_suffix_peaks(peaks, num_stages)[num_stages][0]
    assert found == least_largest_by_flow(in_order, chain.num_layers)


@st.composite
def settled_layers(draw: st.DrawFn) -> list[Layer]:
    """Draw layers that keep their inputs, so that what stays is linear in choices."""
    return [
        Layer(
            boundary=draw(SMALL),
            kept=Activation(
                saved=draw(SMALL),
                keeps_input=True,
                forward=draw(SMALL),
                backward=draw(SMALL),
            ),
            again=Activation(
                saved=draw(SMALL),
                keeps_input=True,
                forward=draw(SMALL),
                backward=draw(SMALL),
            ),
            recompute_s=float(draw(SMALL)),
        )
        for _ in range(draw(st.integers(1, 8)))
    ]


def least_seconds_by_choice(
    chain: ChainBytes, flow: Flow, capacity: int, added: list[float]
) -> float | None:
    """Least added seconds of the whole chain as one stage, None where none fits.

    r_l = 1 where layer l recomputes; every term of the peak is at most the capacity.
    """
    solver = quiet()
    size = chain.num_layers
    again = [solver.addBinary() for _ in range(size)]

    def either(
        array: np.ndarray[tuple[int, ...], np.dtype[np.int64]], layer: int
    ) -> Any:
        kept, other = int(array[0, layer]), int(array[1, layer])
        return kept + (other - kept) * again[layer]

    u = [int(value) for value in chain.boundary]
    saved = [either(chain.saved, layer) for layer in range(size)]
    whole = sum(saved) + sum(u[:-1])
    for layer in range(size):
        live = sum(saved[:layer]) + sum(u[:layer])
        for transient in (chain.forward_transient, chain.backward_transient):
            term = (flow.in_flight - 1) * whole + live + either(transient, layer)
            # A constant alone is no constraint; adding 0 r makes it one.
            solver.addConstr(term + 0 * again[layer] <= capacity)
    solver.minimize(sum(s * r for s, r in zip(added, again, strict=True)))
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return float(solver.getInfo().objective_function_value)


@settings(max_examples=draws(60))
@given(settled_layers(), st.integers(1, 3), st.integers(0, 80))
def test_least_recomputing_is_the_optimum_over_choices(
    layers: list[Layer], in_flight: int, capacity: int
) -> None:
    """Least added seconds of a stage under a capacity, layers as binary variables."""
    chain = chain_bytes(chain_profile(layers), Bound.UPPER, 1)
    added = np.array([layer.recompute_s for layer in layers])
    flow = full_flow(in_flight)
    options = build_options(chain, HELD, added)
    room = room_of(stage_bytes(chain, HELD), flow, capacity)
    found = least_seconds(options, in_flight, room)
    best = least_seconds_by_choice(chain, flow, capacity, list(added))
    mine = float(found[0, len(layers)])
    if best is None:
        assert mine == np.inf
    else:
        assert round(best, 6) == mine
