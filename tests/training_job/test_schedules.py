"""Learning rates by step are those of transformers, and have a floor besides."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.schedules import schedule_named

NUM_STEPS = 40
NAMES = {
    "constant": "constant_with_warmup",
    "linear": "linear",
    "cosine": "cosine",
}
"""Ours, and theirs."""


def theirs(name: str, warmup_steps: int) -> list[float]:
    """Factors of all steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = transformers.get_scheduler(
        NAMES[name], optimizer, warmup_steps, NUM_STEPS
    )
    found = []
    for _ in range(NUM_STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("warmup_steps", [0, 7])
@pytest.mark.parametrize("name", NAMES)
def test_factors_are_those_of_transformers(name: str, warmup_steps: int) -> None:
    """At every step; also when ranks have got the schedule as a copy."""
    made = schedule_named(name, num_steps=NUM_STEPS, warmup_steps=warmup_steps)
    copy = pickle.loads(pickle.dumps(made))  # noqa: S301 - made here
    assert [copy(step) for step in range(NUM_STEPS)] == pytest.approx(
        theirs(name, warmup_steps), abs=1e-12
    )


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_floor_is_reached_at_the_end_and_kept(name: str) -> None:
    """What falls is what is above it; a warmup begins at 0 all the same."""
    made = schedule_named(name, num_steps=10, warmup_steps=2, floor=0.1)
    assert [made(step) for step in (0, 1, 2)] == [0.0, 0.5, 1.0]
    assert made(6) == pytest.approx(0.55)
    assert [made(step) for step in (10, 11, 1000)] == pytest.approx([0.1] * 3)
    values = [made(step) for step in range(2, 11)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_rate_falls_over_the_steps_of_the_job(name: str) -> None:
    """Unless the schedule names its own last step; until then the warmup is known."""
    made = schedule_named(name, warmup_steps=7)
    assert [made(step) for step in (0, 7, 1000)] == [0.0, 1.0, 1.0]
    whole = made.over(NUM_STEPS)
    assert [whole(step) for step in range(NUM_STEPS)] == pytest.approx(
        theirs(name, 7), abs=1e-12
    )
    assert whole.over(1000) == whole
    assert schedule_named("constant").over(1000) == schedule_named("constant")
    with pytest.raises(WorkloadError, match=r"warmup_steps 7 .* 7 steps of the job"):
        made.over(7)


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        (
            "cosin",
            {"num_steps": 3},
            "'cosin': did you mean 'cosine'[?] there are const",
        ),
        ("step", {}, "'step': there are constant, linear, cosine"),
        ("linear", {"num_steps": 3, "warmup_steps": 3}, "give the steps of the whole"),
        ("constant", {"warmup_steps": -1}, "warmup_steps -1 is below 0"),
        ("constant", {"floor": 1.5}, "floor 1.5 of the learning rate: give a factor"),
    ],
)
def test_what_makes_no_schedule_is_refused(
    name: str, numbers: dict[str, Any], message: str
) -> None:
    """In one line that says what there is."""
    with pytest.raises(WorkloadError, match=message):
        schedule_named(name, **numbers)
