"""Documents as token ids, by the tokenizer in a model's folder.

In: rows of data. Out: for each document its tokens, and which of them count for the
loss: all of a text, those of a completion behind its prompt. A document ends with the
tokenizer's end of text. Called by `token_files`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from plimsoll_trainer.adapters.losses import IGNORED
from plimsoll_trainer.errors import WorkloadError, reason_of
from plimsoll_trainer.huggingface.documents import (
    COMPLETION,
    LABELS,
    MESSAGES,
    PROMPT,
    TEXT,
    TOKENS,
    DataSource,
)

AT_ONCE = 1000
"""Documents that the tokenizer is given together."""
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""Of a tokenizer, in the folder of a model."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one document."""

    ids: NDArray[np.int32]
    counts: NDArray[np.bool_]


class Tokenizer:
    """Tokenizer of a model."""

    def __init__(
        self, folder: Path, vocabulary: int, *, trust_remote_code: bool = False
    ) -> None:
        """Load it.

        Args:
            folder: of the model.
            vocabulary: tokens that the model knows.
            trust_remote_code: whether code that comes with it may be run.

        Raises:
            WorkloadError: there is none, or it is of a larger vocabulary.
        """
        load: Callable[..., Any] = AutoTokenizer.from_pretrained
        if not any((folder / name).is_file() for name in FILES):
            raise WorkloadError(
                f"{folder} has no tokenizer: copy tokenizer.json and "
                "tokenizer_config.json there, or name its folder as tokenizer"
            )
        try:
            self._tokenizer = load(str(folder), trust_remote_code=trust_remote_code)
        except Exception as error:
            reason = reason_of(error)
            raise WorkloadError(
                f"{folder}: its tokenizer cannot be loaded: {reason}"
            ) from error
        self._folder, self._vocabulary = folder, vocabulary
        if (most := max(self._tokenizer.get_vocab().values(), default=0)) >= vocabulary:
            raise WorkloadError(
                f"{folder}: its tokenizer has a token {most}, and the model knows "
                f"{vocabulary}: name the folder of the model's own as tokenizer"
            )

    def documents(
        self, rows: Iterable[Mapping[str, Any]], source: DataSource
    ) -> Iterator[Tokens]:
        """Yield tokens of each row.

        Raises:
            WorkloadError: a row has none of the columns that are read, or no text in
                them.
        """
        stream = enumerate(rows)
        while some := list(islice(stream, AT_ONCE)):
            column = column_of(some[0][1], source)
            if column == TOKENS:
                yield from (self._ready(row, at, source) for at, row in some)
            elif column == PROMPT:
                yield from self._pairs(some, source)
            else:
                yield from self._texts(some, source, column)

    def _ready(self, row: Mapping[str, Any], at: int, source: DataSource) -> Tokens:
        """Tokens that the data has itself."""
        ids = np.asarray(row[TOKENS], dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            raise WorkloadError(
                f"{source.name}: row {at} has token {ids.max()}, and the model knows "
                f"{self._vocabulary}: make the tokens with the model's own tokenizer"
            )
        labels = np.asarray(row.get(LABELS) or row[TOKENS])
        return Tokens(ids.astype(np.int32), labels != IGNORED)

    def _texts(
        self, rows: list[tuple[int, Mapping[str, Any]]], source: DataSource, column: str
    ) -> Iterator[Tokens]:
        """Yield tokens of whole texts, or of chats."""
        is_chat = column == MESSAGES
        texts = [text_in(row, at, source, column) for at, row in rows if not is_chat]
        if is_chat:
            texts = [self._chat(row, at, source) for at, row in rows]
        for ids in self._encoded(texts, special=not is_chat):
            whole = ids if is_chat else [*ids, *self._end]
            yield Tokens(np.asarray(whole, np.int32), np.ones(len(whole), np.bool_))

    def _chat(self, row: Mapping[str, Any], at: int, source: DataSource) -> str:
        """Text of a chat, by the tokenizer's template."""
        messages = row[source.column(MESSAGES)]
        try:
            text: str = self._tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception as error:
            reason = reason_of(error)
            raise WorkloadError(
                f"{source.name}: row {at}: no text of its messages: {reason}"
            ) from error
        return text

    def _pairs(
        self, rows: list[tuple[int, Mapping[str, Any]]], source: DataSource
    ) -> Iterator[Tokens]:
        """Yield tokens of prompts and completions, which alone count."""
        prompts = [text_in(row, at, source, PROMPT) for at, row in rows]
        answers = [text_in(row, at, source, COMPLETION) for at, row in rows]
        for before, after in zip(
            self._encoded(prompts, special=True),
            self._encoded(answers, special=False),
            strict=True,
        ):
            whole = [*before, *after, *self._end]
            counts = np.arange(len(whole)) >= len(before)
            yield Tokens(np.asarray(whole, np.int32), counts)

    def _encoded(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Tokens of each text; `special` with those that a text begins with."""
        found: list[list[int]] = self._tokenizer(
            texts, add_special_tokens=special, verbose=False
        )["input_ids"]
        end = self._end
        return [
            ids[:-1] if special and end and ids[-1:] == end else ids for ids in found
        ]

    @property
    def _end(self) -> list[int]:
        """Token that ends a text, if there is one."""
        end: int | None = self._tokenizer.eos_token_id
        return [] if end is None else [end]


def column_of(row: Mapping[str, Any], source: DataSource) -> str:
    """Our name of the column that a document is in.

    Raises:
        WorkloadError: there is none of them.
    """
    if TOKENS in row:
        return TOKENS
    for name in (MESSAGES, PROMPT, TEXT):
        if source.column(name) in row:
            return name
    raise WorkloadError(
        f"{source.name} has the columns {', '.join(row)}, and none is "
        f"{source.column(TEXT)!r}, {PROMPT!r}, {MESSAGES!r} or {TOKENS!r}: name one, "
        f"as in {{'path': ..., 'text': {next(iter(row), 'body')!r}}}"
    )


def text_in(row: Mapping[str, Any], at: int, source: DataSource, column: str) -> str:
    """Text of a row.

    Raises:
        WorkloadError: there is none.
    """
    name = source.column(column)
    found = row.get(name)
    if not isinstance(found, str):
        raise WorkloadError(
            f"{source.name}: row {at} has {type(found).__name__} in column {name!r}, "
            "and a text is needed: leave the row out"
        )
    return found


def digest_of_tokenizer(folder: Path) -> str:
    """SHA-256 of the files of a tokenizer."""
    whole = hashlib.sha256()
    for name in FILES:
        if (folder / name).is_file():
            whole.update(name.encode() + (folder / name).read_bytes())
    return whole.hexdigest()
