"""Refusals of code that a captured graph would lose without a word.

    backward passes of their own, hooks on gradients      the graph has forward alone
    gradients that the forward pass asks for              they have the example's sizes
    writes through `.data`                                nothing sees them
    blocks under torch.inference_mode                     gradients would come back
    tensors that are assigned                             the old tensor is trained on

In: a `FakeModule` and what runs or was captured of it. Called by `capture`.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor, fx, nn

from plimsoll_trainer.adapters import sequential
from plimsoll_trainer.adapters.any_module.fake_modules import FakeModule
from plimsoll_trainer.adapters.any_module.refusals import (
    OWN_LAYERS,
    frames_of,
    place_in,
)
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.graphs import no_backward
from plimsoll_trainer.torch_internals.operators import (
    FakeTensor,
    has_hooks,
    is_of_operator,
    storage_of,
)

ENTER_INFERENCE = torch.inference_mode.__enter__
ASSIGNED = "The tensor attribute"
"""How torch begins to warn of what `check_replaced` refuses or is no fault."""
HOOKS = ("register_hook", "register_post_accumulate_grad_hook")


@contextmanager
def nothing_lost() -> Iterator[None]:
    """Within it, code that a graph cannot hold raises.

    Raises:
        WorkloadError: names the line.
    """
    with ExitStack() as patches:
        own: Any = classmethod(refuse_own_gradient)
        patches.enter_context(mock.patch.object(torch.autograd.Function, "apply", own))
        for name in HOOKS:
            patches.enter_context(mock.patch.object(Tensor, name, refuse_hook))
        mode = mock.patch.object(torch.inference_mode, "__enter__", refuse_inference)
        patches.enter_context(mode)
        patches.enter_context(no_backward(refuse_backward))
        patches.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", ASSIGNED)
        yield


def refuse_own_gradient(
    function: type[torch.autograd.Function], *args: Any, **kwargs: Any
) -> Any:
    """Refuse a function with a backward pass of its own, which a graph loses.

    Raises:
        WorkloadError: unless it is that of an operator of `torch.library`, which a
            graph calls by its name.
    """
    if is_of_operator(function):
        plain: Any = super(torch.autograd.Function, function)
        return plain.apply(*args, **kwargs)
    raise WorkloadError(
        f"the module calls {function.__qualname__}, a torch.autograd.Function, whose "
        f"backward pass a captured graph would lose{here()}: let autograd derive it, "
        f"make it an operator of torch.library, or {OWN_LAYERS}"
    )


def refusing(what: str, instead: str) -> Callable[..., NoReturn]:
    """A function that refuses to be called: it raises `WorkloadError`."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        raise WorkloadError(f"{what}{here()}: {instead}, or {OWN_LAYERS}")

    return refuse


refuse_hook = refusing(
    "the forward pass registers a hook on a gradient, which a captured graph would "
    "lose",
    "leave it out",
)
refuse_backward = refusing(
    "the forward pass asks autograd for gradients, which a captured graph would have "
    "for one number of samples alone",
    "write their formula",
)


def refuse_inference(block: torch.inference_mode) -> None:
    """Refuse a block in which nothing would need a gradient.

    Raises:
        WorkloadError: unless it ends that mode, as torch does to make fake tensors.
    """
    if not block.mode:
        ENTER_INFERENCE(block)
        return
    raise WorkloadError(
        "the forward pass enters torch.inference_mode, which a captured graph would "
        f"lose{here()}: write torch.no_grad() instead"
    )


def here() -> str:
    """Line of the module that runs now, for a message."""
    return place_in(traceback.extract_stack())


def check_hooks(module: nn.Module) -> None:
    """Refuse parameters whose gradients are changed by hooks.

    Raises:
        WorkloadError: names the first one.
    """
    for name, parameter in module.named_parameters():
        if has_hooks(parameter):
            raise WorkloadError(
                f"parameter {name!r} has a hook on its gradient, which no layer would "
                "call: remove it, and change gradients in the loss or the optimizer"
            )


def check_constants(fake: FakeModule, constants: Mapping[fx.Node, Tensor]) -> None:
    """Refuse tensors of the forward pass that the graph has taken for constants.

    What `.data` gives is none of what autograd follows, so the capture does not know
    whose memory it has.

    Raises:
        WorkloadError: names the line that uses one.
    """
    for node, tensor in constants.items():
        if isinstance(tensor, FakeTensor) and not is_known(fake, tensor):
            used = next((place_in(frames_of(user)) for user in node.users), "")
            raise WorkloadError(
                f"{fake.name} reads or writes through .data{used}, "
                "which a captured graph would lose: write under torch.no_grad() "
                "instead, and read through .detach()"
            )


def is_known(fake: FakeModule, tensor: Tensor) -> bool:
    """Whether a fake tensor is the module's, or its function has built it."""
    own = list(sequential.tensors_in(fake.module))
    if any(tensor is one for one in own):
        return True
    if fake.record is None:
        return False
    key = storage_of(tensor)[0]
    built = {place.storage for step in fake.record.steps for place in step.results}
    return key in built and all(key != storage_of(one)[0] for one in own)


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, buffers and plain attributes by name, as they are now."""
    named: Iterable[tuple[str, Tensor]] = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
        *(
            (f"{path}.{name}".lstrip("."), value)
            for path, inner in module.named_modules()
            for name, value in vars(inner).items()
            if isinstance(value, Tensor)
        ),
    )
    return dict(named)


def check_replaced(names: Collection[str]) -> None:
    """Refuse a forward pass that puts others in the place of tensors it has read.

    Raises:
        WorkloadError: names the first one.
    """
    if names:
        name = min(names)
        raise WorkloadError(
            f"the forward pass assigns self.{name}, and layers would go on with the "
            f"old tensor: write in place, self.{name}.copy_(...)"
        )


def warn_of_added(module: str, names: Collection[str]) -> None:
    """Warn of tensors that a forward pass adds, which later steps may read."""
    if names:
        warnings.warn(
            f"the forward pass of {module} assigns self.{min(names)}, where no tensor "
            "was before, and layers do not keep it: if a later step reads it, make it "
            "a buffer and write in place",
            stacklevel=2,
        )
