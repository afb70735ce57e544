"""The task that a model is trained for, of what a person has typed.

    Qwen3-8B, ./vit, org/model    by its configuration
    torchvision:resnet50          a classifier of torchvision

In: a name. Out: a `Family`. Called by the command, which then knows the entry point;
`transformers` is imported only for models that are not bundled.
"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path

from plimsoll_trainer.user_code.model_files import model_files

TORCHVISION = "torchvision:"
"""How names of its models begin."""


class Family(StrEnum):
    """Models that are read in one way: tasks of `transformers`, and torchvision."""

    TEXT_GENERATION = "text-generation"
    FILL_MASK = "fill-mask"
    SEQUENCE_CLASSIFICATION = "sequence-classification"
    IMAGE_CLASSIFICATION = "image-classification"
    TORCHVISION = "torchvision"

    @property
    def takes_tokens(self) -> bool:
        """Whether samples are tokens, or else images."""
        return self not in (Family.IMAGE_CLASSIFICATION, Family.TORCHVISION)


def family_of(model: str, *, trust_remote_code: bool = False) -> Family:
    """Family of a model; that of causal ones, if its configuration cannot be found.

    Whoever builds the model says then why not.

    Args:
        model: as a person has typed it.
        trust_remote_code: whether code that comes with it may be run.
    """
    if model.startswith(TORCHVISION):
        return Family.TORCHVISION
    known = bundled_families().get(model.rpartition("/")[2].casefold())
    if known is not None:
        return known
    try:
        # Imported here, for what is bundled needs no transformers.
        from plimsoll_trainer.errors import WorkloadError  # noqa: PLC0415 - see above
        from plimsoll_trainer.huggingface.configurations import configuration_of  # noqa: PLC0415
        from plimsoll_trainer.huggingface.tasks import task_of  # noqa: PLC0415
    except ModuleNotFoundError:
        return Family.TEXT_GENERATION
    try:
        config = configuration_of(model, trust_remote_code=trust_remote_code)
        return Family(task_of(config))
    except WorkloadError:
        return Family.TEXT_GENERATION


def files_of(model: str) -> list[Path]:
    """Configuration and code of a model, if they are files here."""
    return [file for _, file in model_files({"model": model})]


@cache
def bundled_families() -> dict[str, Family]:
    """Families of the bundled models, by their names in small letters."""
    text = resources.files("plimsoll_trainer").joinpath("huggingface/models.json")
    found = json.loads(text.read_text("utf-8"))
    return {
        name.casefold(): Family(one.get("task", Family.TEXT_GENERATION))
        for name, one in found.items()
    }
