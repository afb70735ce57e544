"""Documents as token ids, by the tokenizer in a model's folder.

In: rows of data. Out: for each document its tokens, and which of them count for the
loss: all of a text, those of a completion behind its prompt. A document ends with the
tokenizer's end of text. Called by `token_files`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby, islice
from pathlib import Path
from textwrap import shorten
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
from plimsoll_trainer.user_code.model_files import CONFIG_FILE

LONGEST_VALUE = 60
"""Letters of what stands in a row where something else should."""
AT_ONCE = 1000
"""Documents that the tokenizer is given together."""
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spiece.model",
    "bpe.codes",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""Of a tokenizer, in the folder of a model."""
LIBRARIES = ("transformers", "tokenizers")
"""By which the same files may become other tokens in another version."""
DOCUMENTS = {
    TOKENS: (TOKENS,),
    MESSAGES: (MESSAGES,),
    PROMPT: (PROMPT, COMPLETION),
    TEXT: (TEXT,),
}
"""Columns that a document is made of; of those that are there the first is taken."""


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
        stream = enumerate(rows, 1)
        while some := list(islice(stream, AT_ONCE)):
            for column, alike in groupby(
                some, lambda one: column_of(one[1], one[0], source)
            ):
                if column == TOKENS:
                    yield from (self._ready(row, at, source) for at, row in alike)
                elif column == PROMPT:
                    yield from self._pairs(list(alike), source)
                else:
                    yield from self._texts(list(alike), source, column)

    def _ready(self, row: Mapping[str, Any], at: int, source: DataSource) -> Tokens:
        """Tokens that the data has itself."""
        ids, where = whole_numbers(row, at, source, TOKENS), f"{source.name}: row {at}"
        check_known(ids, self._vocabulary, where)
        given = row.get(LABELS) is not None
        labels = whole_numbers(row, at, source, LABELS) if given else ids
        if labels.size != ids.size:
            raise WorkloadError(
                f"{where} has {ids.size} {TOKENS} and {labels.size} {LABELS}: give one "
                f"of these for each of those, {IGNORED} where it does not count"
            )
        counts = labels != IGNORED
        for place in np.flatnonzero(counts & (labels != ids))[:1]:
            raise WorkloadError(
                f"{where} has {labels[place]} in {LABELS} where {TOKENS} has "
                f"{ids[place]}: give the same, or {IGNORED} where it does not count; "
                "the next token is the target of each by itself"
            )
        return Tokens(ids.astype(np.int32), counts)

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


def column_of(row: Mapping[str, Any], at: int, source: DataSource) -> str:
    """Our name of the column that a document is in; those that were named win.

    Raises:
        WorkloadError: there is none of them.
    """
    given = dict(source.columns)
    wanted = {
        kind: [source.column(part) for part in parts]
        for kind, parts in DOCUMENTS.items()
        if not given or not given.keys().isdisjoint(parts)
    }
    for kind, names in wanted.items():
        if all(row.get(name) is not None for name in names):
            return kind
    for kind, names in wanted.items():
        if all(name in row for name in names):
            return kind  # with nothing in it, which is refused by its name
    needed = ", ".join(" with ".join(map(repr, names)) for names in wanted.values())
    raise WorkloadError(
        f"{source.name}: row {at} has the columns {', '.join(row)}, and none that is "
        f"read ({needed}): name one, as in "
        f"{{'path': ..., 'text': {next(iter(row), 'body')!r}}}"
    )


def whole_numbers(
    row: Mapping[str, Any], at: int, source: DataSource, column: str
) -> NDArray[np.int64]:
    """Whole numbers in a column of a row: [tokens].

    Raises:
        WorkloadError: it has something else.
    """
    try:
        found = np.asarray(row[column])
    except ValueError:  # lists of unequal lengths
        found = np.empty((0, 0))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise WorkloadError(
            f"{source.name}: row {at} has {shorten(repr(row[column]), LONGEST_VALUE)} "
            f"in column {column!r}, and a list of whole numbers is needed: leave the "
            "row out, or name another column"
        )
    return found.astype(np.int64)


def check_known(ids: NDArray[Any], vocabulary: int, where: str) -> None:
    """Refuse tokens that the model has not.

    Raises:
        WorkloadError: there is one.
    """
    if not ids.size or 0 <= (least := ids.min()) <= (most := ids.max()) < vocabulary:
        return
    raise WorkloadError(
        f"{where} has token {least if least < 0 else most}, and the model knows 0 to "
        f"{vocabulary - 1}: make the tokens with the model's own tokenizer"
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
    """SHA-256 of all that tokens depend on: files, code with them, and libraries.

    The configuration of the model is among them, for its kind may choose the class.
    """
    whole = hashlib.sha256()
    code = sorted(file.name for file in folder.glob("*.py"))
    for name in (CONFIG_FILE, *FILES, *code):
        if (folder / name).is_file():
            whole.update(name.encode() + (folder / name).read_bytes())
    for library in LIBRARIES:
        whole.update(f"{library} {version(library)}".encode())
    return whole.hexdigest()
