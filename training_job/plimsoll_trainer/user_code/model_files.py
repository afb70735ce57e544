"""Configurations that arguments name, and code beside them: a model follows from them.

    {"model": "./qwen"}              qwen/config.json, qwen/*.py
    {"model": "./qwen/own.json"}     itself, if it names a `model_type`

In: the arguments of an entry point. Out: the files, by the name that they are given
by. Called for the fingerprint: a model that was changed in its place is another one.
Weights and data do not count, for no layer costs more or less by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

CONFIG_FILE = "config.json"
"""In the folder of each model of `transformers`."""
MODEL_TYPE = "model_type"
"""Field that a configuration of `transformers` has."""
MOST_BYTES = 2**20
"""A larger file is data."""


def model_files(arguments: Mapping[str, object]) -> list[tuple[str, Path]]:
    """Files of the models that are named, by name."""
    named = {text for value in arguments.values() for text in texts_in(value)}
    return sorted(
        (f"{text}/{file.name}", file) for text in named for file in files_at(text)
    )


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts of an argument, however deep they are in lists and fields."""
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)


def files_at(text: str) -> Iterator[Path]:
    """Yield the files of a model that a text names; none if it names no model."""
    try:
        path = Path(text).expanduser()
        if (path / CONFIG_FILE).is_file():
            yield path / CONFIG_FILE
            yield from sorted(path.glob("*.py"))
        elif path.suffix == ".json" and is_configuration(path):
            yield path
    except (OSError, ValueError, RuntimeError):  # no path, no such user, not readable
        return


def is_configuration(path: Path) -> bool:
    """Whether a file names a kind of model."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return False
    found: object = json.loads(path.read_bytes())
    return isinstance(found, dict) and MODEL_TYPE in found
