"""Messages for a module that cannot be captured: the cause, its line, what to do."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import NoReturn

from plimsoll_trainer.errors import WorkloadError, described, is_ours, is_theirs
from plimsoll_trainer.torch_internals.graphs import Seen

OWN_LAYERS = (
    "write the layers yourself (plimsoll_trainer.adapters.sequential.from_factories)"
)
ON_VALUES = ("data-dependent", "DataDependent", "_local_scalar_dense", "_is_zerotensor")
"""In the text of an error: the code asked what number a tensor has."""
OF_TORCH = ("/torch/", "<")


def refuse(name: str, error: Exception, seen: Seen) -> NoReturn:
    """Say why a module of some name cannot be captured.

    Raises:
        WorkloadError: always.
    """
    text = f"{type(error).__name__}: {error}"
    if any(sign in text for sign in ON_VALUES):
        raise WorkloadError(
            f"{name} asks for the numbers in a tensor{line_of(error)}, as a branch or "
            "a size that depends on data does, so its forward pass is not one graph: "
            "compute both branches and choose with torch.where, or keep sizes fixed"
        ) from error
    if seen:
        raise WorkloadError(fixed_count(name, seen)) from error
    raise WorkloadError(
        f"{name} cannot be captured by torch.export: {described(error)}"
        f"{line_of(error)}; change that, or {OWN_LAYERS}"
    ) from error


def fixed_count(name: str, seen: Seen) -> str:
    """Message for a forward pass that holds for one number of samples alone."""
    _, stack = seen[0]
    return (
        f"{name} runs with one number of samples alone: its code compares the batch "
        f"dimension with a constant, or mixes it with another one{place_in(stack)}; "
        "read the number of samples off a tensor (x.shape[0]), or write -1 in its place"
    )


def line_of(error: BaseException) -> str:
    """Place of an error in the code of the module, for a message."""
    return place_in(traceback.extract_tb(error.__traceback__))


def place_in(frames: Iterable[traceback.FrameSummary]) -> str:
    """The innermost line that is neither torch's nor ours, for a message."""
    outside = [
        frame
        for frame in frames
        if not any(sign in frame.filename for sign in OF_TORCH)
        and not is_ours(frame.filename)
    ]
    theirs = [frame for frame in outside if is_theirs(frame.filename)]
    found = (theirs or outside)[-1:]
    if not found:
        return ""
    [frame] = found
    code = f" ({frame.line.strip()})" if frame.line else ""
    return f" at {frame.filename}:{frame.lineno}{code}"
