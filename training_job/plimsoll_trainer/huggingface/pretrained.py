"""Pretrained weights of a model, read layer by layer by the ranks that hold them.

In: the folder of a model, or its name in the hub, and its configuration. Out:
`Pretrained`, which fills layers. Shapes are compared when it is made, so that profiler
and planner find weights of another model; values are read when a rank builds a layer,
into the memory of the host, one tensor at a time. Called by `prepared_layers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.tied_tensors import tensor_in
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import bundled_name
from plimsoll_trainer.huggingface.hub import from_hub, is_hub_name
from plimsoll_trainer.huggingface.weight_files import WeightFiles, weight_files
from plimsoll_trainer.huggingface.weight_names import WeightNames
from plimsoll_trainer.torch_internals.operators import FakeTensor

PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
)
"""Files of a model in the hub that training needs."""


class Pretrained:
    """Weights of one model."""

    def __init__(self, model: PreTrainedModel, files: WeightFiles) -> None:
        """Match the files with the model, which is on the meta device.

        Raises:
            WorkloadError: they are of another model.
        """
        self.files = files
        self.names = WeightNames(model, files)

    @torch.no_grad()
    def fill(self, module: nn.Module, name_of: Mapping[str, str]) -> None:
        """Read the values of a layer's tensors.

        A layer that is traced has no values, and nothing is read.

        Args:
            module: the layer, whole.
            name_of: the model's name of each of its tensors, by their own.
        """
        places: dict[str, Tensor] = {
            name: tensor_in(module, own) for own, name in name_of.items()
        }
        if any(is_traced(tensor) for tensor in places.values()):
            return
        with host_memory():
            for name, tensor in self.names.read(places):
                # In its type first: a copy to a device would convert it there.
                places[name].copy_(tensor.to(places[name].dtype))


def is_traced(tensor: Tensor) -> bool:
    """Whether a tensor has no values."""
    return isinstance(tensor, FakeTensor) or tensor.is_meta


def pretrained(model: PreTrainedModel, folder: Path) -> Pretrained:
    """Weights in a folder.

    Raises:
        WorkloadError: there are none, or they are of another model, or quantized.
    """
    quantized: object = getattr(model.config, "quantization_config", None)
    if quantized:
        raise WorkloadError(
            f"{folder} has quantized weights, which are not trained: give the model "
            "before it was quantized"
        )
    return Pretrained(model, weight_files(folder))


def folder_of(model: str) -> Path:
    """Folder of a model: as it is given, or fetched from the hub.

    Raises:
        WorkloadError: there is no such folder, or the hub has not given it.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise WorkloadError(
            f"{model} is a file, and weights lie in a folder beside config.json: give "
            "that folder"
        )
    if is_hub_name(model):
        return fetched(model)
    known = bundled_name(model)
    advice = (
        f"{known} is bundled by its sizes alone, without weights: give the folder "
        "that has them, or org/name of the hub"
        if known
        else "give the folder of a model that transformers has saved, or org/name of "
        "the hub"
    )
    raise WorkloadError(f"no folder {model!r} with pretrained weights: {advice}")


def fetched(model: str) -> Path:
    """Folder of a model of the hub, fetched or found in its cache.

    Raises:
        WorkloadError: the hub's client is missing, or has not got it.
    """
    return from_hub(
        model,
        lambda hub: hub.snapshot_download(model, allow_patterns=list(PATTERNS)),
        "get the model elsewhere, and give its folder",
    )
