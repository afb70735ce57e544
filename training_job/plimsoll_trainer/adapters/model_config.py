"""The configuration of a model of `transformers`, as an adapter is given it.

In: a configuration, or a mapping with its fields. Out: a configuration. Called by
`causal_lm`, `encoder` and `image_classifier`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from torch import nn
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.errors import WorkloadError, reason_of

ALIKE = 0.8
"""Ratio of difflib, from which on a field is taken for another one misspelled."""


def parse_config(
    config: PreTrainedConfig | Mapping[str, Any], taker: str = "causal_lm"
) -> PreTrainedConfig:
    """Configuration from a mapping, or as it is given to an adapter.

    Raises:
        WorkloadError: no `model_type`, an unknown one, or a field it refuses; or
            something else than a configuration.
    """
    if isinstance(config, PreTrainedConfig):
        return config
    if not isinstance(config, Mapping):
        raise WorkloadError(f"{taker} takes a configuration, {instead_of(config)}")
    fields = dict(config)
    kind = fields.pop("model_type", None)
    if not isinstance(kind, str):
        raise WorkloadError(
            "the configuration names no model_type: give one that transformers knows, "
            "as in {'model_type': 'llama', 'num_hidden_layers': 16}"
        )
    try:
        parsed: PreTrainedConfig = AutoConfig.for_model(kind, **fields)
    except Exception as error:
        reason = reason_of(error)
        raise WorkloadError(f"model_type {kind!r} with {fields}: {reason}") from error
    check_spelling(kind, fields)
    return parsed


def check_spelling(kind: str, fields: Iterable[str]) -> None:
    """Refuse a field that a configuration does not know, but a similar one.

    `transformers` keeps any field, and files of configurations have some of old
    releases; so one that resembles none is left alone.

    Raises:
        WorkloadError: names both.
    """
    default = AutoConfig.for_model(kind)
    names = {*dir(default), *vars(default), *default.attribute_map}
    for field in fields:
        close = difflib.get_close_matches(field, names, n=1, cutoff=ALIKE)
        if field not in names and close:
            raise WorkloadError(
                f"model_type {kind!r} has no field {field!r}: did you mean "
                f"{close[0]!r}?"
            )


def instead_of(given: object) -> str:
    """Text about a thing that was given in place of a configuration."""
    if isinstance(given, (str, PathLike)):
        name = str(given)
        return (
            f"but is given {name!r}: pass AutoConfig.from_pretrained({name!r}); "
            "training starts from fresh weights"
        )
    if isinstance(given, nn.Module):
        return (
            f"but is given a model, {type(given).__name__}: pass its config; training "
            "starts from fresh weights, without adapters"
        )
    return (
        f"but is given {type(given).__name__}: pass one of transformers, or a mapping "
        "as in {'model_type': 'llama', 'num_hidden_layers': 16}"
    )
