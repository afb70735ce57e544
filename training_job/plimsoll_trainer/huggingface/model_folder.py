"""Trained weights as a folder of `transformers`: what `from_pretrained` reads.

Weights that came from a folder go into files of the same names with the same tensors in
the same types, so that what was not trained is written as it was read, byte for byte.
Fresh ones go where `save_pretrained` would put them. Configuration and tokenizer are
copied. Called by `exported` of room `checkpoint`, through `Workload.export`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.remote_code import code_of
from plimsoll_trainer.huggingface.tokenizing import FILES as TOKENIZER_FILES
from plimsoll_trainer.huggingface.weight_files import (
    INDEX,
    ONE_FILE,
    WEIGHT_MAP,
    WeightFiles,
)
from plimsoll_trainer.huggingface.weight_names import WeightNames
from plimsoll_trainer.user_code.model_files import CONFIG_FILE
from plimsoll_trainer.workload import ReadLayer

COPIED = (CONFIG_FILE, "generation_config.json", *TOKENIZER_FILES)
METADATA = {"format": "pt"}
"""Without it `transformers` reads no file."""
LARGEST_FILE_BYTES = 5 * 10**9
"""As `save_pretrained` has it."""
Layout = Mapping[str, tuple[str, ...]]
"""Names of the tensors in each file."""
Names = Mapping[str, Mapping[str, str]]
"""By layer, the model's name of each tensor, by its own."""
Merged = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Tensors of a layer with adapters, by their own names -> without, these added."""
Reverted = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Tensors of the model, all of a layer -> the same under names of the files."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ModelFolder:
    """Writes all weights of a model; an `Export`."""

    names: Names
    """In the order of the chain."""
    layout: Layout
    reverted: Reverted
    config: PreTrainedConfig
    metadata: Mapping[str, Mapping[str, str]]
    """Of each file, if it had some before."""
    merged: Merged | None = None
    """Adds adapters; None: there are none."""
    index: str = ""
    """Text of the index of its files, where that stays as it was."""
    source: Path | None = None
    """Folder that training started from."""

    def __call__(self, read: ReadLayer, folder: Path) -> None:
        """Write the folder; no more tensors are in memory than files are begun.

        Raises:
            WorkloadError: a tensor is missing.
        """
        file_of = {name: file for file, names in self.layout.items() for name in names}
        begun: dict[str, dict[str, Tensor]] = {file: {} for file in self.layout}
        num_bytes = 0
        for name, tensor in self._tensors(read):
            file = file_of.get(name)
            if file is None or file not in begun or name in begun[file]:
                continue  # tied, and there by another name
            begun[file][name] = tensor.contiguous()
            num_bytes += tensor.nbytes
            if len(begun[file]) == len(self.layout[file]):
                known = dict(self.metadata.get(file) or METADATA)
                save_file(begun.pop(file), folder / file, known)
        for file, tensors in begun.items():
            lacks = next(name for name in self.layout[file] if name not in tensors)
            raise WorkloadError(
                f"{file} cannot be written: the checkpoint has no {lacks!r}"
            )
        if list(self.layout) != [ONE_FILE]:
            index = {
                "metadata": {"total_size": num_bytes},
                WEIGHT_MAP: dict(sorted(file_of.items())),
            }
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            (folder / INDEX).write_text(self.index or text, "utf-8")
        copy_files(self.source, self.config, folder)

    def _tensors(self, read: ReadLayer) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors under names of the files."""
        for layer, name_of in self.names.items():
            own = read(layer)
            own = own if self.merged is None else self.merged(own)
            tensors = {name: own[mine] for mine, name in name_of.items() if mine in own}
            yield from self.reverted(tensors).items()


def write_folder(
    make: Callable[[], ModelFolder], read: ReadLayer, folder: Path
) -> None:
    """Write what is made now: ranks that only train need no names of files."""
    make()(read, folder)


def copy_files(source: Path | None, config: PreTrainedConfig, folder: Path) -> None:
    """Write configuration, its code and the tokenizer beside the weights."""
    files = list(code_of(config))
    if source is not None:
        files += [source / name for name in COPIED]
    for file in filter(Path.is_file, files):
        shutil.copyfile(file, folder / file.name)
    if not (folder / CONFIG_FILE).exists():
        config.save_pretrained(folder)


def same_folder(
    names: Names,
    weights: WeightNames,
    config: PreTrainedConfig,
    merged: Merged | None = None,
) -> ModelFolder:
    """Export to files like those that training started from.

    Args:
        names: of the layers' tensors.
        weights: that training started from.
        config: of the model.
        merged: adds adapters to the tensors of a layer; None: there are none.
    """
    files: WeightFiles = weights.files
    unknown = set(weights.left_out)
    has_index = (files.folder / INDEX).is_file() and not unknown
    layout = {
        file: tuple(name for name in held if name not in unknown)
        for file, held in files.layout.items()
    }
    return ModelFolder(
        names=names,
        layout={file: held for file, held in layout.items() if held},
        reverted=weights.reverted,
        config=config,
        merged=merged,
        metadata=files.metadata,
        index=(files.folder / INDEX).read_text("utf-8") if has_index else "",
        source=files.folder,
    )


def fresh_folder(
    names: Names,
    model: PreTrainedModel,
    config: PreTrainedConfig,
    merged: Merged | None = None,
) -> ModelFolder:
    """Export of a model that started from fresh weights.

    Args:
        names: of the layers' tensors.
        model: on the meta device, in the type of the training and so of the files.
        config: as it was given.
        merged: adds adapters to the tensors of a layer; None: there are none.
    """
    state = model.state_dict(keep_vars=True)
    first = {id(tensor): name for name, tensor in reversed(state.items())}
    kept = {first[id(tensor)] for tensor in state.values()}

    def reverted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = {
            name: tensor.to(state[name].dtype)
            for name, tensor in tensors.items()
            if name in kept
        }
        found: dict[str, Tensor] = revert_weight_conversion(model, known)
        return found

    forms = (
        pair
        for layer in names.values()
        for pair in reverted({n: state[n] for n in layer.values()}).items()
    )
    return ModelFolder(
        names=names,
        layout=layout_of(forms),
        reverted=reverted,
        config=config,
        merged=merged,
        metadata={},
    )


def layout_of(forms: Iterable[tuple[str, Tensor]]) -> Layout:
    """Files for tensors in order, none of them larger than is usual."""
    groups: list[list[str]] = [[]]
    num_bytes = 0
    for name, tensor in forms:
        if groups[-1] and num_bytes + tensor.nbytes > LARGEST_FILE_BYTES:
            groups.append([])
            num_bytes = 0
        groups[-1].append(name)
        num_bytes += tensor.nbytes
    if len(groups) == 1:
        return {ONE_FILE: tuple(groups[0])}
    return {
        f"model-{at:05d}-of-{len(groups):05d}.safetensors": tuple(group)
        for at, group in enumerate(groups, 1)
    }
