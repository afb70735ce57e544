"""Operators that do something else in training than in evaluation.

A graph is captured in training mode. A layer that is in evaluation drops nothing out,
norms by its statistics and leaves them and all other buffers as they are, as modules of
torch do. What is drawn besides, such as noise or the paths that a model drops, has no
such rule: evaluation refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.graphs import aten, draws, names_of

SWITCHES = ("train", "training", "use_input_stats")
RATE = "dropout_p"
BERNOULLI = (aten.bernoulli_.float, aten.bernoulli.p)


def rate(training: bool, given: float) -> float:
    """Rate of dropping out: none in evaluation."""
    return given if training else 0.0


def write(training: bool, operator: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Write to a buffer, in training alone; it is the first argument, or `out`."""
    target: Tensor = kwargs["out"] if "out" in kwargs else args[0]
    made: Tensor = operator(*args, **kwargs) if training else target
    return made


def draw(training: bool, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Draw random numbers; in evaluation of a Bernoulli draw its mean.

    So a path that is kept at rate p, and divided by p, is the path itself.

    Raises:
        WorkloadError: this is evaluation, and nobody knows what it has in their place.
    """
    if training:
        return operator(*args, **kwargs)
    if operator in BERNOULLI:
        target, mean = args[0], (*args[1:], kwargs.get("p", 0.5))[0]
        return target.fill_(mean) if operator is BERNOULLI[0] else target * 0 + mean
    raise WorkloadError(
        f"{operator} draws random numbers, and the layers of from_module cannot know "
        "whether it does in evaluation: leave out `evaluation`, or let the module drop "
        "out by torch's own functions"
    )


def switched(
    node: fx.Node, copied: fx.Node, training: Callable[[], fx.Node], *, on_buffer: bool
) -> None:
    """Let the copy of a node follow the mode of its layer.

    Args:
        node: as it was captured.
        copied: in the graph of a layer; is changed.
        training: makes a node that says whether the layer is in training.
        on_buffer: whether it writes to a buffer of the module.
    """
    target = node.target
    if is_statistical(node) and not has_statistics(node):
        return
    for name in SWITCHES:
        if argument(copied, name) is True:
            set_argument(copied, name, training())
            return
    if argument(copied, RATE):
        flag = training()
        with copied.graph.inserting_before(copied):
            made = copied.graph.call_function(rate, (flag, argument(copied, RATE)))
        set_argument(copied, RATE, made)
    elif argument(copied, RATE) is None and (on_buffer or draws(target)):
        flag = training()
        given: Any = (flag, target, *copied.args)
        copied.args = given
        copied.target = write if on_buffer and not draws(target) else draw


def is_statistical(node: fx.Node) -> bool:
    """Whether an operator is a norm that may have running statistics."""
    return "running_mean" in names_of(node.target)


def has_statistics(node: fx.Node) -> bool:
    """Whether a norm has running statistics, to be used in evaluation."""
    return argument(node, "running_mean") is not None


def argument(node: fx.Node, name: str) -> Any:
    """Argument of a node by its name in the operator's schema; None: not given."""
    if name in node.kwargs:
        return node.kwargs[name]
    names = names_of(node.target)
    at = names.index(name) if name in names else len(node.args)
    return node.args[at] if at < len(node.args) else None


def set_argument(node: fx.Node, name: str, value: Any) -> None:
    """Give a node another argument."""
    if name in node.kwargs:
        node.update_kwarg(name, value)
    else:
        node.update_arg(names_of(node.target).index(name), value)
