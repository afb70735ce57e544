"""Refusals of models that cannot be captured, each in one line with a way out.

In: a model before it is traced, or what torch raised. Out: a `WorkloadError`. Called by
`tracing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.placed.workload import PlacedWorkload
from plimsoll_trainer.random_keys import no_hidden_draws
from plimsoll_trainer.torch_internals.operators import (
    NEEDS_NUMBERS,
    has_hooks,
    storage_of,
)

ELSE = "train it as a chain of layers (engine plimsoll)"
REASONS = (
    (
        "received a mutation",
        "it writes to a parameter that is trained, such as weight.clamp_(...): compute "
        "with a changed copy",
    ),
    (
        "complex dtype",
        "it has gradients of complex numbers, such as those of rfft: use real ones",
    ),
    (
        "gradients_to_parameters",
        "an operator has one gradient for two parameters, as for the biases of "
        "nn.LSTM: use another, such as nn.GRU",
    ),
    (
        "SparseTensorImpl",
        "it has gradients that are sparse, as nn.Embedding(sparse=True): leave that "
        "out",
    ),
    (
        "Unexpected fake",
        "it holds a tensor that is no parameter, buffer or attribute of a module: "
        "register it by register_buffer",
    ),
)
"""Part of the text of torch's error, and the reason in words."""


def require_apart(tensors: Mapping[str, Tensor], workload: PlacedWorkload) -> None:
    """Raise `WorkloadError` if tensors of a model are parts of one."""
    lying: dict[int, str] = {}
    for path, tensor in tensors.items():
        key, _ = storage_of(tensor)
        name = workload.name_of(path)
        if key in lying:
            raise WorkloadError(
                f"{name} and {lying[key]} are parts of one tensor, which may not "
                "be on two devices: make a copy of one, or one parameter of both"
            )
        lying[key] = name


def require_no_hooks(name: str, parameter: nn.Parameter) -> None:
    """Raise `WorkloadError` if something is to be called with a gradient."""
    if has_hooks(parameter):
        raise WorkloadError(
            f"{name} has a hook on its gradient, which a captured step does not call: "
            "change the gradient where it is made, in the forward pass "
            "(tensor.register_hook), or leave the hook out"
        )


def identities(model: nn.Module) -> dict[str, int]:
    """Which tensor each buffer of a model is."""
    return {
        name: id(buffer) for name, buffer in model.named_buffers(remove_duplicate=False)
    }


def require_in_place(
    before: Mapping[str, int], after: Mapping[str, int], workload: PlacedWorkload
) -> None:
    """Raise `WorkloadError` if a buffer was not written to, but replaced."""
    for path, identity in after.items():
        if before.get(path) != identity:
            name = workload.name_of(path)
            raise WorkloadError(
                f"the model puts another tensor in the place of {name}, which would be "
                "lost after the step: write in place, "
                f"self.{name.rpartition('.')[2]}.copy_(...); what no later step reads "
                "may be None at first"
            )


@contextmanager
def refusals() -> Iterator[None]:
    """Within it, a model is traced.

    Raises:
        WorkloadError: which operators run depends on numbers, or on random ones of
            Python or numpy; or it does not run at all.
    """
    try:
        with no_hidden_draws():
            yield
    except WorkloadError:
        raise
    except NEEDS_NUMBERS as error:
        raise WorkloadError(
            f"the model asks for numbers while it is captured ({located(error)}): what "
            "runs may not depend on them, so use torch.where or fixed shapes there, or "
            f"{ELSE}"
        ) from error
    except Exception as error:
        known = (f"{words}, or" for sign, words in REASONS if sign in str(error))
        reason = next(known, f"{located(error)};")
        raise WorkloadError(f"the model cannot be captured: {reason} {ELSE}") from error
