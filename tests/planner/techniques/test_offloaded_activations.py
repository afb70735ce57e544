"""Where offloading is offered, and why it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.techniques.offloaded_activations import TECHNIQUE
from tests.support.builders import a_recipe, an_offer
from tests.support.chains import Activation, Layer, chain_profile

LAYER = Layer(
    boundary=10,
    kept=Activation(saved=40, keeps_input=True, forward=50, backward=60),
    again=Activation(keeps_input=True, forward=50, backward=60),
    away=Activation(forward=50, backward=60, on_host=50),
    again_away=Activation(forward=50, backward=60, on_host=10),
)
HOST = an_offer(
    device_kind=DeviceKind.EMULATED,
    device_product="H200",
    device_memory_bytes=90,
    host_memory_bytes=2**40,
    link_to_host=Link(bandwidth_bytes_per_s=1000.0),
)


def a_question(layer: Layer = LAYER, **fields: Any) -> Problem:
    """Six layers, whose inputs alone fill a device."""
    parts: dict[str, Any] = {
        "profile": chain_profile(
            [layer] * 6,
            device_kind=DeviceKind.EMULATED,
            recipe=a_recipe(precision=Precision.FP32),
        ),
        "offers": (HOST,),
        "engine": PLIMSOLL,
        "global_batch_size": 1,
        "limits": Limits(max_gpus=1),
        "objective": Objective(rate_floor=0.0),
    }
    return Problem(**(parts | fields))


def test_what_fits_in_no_other_way_is_offloaded() -> None:
    """The plan states the layers, and their bytes in the memory of the machine."""
    found = solve(a_question())
    assert isinstance(found, Solution)
    [stage] = found.plan.stages
    assert stage.offloaded_layers
    assert stage.recomputed_layers in ((), stage.offloaded_layers)
    assert stage.host_bytes == stage.offloaded_bytes > 0
    without = solve(a_question(limits=Limits(max_gpus=1, offload=False)))
    assert isinstance(without, Infeasible)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"limits": Limits(max_gpus=1, offload=False)}, "limits leave it out"),
        ({"override": Override(offloaded_layers=())}, "is empty"),
        (
            {"engine": replace(PLIMSOLL, can=replace(PLIMSOLL.can, offload=False))},
            "plimsoll cannot run it",
        ),
        ({"offers": (replace(HOST, link_to_host=None),)}, "no offer states"),
        ({"layer": replace(LAYER, away=None, again_away=None)}, "profile the model"),
    ],
)
def test_why_it_is_not_offered(fields: dict[str, Any], reason: str) -> None:
    """The certificate gives the reason."""
    assert reason in TECHNIQUE.unavailable(a_question(**fields))


def test_layers_that_are_to_be_offloaded_need_a_host() -> None:
    """A part that is fixed and cannot be had is an error, with its reason."""
    fixed = Override(offloaded_layers=(1, 2))
    problem = a_question(override=fixed, offers=(replace(HOST, link_to_host=None),))
    with pytest.raises(CannotPlanError, match="to be offloaded, but no offer states"):
        solve(problem)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_stages": 1, "recomputed_layers": (0,), "offloaded_layers": (1,)},
        {"cuts": (0, 3), "recomputed_layers": (1, 2), "offloaded_layers": (2, 3)},
    ],
)
def test_a_stage_has_one_way_besides_keeping(fields: dict[str, Any]) -> None:
    """Some layers recomputed and others offloaded are refused by name."""
    with pytest.raises(InvalidFieldError, match=r"offloaded_layers.*all layers that"):
        Override(**fields)
    Override(cuts=(0, 3), recomputed_layers=(1, 2), offloaded_layers=(4,))
