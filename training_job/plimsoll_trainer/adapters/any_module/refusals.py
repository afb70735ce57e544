"""Messages for a module that cannot be captured: the cause, its line, what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from torch import Tensor, fx

from plimsoll_trainer.errors import WorkloadError, described, innermost, is_ours
from plimsoll_trainer.torch_internals.graphs import Seen, free_unbacked_symbols

OWN_LAYERS = (
    "write the layers yourself (plimsoll_trainer.adapters.sequential.from_factories)"
)
ON_VALUES = ("data-dependent", "DataDependent", "_local_scalar_dense", "_is_zerotensor")
"""In the text of an error: the code asked what number a tensor has."""
FRAME = re.compile(r'File "(.*?)", line (\d+).*\n *(.*)')


def refuse(
    name: str, inputs: Sequence[Tensor], error: Exception, seen: Seen
) -> NoReturn:
    """Say why a module of some name cannot be captured with examples of its inputs.

    Raises:
        WorkloadError: always.
    """
    text = f"{type(error).__name__}: {error}"
    if any(sign in text for sign in ON_VALUES):
        raise WorkloadError(asks_numbers(name, line_of(error))) from error
    if seen:
        raise WorkloadError(fixed_count(name, seen)) from error
    raise WorkloadError(
        f"{name} cannot be captured by torch.export with {forms_of(inputs)}: "
        f"{described(error)}{line_of(error)}; change that, or {OWN_LAYERS}"
    ) from error


def forms_of(inputs: Sequence[Tensor]) -> str:
    """Inputs of a captured module in words, as in `float32[samples, 32]`."""
    return " and ".join(
        f"{str(one.dtype).removeprefix('torch.')}"
        f"[{', '.join(['samples', *map(str, one.shape[1:])])}]"
        for one in inputs
    )


def require_no_numbers(name: str, graph: fx.Graph) -> None:
    """Refuse a graph in which a size or a Python number depends on what tensors hold.

    Raises:
        WorkloadError: names the line.
    """
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.users and value is not None and free_unbacked_symbols(value):
            raise WorkloadError(asks_numbers(name, place_in(frames_of(node))))


def frames_of(node: fx.Node) -> Iterator[traceback.FrameSummary]:
    """Yield the lines of the module's code that called for a node."""
    for file, line, code in FRAME.findall(node.stack_trace or ""):
        yield traceback.FrameSummary(file, int(line), "", line=code)


def asks_numbers(name: str, place: str) -> str:
    """Message for a forward pass that depends on numbers."""
    return (
        f"{name} asks for the numbers in a tensor{place}, as a branch or a size that "
        "depends on data does, so its forward pass is not one graph: compute both "
        "branches and choose with torch.where, or keep sizes fixed"
    )


def fixed_count(name: str, seen: Seen) -> str:
    """Message for a forward pass that holds for one number of samples alone."""
    _, stack = seen[0]
    return (
        f"{name} runs with one number of samples alone: its code compares the batch "
        "dimension with a constant, mixes it with another one, or gives it to a "
        f"function of Python, as math.sqrt{place_in(stack)}; read the number of "
        "samples off a tensor (x.shape[0]), write -1 in its place, or compute with it "
        "by operators (x.shape[0] ** 0.5)"
    )


def line_of(error: BaseException) -> str:
    """Place of an error in the code of the module, for a message."""
    return place_in(traceback.extract_tb(error.__traceback__))


def place_in(frames: Iterable[traceback.FrameSummary]) -> str:
    """The innermost line that is neither torch's nor ours, for a message."""
    frame = innermost(called(list(frames)))
    if frame is None:
        return ""
    code = f" ({frame.line.strip()})" if frame.line else ""
    return f" at {frame.filename}:{frame.lineno}{code}"


def called(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Frames behind the last one of ours, which called the module; checks aside."""
    found: list[traceback.FrameSummary] = []
    for frame in reversed(frames):
        if not is_ours(frame.filename):
            found.insert(0, frame)
        elif found:
            break
    return found
