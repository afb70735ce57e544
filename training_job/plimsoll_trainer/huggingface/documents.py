"""Documents of files or data sets, read by `datasets` one after the other.

    {"path": "notes.jsonl"}                         each line an object with "text"
    {"path": ["a.parquet", "b.parquet"], "text": "body"}
    {"path": "pairs.jsonl"}                         "prompt" and "completion"
    {"path": "chats.jsonl"}                         "messages", by the chat template
    {"path": "tokens.npy"}                          token ids, made already

In: where they are. Out: rows, and the columns that matter. Called by `token_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_trainer.adapters.text_corpus import files_at
from plimsoll_trainer.errors import WorkloadError, causes, reason_of
from plimsoll_trainer.huggingface.hub import is_hub_name

BUILDERS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""Ends of file names, and how `datasets` reads such files."""
ARRAY = ".npy"
SAVED = "dataset_info.json"
"""In a folder that `save_to_disk` has written."""
TEXT, PROMPT, COMPLETION, MESSAGES = "text", "prompt", "completion", "messages"
TOKENS, LABELS = "input_ids", "labels"
COLUMNS = (TEXT, PROMPT, COMPLETION, MESSAGES)
"""Columns that may have another name, which is then given."""
FIELDS = ("path", "split", *COLUMNS)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """Data, and how it is read."""

    paths: tuple[str, ...]
    split: str
    columns: tuple[tuple[str, str], ...]
    """Our names of columns and those of the data, where they differ."""

    @property
    def name(self) -> str:
        """Name in a message."""
        first, *more = self.paths
        return f"{first} and {len(more)} more" if more else first

    def column(self, ours: str) -> str:
        """Name that a column has in the data."""
        return dict(self.columns).get(ours, ours)

    @property
    def files(self) -> list[Path]:
        """Files that it is read from, in order; none: it is of the hub.

        Raises:
            WorkloadError: a path is not there.
        """
        if self.is_on_hub:
            return []
        return [file for path in self.paths for file in files_at(Path(path))]

    @property
    def is_on_hub(self) -> bool:
        """Whether it is a data set of the hub."""
        path, *others = self.paths
        is_here = Path(path).exists() or bool(Path(path).suffix)
        return not others and is_hub_name(path) and not is_here


def data_source(data: object) -> DataSource:
    """Data as an entry point's arguments name it: a path, several, or fields.

    Raises:
        WorkloadError: it is something else.
    """
    fields: Mapping[str, Any] = data if isinstance(data, Mapping) else {"path": data}
    for name in fields:
        if name not in FIELDS:
            raise WorkloadError(
                f"data has no field {name!r}: it takes {', '.join(FIELDS)}"
            )
    paths = fields.get("path")
    several = [paths] if isinstance(paths, str) else paths
    if not isinstance(several, Sequence) or not several:
        raise WorkloadError(
            f"data {data!r} names no path: give a file, a folder, or a list of files"
        )
    return DataSource(
        paths=tuple(str(Path(path).expanduser()) for path in several),
        split=str(fields.get("split", "train")),
        columns=tuple(
            (name, str(fields[name])) for name in COLUMNS if fields.get(name)
        ),
    )


def rows_of(source: DataSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of the data, one after the other.

    Raises:
        WorkloadError: `datasets` is not installed, or cannot read it.
    """
    try:
        import datasets  # noqa: PLC0415 - arrays of tokens need none
    except ModuleNotFoundError:
        raise WorkloadError(
            f"datasets is not installed to read {source.name}: install it, or give "
            f"token ids as an array ({ARRAY})"
        ) from None
    load: Callable[..., Any] = datasets.load_dataset
    from_disk: Callable[..., Any] = datasets.load_from_disk
    try:
        if len(source.paths) == 1 and (Path(source.paths[0]) / SAVED).is_file():
            yield from from_disk(source.paths[0])
        elif source.is_on_hub:
            yield from load(source.paths[0], split=source.split, streaming=True)
        else:
            for builder, files in builders(source):
                options = {"sample_by": "document"} if builder == "text" else {}
                yield from load(
                    builder,
                    data_files=[str(file) for file in files],
                    split="train",
                    streaming=True,
                    **options,
                )
    except (WorkloadError, GeneratorExit):
        raise
    except Exception as error:
        *_, first = causes(error)  # the readers wrap what happened
        raise WorkloadError(
            f"{source.name} cannot be read: {reason_of(first)}"
        ) from error


def builders(source: DataSource) -> Iterator[tuple[str, list[Path]]]:
    """Yield how to read the files, those of one kind together.

    Raises:
        WorkloadError: a file is of no kind that is known, or empty.
    """
    found: dict[str, list[Path]] = {}
    for file in source.files:
        kinds = [BUILDERS[end] for end in file.suffixes if end in BUILDERS]
        if not kinds:
            raise WorkloadError(
                f"{file} is of no kind that can be read: name it "
                f"{', '.join(f'*{end}' for end in BUILDERS)}"
            )
        if not file.stat().st_size:
            raise WorkloadError(f"{file} is empty: give a file with text")
        found.setdefault(kinds[-1], []).append(file)
    if not found:
        raise WorkloadError(f"{source.name} has no files: give one with text")
    yield from found.items()
