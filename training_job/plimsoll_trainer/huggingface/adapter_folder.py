"""Trained adapters as a folder of `peft`: what `PeftModel.from_pretrained` reads.

`transformers` reads it as well where `peft` is installed, together with the model that
the adapters belong to. In models of experts `peft` takes names of dense layers, such as
`down_proj`, for those of experts, and a head may have a layer called as one of each
block; there the weights of the layers are named in full. Called by `exported` of room
`checkpoint`, through `Workload.export`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn

from plimsoll_trainer.huggingface.low_rank import ADAPTER, LORA, LowRank
from plimsoll_trainer.huggingface.model_folder import METADATA
from plimsoll_trainer.workload import ReadLayer

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model"
"""In front of the names of a model that has adapters."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AdapterFolder:
    """Writes the adapters of a model, and none of its own weights; an `Export`."""

    adapters: LowRank
    paths: Mapping[str, tuple[str, str]]
    """By layer, a path inside it and the model's path of the same module."""
    model: nn.Module
    """On the meta device."""
    source: Path
    """Folder of the model."""

    def __call__(self, read: ReadLayer, folder: Path) -> None:
        """Write the folder."""
        found: dict[str, Tensor] = {}
        for layer, (own, path) in self.paths.items():
            for name, tensor in read(layer).items():
                if LORA in name:
                    plain = name.removeprefix(own).replace(f".{ADAPTER}.", ".")
                    found[f"{path}{plain}"] = tensor.contiguous()
        saved = {f"{PREFIX}.{name}": tensor for name, tensor in found.items()}
        save_file(saved, folder / WEIGHTS, METADATA)
        config = self.adapters.config(self.adapters.targets)
        name_lost(config, self.model, {name.partition(f".{LORA}")[0] for name in found})
        config.base_model_name_or_path = str(self.source)
        config.inference_mode = True
        config.save_pretrained(str(folder))


def name_lost(config: LoraConfig, model: nn.Module, adapted: Set[str]) -> None:
    """Name the weights of layers where `peft` finds others by their last names.

    It takes no dropout where a weight is named, and needs none to infer.

    Args:
        config: with the last parts of the layers' names, which is changed.
        model: on the meta device.
        adapted: paths of the layers that have adapters.
    """
    lost = last_names(adapted ^ found_by_peft(config, model))
    if lost:
        config.target_modules = sorted(last_names(adapted) - lost)
        config.target_parameters = sorted(
            f"{path}.weight" for path in adapted if path.rpartition(".")[2] in lost
        )
        config.lora_dropout = 0.0


def found_by_peft(config: LoraConfig, model: nn.Module) -> set[str]:
    """Paths of the layers that `peft` adapts in a model, if it is given these names."""
    probed = copy.deepcopy(model)
    try:
        inject_adapter_in_model(copy.deepcopy(config), probed, low_cpu_mem_usage=True)
    except ValueError:  # one projection of experts that are one tensor
        return set()
    return {
        path for path, inner in probed.named_modules() if isinstance(inner, LoraLayer)
    }


def last_names(paths: Collection[str]) -> set[str]:
    """Last parts of paths."""
    return {path.rpartition(".")[2] for path in paths}
