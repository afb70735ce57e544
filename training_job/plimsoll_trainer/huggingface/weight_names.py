"""Tensors of a model and those of its files, which have other names at times.

`transformers` says how a model's files differ from its modules: other names, experts
that are one tensor in the model and many in the files, three projections that are one.
These rules are applied to a few tensors at a time here, so that a rank reads what its
own layers need.

In: a model on the meta device, files. Out: a `WeightNames`. Called by `pretrained`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from plimsoll_trainer.errors import WorkloadError, reason_of
from plimsoll_trainer.huggingface.spare_tensors import check_spare
from plimsoll_trainer.huggingface.weight_files import WeightFiles

Read = Callable[[str], Tensor]
"""Name of a tensor in the files -> its values."""


@dataclass(kw_only=True)
class Origin:
    """Tensors of the files that make one or more tensors of the model."""

    first: str
    """Name in the model of the first tensor that is made."""
    converter: WeightConverter | None
    """None: the tensor is taken as it is."""
    sources: list[tuple[str, str]] = field(default_factory=list)
    """Name in the files, and pattern of the converter that it matches."""
    makes: tuple[str, ...] = ()
    """Names in the model."""

    def made(self, model: PreTrainedModel, read: Read) -> dict[str, Tensor]:
        """Tensors of the model by name, from those that are read."""
        if self.converter is None:
            return {self.first: read(self.sources[0][0])}
        converter = copy.deepcopy(self.converter)
        for name, pattern in self.sources:
            # Called when it converts, one after the other.
            later: object = partial(read, name)
            converter.add_tensor(self.first, name, pattern, later)  # type: ignore[arg-type]
        made = converter.convert(self.first, model=model, config=model.config)
        return {
            name: tensor[0] if isinstance(tensor, list) else tensor
            for name, tensor in made.items()
        }


class WeightNames:
    """Origins of all tensors of a model, checked by their shapes."""

    def __init__(self, model: PreTrainedModel, files: WeightFiles) -> None:
        """Match the files with the model; nothing but headers is read.

        Raises:
            WorkloadError: a tensor of the model is missing, has another shape or is
                quantized, or the files have tensors of another model.
        """
        self._model = model
        self.files = files
        self._state: dict[str, Tensor] = model.state_dict(keep_vars=True)
        self._rules = get_model_conversion_mapping(model)
        self._spare: dict[str, str] = {}
        self._origins = self._matched()
        for origin in self._origins.values():
            self._check(origin)
        self._origin_of = {
            name: origin for origin in self._origins.values() for name in origin.makes
        }
        self._same_as = dict(self._tied())
        for name in self._missing():
            raise WorkloadError(
                f"{files.folder} has no tensor for {name!r} of the "
                f"{model.config.model_type!r} model: fetch it again, or give the "
                "folder that this configuration belongs to"
            )
        check_spare(files.folder, model, self._spare)
        self._reverting: Any = copy.copy(model)
        # As `from_pretrained` leaves it, for `revert_weight_conversion`.
        used = [rule for rule in self._rules if rule.was_used()]
        vars(self._reverting)["_weight_conversions"] = used

    def _matched(self) -> dict[str, Origin]:
        """Origins by the first name of what they make."""
        renamings = [r for r in self._rules if isinstance(r, WeightRenaming)]
        converters = [r for r in self._rules if isinstance(r, WeightConverter)]
        by_pattern = {p: c for c in converters for p in c.source_patterns}
        prefix = self._model.base_model_prefix
        found: dict[str, Origin] = {}
        for name in sorted(self.files.forms, key=dot_natural_key):
            target, pattern = rename_source_key(
                name, renamings, converters, prefix, self._state
            )
            if target not in self._state and name in self._state:
                target, pattern = name, None
            if target not in self._state:
                self._spare[name] = target
                continue
            converter = by_pattern[pattern] if pattern is not None else None
            origin = found.setdefault(target, Origin(first=target, converter=converter))
            origin.sources.append((name, pattern or ""))
        return found

    def _check(self, origin: Origin) -> None:
        """Compare shapes and types of what is made with those of the model.

        Raises:
            WorkloadError: names the first tensor that differs.
        """
        folder = self.files.folder
        try:
            made = origin.made(self._model, lambda name: self.files.forms[name].empty())
        except Exception as error:
            reason = reason_of(error)
            raise WorkloadError(
                f"{folder}: {origin.first!r} cannot be made of "
                f"{origin.sources[0][0]!r}: {reason}"
            ) from error
        for name, tensor in made.items():
            wanted = self._state.get(name)
            if wanted is not None and wanted.shape != tensor.shape:
                raise WorkloadError(
                    f"{folder}: tensor {name!r} is {list(tensor.shape)}, and the "
                    f"configuration makes it {list(wanted.shape)}: give the folder "
                    "whose config.json belongs to these weights"
                )
            is_whole = not tensor.is_floating_point()
            if wanted is not None and wanted.is_floating_point() and is_whole:
                raise WorkloadError(
                    f"{folder}: tensor {name!r} is of type {tensor.dtype}, and so "
                    "quantized: give the model before it was quantized"
                )
        origin.makes = tuple(name for name in made if name in self._state)

    def _tied(self) -> Iterator[tuple[str, str]]:
        """Yield names in the model that a tensor of another name stands for."""
        by_identity: dict[int, str] = {}
        for name in self._origin_of:
            by_identity.setdefault(id(self._state[name]), name)
        for name, tensor in self._state.items():
            if name not in self._origin_of and id(tensor) in by_identity:
                yield name, by_identity[id(tensor)]

    def _missing(self) -> Iterator[str]:
        """Yield parameters that no file has; buffers start as the model makes them."""
        for name, _ in self._model.named_parameters():
            if name not in self._origin_of and name not in self._same_as:
                yield name

    @property
    def left_out(self) -> list[str]:
        """Names in the files that the model has no place for."""
        return list(self._spare)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors of the model by name; those without an origin are left out.

        Several that come from the same tensors are read once.
        """
        wanted: dict[str, list[str]] = {}
        for name in names:
            wanted.setdefault(self._same_as.get(name, name), []).append(name)
        origins = {
            id(origin): origin
            for name in wanted
            if (origin := self._origin_of.get(name)) is not None
        }
        for origin in origins.values():
            for made, tensor in origin.made(self._model, self.files.read).items():
                for name in wanted.get(made, ()):
                    yield name, tensor

    def reverted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors as the files have them, in their types; all of some layers at a time.

        Raises:
            WorkloadError: the rules of `transformers` lead to no name of the files.
        """
        found: dict[str, Tensor] = {}
        converted: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            origin = self._origin_of.get(name)
            if origin is None:
                continue  # tied to another, or not in the files
            if origin.converter is None:
                found[origin.sources[0][0]] = tensor
            else:
                converted[name] = tensor
        if converted:
            found |= revert_weight_conversion(self._reverting, converted)
        for name in found:
            if name not in self.files.forms:
                raise WorkloadError(
                    f"{self.files.folder}: the {self._model.config.model_type!r} "
                    f"model would be saved with {name!r}, which its files have not: "
                    "give a folder that this transformers has saved"
                )
        forms = self.files.forms
        return {name: t.to(forms[name].dtype) for name, t in found.items()}
