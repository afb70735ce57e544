"""Types of options: numbers, memory, models, JSON; each refuses in one line.

In: a word of the command line. Out: a value. Called by click for every verb's options.
"""

from __future__ import annotations

import json
import math
import os
from enum import StrEnum
from pathlib import Path

import click

from plimsoll_planner.errors import shorten
from plimsoll_planner.units import UNITS, bytes_of


class WholeNumber(click.IntRange):
    """A whole number; click would call its type an `integer range`."""

    name = "integer"


class FiniteNumber(click.FloatRange):
    """A number within its range; `nan` compares with no bound and is in none."""

    name = "number"

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or fail."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"got {value}, allowed is a finite number", param, ctx)
        return found


COUNT = WholeNumber(min=1)


class WordOf(click.Choice[str]):
    """One word of a closed set, in capitals or not."""

    def __init__(self, words: type[StrEnum]) -> None:
        """Take the words that JSON has."""
        super().__init__([word.value for word in words], case_sensitive=False)
        self.words = words

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> StrEnum:
        """The word, or fail."""
        return self.words(super().convert(str(value), param, ctx))


class ByteQuantity(click.ParamType[int]):
    """An amount of memory with its unit, as in `40GiB`."""

    name = "memory"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Bytes, at least one, or fail with an example of what is meant."""
        num_bytes = bytes_of(str(value))
        if num_bytes is None:
            units = ", ".join(UNITS)
            rule = f"a number and its unit, as in 40GiB ({units})"
            self.fail(f"got {shorten(value)}, allowed is {rule}", param, ctx)
        if num_bytes == 0:
            self.fail(f"got {shorten(value)}, allowed is 1 byte or more", param, ctx)
        return num_bytes


PATH = click.Path(path_type=Path)


class FolderPath(click.Path):
    """A folder; an empty name, as of a variable that is not set, is refused."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path, or fail."""
        if not str(value):
            self.fail("got an empty name, allowed is a folder", param, ctx)
        return super().convert(value, param, ctx)


class ModelName(click.ParamType[str]):
    """A model or a profile, as typed; an empty name is refused."""

    name = "model"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The name, or fail with what may be given."""
        if not str(value).strip():
            rule = "a profile, a folder with a config.json, or a name of a model"
            self.fail(f"got an empty name, allowed is {rule}", param, ctx)
        return str(value)


MODEL = ModelName()


class JsonObject(click.ParamType[str]):
    """A JSON object, kept as text."""

    name = "json"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The text, or fail with an example of what is meant."""
        try:
            found = json.loads(str(value))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            example = '{"depth": 8}'
            self.fail(f"got {value}, allowed is a JSON object: {example}", param, ctx)
        return str(value)
