"""Weights in the files of safetensors: one file, or several that an index lists.

In: a folder. Out: names, forms and values of tensors, each read when it is asked for.
Called by `pretrained`, and by `model_folder` for the names and the order of the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import read_json

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHT_MAP = "weight_map"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types in a header that training can start from."""


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Shape and type of a tensor in a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self) -> Tensor:
        """A tensor of this form without bytes."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


@dataclass(frozen=True, eq=False)
class WeightFiles:
    """Files of one folder, of which no value is read yet."""

    folder: Path
    layout: Mapping[str, tuple[str, ...]]
    """Names of the tensors in each file, in the order that the file has them."""
    forms: Mapping[str, TensorForm]
    metadata: Mapping[str, Mapping[str, str]]
    """Of each file, as its header has it."""

    @cached_property
    def file_of(self) -> dict[str, str]:
        """File of each tensor."""
        return {name: file for file, names in self.layout.items() for name in names}

    @cached_property
    def _open_files(self) -> dict[str, Any]:
        """Files that were read from, mapped into memory."""
        return {}

    def read(self, name: str) -> Tensor:
        """Read one tensor into the memory of the host."""
        file = self.file_of[name]
        if file not in self._open_files:
            self._open_files[file] = opened(self.folder / file)
        tensor: Tensor = self._open_files[file].get_tensor(name)
        return tensor


def weight_files(folder: Path) -> WeightFiles:
    """Look up the weights in a folder; headers alone are read.

    Raises:
        WorkloadError: there are none, a file is missing or cut off, or a type is none
            that training starts from.
    """
    layout: dict[str, tuple[str, ...]] = {}
    forms: dict[str, TensorForm] = {}
    metadata: dict[str, Mapping[str, str]] = {}
    for file in files_in(folder):
        header = opened(folder / file)
        names = tuple(header.keys())
        layout[file] = names
        metadata[file] = header.metadata() or {}
        for name in names:
            forms[name] = form_of(header.get_slice(name), folder / file, name)
    if (folder / INDEX).is_file():
        check_index(folder, layout)
    return WeightFiles(folder, layout, forms, metadata)


def files_in(folder: Path) -> list[str]:
    """Names of the files with weights, in order.

    Raises:
        WorkloadError: there are none, or the index lists one that is missing.
    """
    if (folder / INDEX).is_file():
        names = sorted(set(weight_map(folder).values()))
        for name in names:
            if not (folder / name).is_file():
                raise WorkloadError(
                    f"{folder / name} is missing, which {INDEX} lists: copy it there, "
                    "or fetch the model again"
                )
        return names
    if (folder / ONE_FILE).is_file():
        return [ONE_FILE]
    others = sorted(path.name for path in folder.glob("*.bin"))
    advice = (
        f"it has {others[0]}: save it again by model.save_pretrained(folder)"
        if others
        else "give the folder of a model that transformers has saved"
    )
    raise WorkloadError(f"{folder} has neither {ONE_FILE} nor {INDEX}: {advice}")


def weight_map(folder: Path) -> dict[str, str]:
    """File of each tensor, as the index has it.

    Raises:
        WorkloadError: the index has no such map.
    """
    found: object = read_json(folder / INDEX).get(WEIGHT_MAP)
    if not isinstance(found, dict) or not found:
        raise WorkloadError(
            f"{folder / INDEX} has no {WEIGHT_MAP}: fetch the model again"
        )
    return {str(name): Path(str(file)).name for name, file in found.items()}


def check_index(folder: Path, layout: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an index whose files have not got what it says.

    Raises:
        WorkloadError: names the first tensor that is missing.
    """
    for name, file in sorted(weight_map(folder).items()):
        if name not in layout[file]:
            raise WorkloadError(
                f"{folder / file} has no tensor {name!r}, which {INDEX} says it has: "
                "fetch the model again"
            )


def opened(path: Path) -> Any:
    """A file of tensors, whose header is complete.

    Raises:
        WorkloadError: it cannot be read, or is cut off.
    """
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise WorkloadError(
            f"{path}: {error}: the file is cut off or no file of safetensors; fetch "
            "it again"
        ) from error


def form_of(piece: Any, path: Path, name: str) -> TensorForm:
    """Form of a tensor that a header describes.

    Raises:
        WorkloadError: it is of a type that no training starts from.
    """
    dtype = piece.get_dtype()
    if dtype not in DTYPES:
        raise WorkloadError(
            f"{path}: tensor {name!r} is of type {dtype}: training starts from weights "
            f"of {', '.join(list(DTYPES)[:4])}; give the model before it was quantized"
        )
    return TensorForm(tuple(piece.get_shape()), DTYPES[dtype])
