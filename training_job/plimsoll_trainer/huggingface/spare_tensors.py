"""Tensors of a folder that its model has no place for: another model's, or of no use.

    model.layers.4.mlp.up_proj.weight     of a block that a model of 4 has not: refused
    model.layers.0.self_attn.q_proj.bias  of a layer that has none here: refused
    model.layers.0.rotary_emb.inv_freq    a buffer that the model makes: dropped
    value_head.weight                     of another task: dropped, with a warning

What `transformers` drops without a word is dropped likewise. In: a model, and the names
of tensors that are left. Called by `weight_names`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from torch import nn
from transformers import PreTrainedModel

from plimsoll_trainer.errors import WorkloadError

LOG = logging.getLogger(__name__)
EXTRA_BLOCKS = "num_nextn_predict_layers"
"""Field of blocks behind the last one that predict more tokens; nobody trains them."""


def check_spare(folder: Path, model: PreTrainedModel, spare: Mapping[str, str]) -> None:
    """Refuse tensors that belong to another model, and warn of others.

    Args:
        folder: of the files.
        model: on the meta device.
        spare: name that each tensor would have in the model, by that in the files.

    Raises:
        WorkloadError: names the first, and says how many there are.
    """
    ignored = model._keys_to_ignore_on_load_unexpected or ()  # noqa: SLF001 - no other
    rest = {
        name: target
        for name, target in spare.items()
        if not any(re.search(pattern, target) for pattern in ignored)
    }
    wrong = [name for name, target in rest.items() if is_of_another(model, target)]
    if wrong:
        raise WorkloadError(
            f"{folder} has tensors that its configuration leaves no place for, "
            f"{len(wrong)} of them, first {wrong[0]!r}: give the folder whose "
            "config.json belongs to these weights"
        )
    made = {name.rpartition(".")[2] for name, _ in model.named_buffers()}
    dropped = [
        name for name, target in rest.items() if target.rpartition(".")[2] not in made
    ]
    if dropped:
        LOG.warning(
            "%s has tensors that the %r model has no use for, %d of them, first %r: "
            "they are not read, and not exported",
            *(folder, model.config.model_type, len(dropped), dropped[0]),
        )


def is_of_another(model: PreTrainedModel, target: str) -> bool:
    """Whether a name is of a block beyond the last, or of a parameter left out."""
    text = model.config.get_text_config(decoder=True)
    extra = getattr(text, EXTRA_BLOCKS, 0) or 0
    *path, own = target.split(".")
    module: nn.Module = model
    for part in path:
        children = dict(module.named_children())
        if part not in children:
            is_beyond = isinstance(module, nn.ModuleList) and part.isdigit()
            return is_beyond and int(part) >= len(children) + extra
        module = children[part]
    return getattr(module, own, module) is None
