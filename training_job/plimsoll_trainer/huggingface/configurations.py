"""The configuration of a model: of a folder or file, by a known name, or of the hub.

    ./qwen, ./qwen/config.json     as `transformers` has saved it
    Qwen3-8B, Qwen/Qwen3-8B        bundled: sizes alone, each with its source
    org/model                      of the hub, where `huggingface_hub` can reach it

In: what a person has typed. Out: a configuration of `transformers`. Called by the entry
points of this room. Code that comes with a model is run only where that is asked for.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, logging
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from plimsoll_trainer.errors import WorkloadError, reason_of
from plimsoll_trainer.huggingface.hub import from_hub, is_hub_name
from plimsoll_trainer.huggingface.remote_code import register_code
from plimsoll_trainer.user_code.model_files import CONFIG_FILE

BLOCKS = "num_hidden_layers"
Configuration = PreTrainedConfig
"""As `transformers` has it, for those who do not import that."""
ALIKE = 0.6
"""Ratio of difflib, from which on a name is taken for another one misspelled."""


def configuration_of(
    model: str, *, trust_remote_code: bool = False
) -> PreTrainedConfig:
    """Find the configuration that a text means.

    Args:
        model: folder or file of it, a bundled name, or one of the hub.
        trust_remote_code: whether code that comes with it may be run.

    Raises:
        WorkloadError: there is none, or `transformers` does not know its kind.
    """
    path = Path(model).expanduser()
    if path.exists():
        file = path / CONFIG_FILE if path.is_dir() else path
        fields = read_json(file)
        register_code(fields, str(file.parent), is_asked_for=trust_remote_code)
        return parsed(fields, model)
    if (name := bundled_name(model)) is not None:
        return parsed(bundled()[name]["configuration"], model)
    if is_hub_name(model):
        fields = read_json(downloaded(model))
        register_code(fields, model, is_asked_for=trust_remote_code)
        return parsed(fields, model)
    close = difflib.get_close_matches(model, bundled(), n=3, cutoff=ALIKE)
    alike = f": did you mean {' or '.join(close)}?" if close else ""
    raise WorkloadError(
        f"no model {model!r}{alike or '.'} Give the folder or file of a {CONFIG_FILE}, "
        "a name that `plimsoll support` lists, or org/name of the hub"
    )


@cache
def bundled() -> dict[str, dict[str, Any]]:
    """Public models by name: number of parameters, source and configuration."""
    text = (
        resources.files("plimsoll_trainer.huggingface")
        .joinpath("models.json")
        .read_text("utf-8")
    )
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def with_blocks(config: PreTrainedConfig, num_blocks: int) -> PreTrainedConfig:
    """The configuration with another number of blocks, and of their kinds."""
    fields = config.to_dict()
    fields.pop("layer_types", None)  # of each block; made anew where it is needed
    name = config.attribute_map.get(BLOCKS, BLOCKS)
    return parsed(fields | {name: num_blocks}, f"{num_blocks} blocks")


def bundled_name(model: str) -> str | None:
    """Name of the bundled model that a text means; case and organisation are free."""
    last = model.rpartition("/")[2].casefold()
    return next((name for name in bundled() if name.casefold() == last), None)


def read_json(path: Path) -> dict[str, Any]:
    """Read a configuration.

    Raises:
        WorkloadError: there is none, or it is no JSON object.
    """
    try:
        found: object = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # of the text or of its encoding
        raise WorkloadError(f"{path}: no JSON in UTF-8: {error}") from error
    if not isinstance(found, dict):
        raise WorkloadError(f"{path}: no configuration, which is a JSON object")
    return found


def parsed(fields: Mapping[str, Any], model: str) -> PreTrainedConfig:
    """Configuration of some fields.

    Raises:
        WorkloadError: `transformers` has no such kind of model, or refuses a field.
    """
    kind = fields.get("model_type")
    if not isinstance(kind, str):
        raise WorkloadError(
            f"{model}: its configuration names no model_type: give a {CONFIG_FILE} "
            "that transformers has saved"
        )
    if kind not in CONFIG_MAPPING:
        close = difflib.get_close_matches(kind, CONFIG_MAPPING, n=1, cutoff=ALIKE)
        alike = f" (it knows {close[0]!r})" if close else ""
        raise WorkloadError(
            f"{model}: the installed transformers has no model_type {kind!r}{alike}"
            ": install a newer one, or write a workload"
        )
    try:
        return CONFIG_MAPPING[kind].from_dict(dict(fields))
    except Exception as error:
        reason = reason_of(error)
        raise WorkloadError(f"{model}: model_type {kind!r}: {reason}") from error


def kinds() -> list[str]:
    """All kinds of causal language models that `transformers` has, in order."""
    return sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) & set(CONFIG_MAPPING))


def hush() -> None:
    """Let `transformers` log errors alone: missing kernels slow no reading down."""
    level: Callable[[], None] = logging.set_verbosity_error
    level()


def downloaded(model: str) -> Path:
    """Fetch the configuration of a model of the hub, or find it in the hub's cache.

    Raises:
        WorkloadError: the hub's client is missing, or has not got it.
    """
    advice = f"get {CONFIG_FILE} of {model} elsewhere, and give its folder"
    return from_hub(model, lambda hub: hub.hf_hub_download(model, CONFIG_FILE), advice)
