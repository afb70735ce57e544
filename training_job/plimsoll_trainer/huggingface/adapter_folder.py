"""Trained adapters as a folder of `peft`: what `PeftModel.from_pretrained` reads.

`transformers` reads it as well where `peft` is installed, together with the model that
the adapters belong to. Called by `exported` of room `checkpoint`, through
`Workload.export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

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
    source: Path
    """Folder of the model."""

    def __call__(self, read: ReadLayer, folder: Path) -> None:
        """Write the folder."""
        found: dict[str, Tensor] = {}
        for layer, (own, path) in self.paths.items():
            for name, tensor in read(layer).items():
                if LORA in name:
                    plain = name.removeprefix(own).replace(f".{ADAPTER}.", ".")
                    found[f"{PREFIX}.{path}{plain}"] = tensor.contiguous()
        save_file(found, folder / WEIGHTS, METADATA)
        config = self.adapters.config(self.adapters.targets)
        config.base_model_name_or_path = str(self.source)
        config.inference_mode = True
        config.save_pretrained(str(folder))
