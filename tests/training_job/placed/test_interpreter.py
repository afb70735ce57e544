"""One rank carries out its actions: what it is given is what was captured."""

from __future__ import annotations

from typing import cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_planner.graph.actions import Action, Step
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.interpreter import Given, Interpreter
from plimsoll_trainer.placed.transport import Transport
from tests.support.branching import SAMPLES, branching

X = torch.ones(SAMPLES, 16)


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ((X[:1],), r"is float32\[1, 16\], but float32\[8, 16\] was captured in step 0"),
        ((X.double(),), r"is float64\[8, 16\], but float32\[8, 16\] was captured"),
        ((), r"is one of 0 tensors, but float32\[8, 16\] was captured"),
    ],
)
def test_a_batch_of_another_form_is_refused(
    tensors: tuple[Tensor, ...], text: str
) -> None:
    """With its step and sample; it is neither repeated nor converted."""
    graph = capture(branching(), SAMPLES)
    interpreter = Interpreter(
        graph,
        cast("Transport", None),
        torch.device("cpu"),
        seed=0,
        states={},
        gradients={},
    )
    action = Action(step=Step.RUN, node=graph.inputs[0], peer=0, moment=0)
    interpreter.run([action], Given(tensors=(X,), step=0, first_sample=0))
    with pytest.raises(
        WorkloadError, match=rf"^batch\.0 in step 3, from .*8 on, {text}"
    ):
        interpreter.run([action], Given(tensors=tensors, step=3, first_sample=8))
