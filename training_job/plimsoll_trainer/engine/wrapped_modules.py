"""Refuses modules inside wrappers that change what a layer holds or how it runs.

In: a module of the user's. Called by the adapters for models that exist, and for every
layer that a workload builds. Wrappers are known by what they carry, so that no library
is imported for it.
"""

from __future__ import annotations

from torch import nn

from plimsoll_trainer.errors import WorkloadError


def check_unwrapped(what: str, module: nn.Module) -> None:
    """Refuse a model of PEFT, and what torch.compile was applied to.

    The message names the module by `what`, as in "layer 'block.3'".

    Raises:
        WorkloadError: see above.
    """
    if is_peft_model(module):
        raise WorkloadError(
            f"{what} is a PEFT model, a wrapper around a whole model: merge the "
            "adapters into it (merge_and_unload) and give that, or give a list of "
            "layers that hold their adapters themselves"
        )
    for path, inner in module.named_modules():
        if is_compiled(inner):
            place = f"{what} has {path!r}, which" if path else what
            raise WorkloadError(
                f"{place} is compiled by torch.compile, and its memory cannot be "
                "foreseen: give the module as it was before (its _orig_mod)"
            )


def is_peft_model(module: nn.Module) -> bool:
    """Whether a module is PEFT's wrapper around a model."""
    return hasattr(module, "peft_config") and hasattr(module, "get_base_model")


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile made this module, or its forward pass, or was called on it.

    A function that a forward pass calls is not seen.
    """
    called = getattr(module, "_compiled_call_impl", None)
    is_forward = hasattr(module.forward, "_torchdynamo_orig_callable")
    return hasattr(module, "_orig_mod") or called is not None or is_forward
