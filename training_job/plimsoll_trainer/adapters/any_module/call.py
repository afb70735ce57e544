"""How a module is called, and which tensor of its result is the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from plimsoll_trainer.adapters.any_module.lost import own_tensors
from plimsoll_trainer.errors import WorkloadError


class Call(nn.Module):
    """A module that is called with tensors in order, and gives one back."""

    def __init__(
        self, module: nn.Module, arguments: Sequence[str], output: str | None
    ) -> None:
        """Wrap a module.

        Args:
            module: to be called.
            arguments: names that the inputs are given by; none: by their order.
            output: name of the tensor in the result; None: there is only one.
        """
        super().__init__()
        self.module = module
        self.replaced: set[str] = set()
        """Names of tensors that the module puts another in the place of."""
        self.added: set[str] = set()
        """Names of tensors where none was before."""
        self._arguments, self._output = tuple(arguments), output

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the module.

        Raises:
            WorkloadError: it has no such output.
        """
        before = own_tensors(self.module)
        if self._arguments:
            result = self.module(**dict(zip(self._arguments, inputs, strict=True)))
        else:
            result = self.module(*inputs)
        after = own_tensors(self.module)
        both = before.keys() & after.keys()
        self.replaced.update(name for name in both if before[name] is not after[name])
        self.added.update(after.keys() - before.keys())
        return chosen(result, self._output)


def chosen(result: Any, output: str | None) -> Tensor:
    """One tensor of a result.

    Raises:
        WorkloadError: there is none of that name, or several and no name.
    """
    found = named_tensors(result)
    if output is not None:
        if output not in found:
            raise WorkloadError(
                f"output {output!r} is no tensor of what the module returns, which has "
                f"{listed(found)}: name one of them"
            )
        return found[output]
    if len(found) != 1:
        raise WorkloadError(
            f"the module returns {type(result).__name__} with {len(found)} tensors, "
            f"{listed(found)}: name the one that the loss is of, as in output='logits'"
        )
    return next(iter(found.values()))


def named_tensors(result: Any) -> dict[str, Tensor]:
    """Tensors of a result by name, or by their place in it."""
    if isinstance(result, Tensor):
        return {"output": result}
    pairs: Any = ()
    if isinstance(result, Mapping):
        pairs = result.items()
    elif isinstance(result, (tuple, list)):
        pairs = zip(getattr(result, "_fields", range(len(result))), result, strict=True)
    elif hasattr(result, "__dict__"):
        pairs = vars(result).items()
    return {str(name): one for name, one in pairs if isinstance(one, Tensor)}


def listed(found: Mapping[str, Tensor]) -> str:
    """Names in a message."""
    return ", ".join(map(repr, found)) or "none"
