"""Rules of a revision, and of which plan it may follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.revision import Move, difference
from tests.support.builders import a_plan, a_revision, a_stage


def test_the_plan_before_is_known_from_the_moves() -> None:
    """Undone from the last to the first."""
    assert a_revision().cuts_before() == (0, 2)
    assert difference(a_revision(), a_plan()) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"plan": a_plan()}, "plan.revision: got 1"),
        ({"paces": (1.0,)}, "one for each of 2 stages"),
        ({"paces": (1.0, 65.0)}, r"paces\[1\]: got 65.0"),
        ({"lacking_bytes": (1,)}, "one for each of 2 stages, or none"),
        ({"moves": (Move(layer=1, source=1, destination=0),)}, r"moves\[0\]: got 1"),
        ({"moves": (Move(layer=2, source=0, destination=1),)}, r"moves\[0\]: got 2"),
        ({"moves": (Move(layer=2, source=2, destination=1),)}, r"moves\[0\]: got 2"),
    ],
)
def test_a_revision_is_refused(fields: dict[str, Any], text: str) -> None:
    """Moves that do not lead to the plan, numbers out of bounds."""
    with pytest.raises(InvalidFieldError, match=text):
        a_revision(**fields)


def test_a_move_is_between_neighbours() -> None:
    """Others would need links that no pipeline has."""
    with pytest.raises(InvalidFieldError, match="a neighbour of stage 0"):
        Move(layer=0, source=0, destination=2)


HOST = OptimizerHome.HOST


def changed_stages(**fields: Any) -> Callable[[HybridPlan], HybridPlan]:
    """Change of a field on all stages."""
    return lambda plan: replace(
        plan, stages=tuple(replace(stage, **fields) for stage in plan.stages)
    )


OTHER_WORLDS: dict[str, Callable[[HybridPlan], HybridPlan]] = {
    "revision": lambda plan: replace(plan, revision=2),
    "micro_batch": lambda plan: replace(
        plan, micro_batch=2, num_micro_batches=2, global_batch_size=8
    ),
    "global_batch_size": lambda plan: replace(
        plan, num_micro_batches=8, global_batch_size=16
    ),
    "engine": lambda plan: replace(plan, engine="another"),
    "stages[0]": changed_stages(sharding=Sharding.OPTIMIZER),
    "stages[1]": lambda plan: replace(
        plan,
        stages=(
            plan.stages[0],
            replace(plan.stages[1], optimizer_home=OptimizerHome.HOST),
        ),
    ),
    "layers": lambda plan: replace(
        plan, stages=(plan.stages[0], a_stage(2, 3, (2, 3)))
    ),
}


def test_an_old_revision_is_not_replayed() -> None:
    """It follows a plan that runs no more."""
    refusal = difference(a_revision(), a_revision().plan)
    assert refusal == ("revision 2 follows another plan than revision 2, which runs")


@pytest.mark.parametrize("name", OTHER_WORLDS)
def test_a_revision_keeps_the_world(name: str) -> None:
    """Its groups and their memory would have to be built anew."""
    running = OTHER_WORLDS[name](a_plan())
    revision = replace(a_revision(), follows=digest_of(running))
    refusal = difference(revision, running)
    assert refusal is not None
    assert refusal.startswith(f"revision 2 has {name} ")
    assert refusal.endswith("a revision keeps the world")
