"""Documents of files or data sets, read by `datasets` one after the other.

    {"path": "notes.jsonl"}                         each line an object with "text"
    {"path": ["a.parquet", "b.parquet"], "text": "body"}
    {"path": "pairs.jsonl"}                         "prompt" and "completion"
    {"path": "chats.jsonl"}                         "messages", by the chat template
    {"path": "tokens.npy"}                          token ids, made already
    {"path": "org/name", "revision": "v2"}          of the hub, at a tag or commit
    {"path": "org/name", "subset": "en"}            one of its configurations

Of a folder, all files are read but those that are hidden or about it (`ABOUT`). In:
where they are. Out: rows, and the columns that matter. Called by `token_files`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from textwrap import shorten
from typing import Any

from plimsoll_trainer.adapters.text_corpus import files_at
from plimsoll_trainer.errors import LONGEST_REASON, WorkloadError, causes
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
LINES = ".jsonl"
ABOUT = ("readme", "license", "licence", "copying", "notice")
"""Names of files, without their ends, that are no data where they lie in a folder."""
SAVED = "saved"
"""How a folder is read that `save_to_disk` has written."""
SIGNS = ("dataset_info.json", "dataset_dict.json")
"""Files in such a folder: of one split, or of several."""
TRAIN = "train"
"""Split of what has no others."""
TEXT, PROMPT, COMPLETION, MESSAGES = "text", "prompt", "completion", "messages"
TOKENS, LABELS = "input_ids", "labels"
COLUMNS = (TEXT, PROMPT, COMPLETION, MESSAGES)
"""Columns that may have another name, which is then given."""
FIELDS = ("path", "subset", "split", "revision", *COLUMNS)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """Data, and how it is read."""

    paths: tuple[str, ...]
    subset: str | None
    """Configuration of a data set of the hub that has several; None: its only one."""
    split: str
    revision: str | None
    """Branch, tag or commit of a data set of the hub; None: its newest."""
    columns: tuple[tuple[str, str], ...]
    """Our names of columns and those of the data, where they are given."""

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
            WorkloadError: a path is not there, or has no such split or revision.
        """
        if self.is_on_hub:
            return []
        return [file for path in self.paths for file in self.files_at(Path(path))]

    def files_at(self, path: Path) -> list[Path]:
        """Files of one of the paths.

        Raises:
            WorkloadError: it is not there, or has no such split or revision.
        """
        if not path.exists():
            raise WorkloadError(
                f"data: {path} is neither a file nor a folder here, and the hub is "
                "asked for org/name alone, where no folder org is: check the path"
            )
        for what, is_given in (
            ("subset", self.subset is not None),
            ("revision", self.revision is not None),
            ("split", self.split != TRAIN and not is_saved(path)),
        ):
            if is_given:
                raise WorkloadError(
                    f"{path} has no {what} {getattr(self, what)!r}, for it is at hand "
                    f"as files: leave {what} out"
                )
        whole = path.is_file() or is_saved(path)
        return [
            file
            for file in files_at(path)
            if whole or file.stem.casefold() not in ABOUT
        ]

    @property
    def arrays(self) -> list[Path]:
        """Files that are arrays of token ids: all of them, or none.

        Raises:
            WorkloadError: some are and others are not.
        """
        files = self.files
        arrays = [file for file in files if file.suffix == ARRAY]
        if arrays and arrays != files:
            other = next(file for file in files if file not in arrays)
            raise WorkloadError(
                f"{arrays[0]} is an array of token ids, and {other} is not: give "
                "arrays alone, or none"
            )
        return arrays

    @property
    def is_on_hub(self) -> bool:
        """Whether it is a data set of the hub: org/name, where there is no org here."""
        first, *others = self.paths
        path = Path(first)
        is_file = not {ARRAY, *BUILDERS}.isdisjoint(path.suffixes)
        is_here = is_file or path.parent.exists()
        return not others and is_hub_name(first) and not is_here


def is_saved(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return any((path / name).is_file() for name in SIGNS)


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
    subset, revision = fields.get("subset"), fields.get("revision")
    return DataSource(
        paths=tuple(str(Path(path).expanduser()) for path in several),
        subset=None if subset is None else str(subset),
        split=str(fields.get("split", TRAIN)),
        revision=None if revision is None else str(revision),
        columns=tuple(
            (name, str(fields[name])) for name in COLUMNS if fields.get(name)
        ),
    )


def rows_of(source: DataSource, cache: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the data, one after the other.

    Args:
        source: where they are.
        cache: folder that `datasets` may write to, where it has files to read.

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
    # It would tell the hub of each file that is read here, and log what we raise.
    settings: Any = datasets.config  # pyright: ignore[reportAttributeAccessIssue]
    settings.HF_UPDATE_DOWNLOAD_COUNTS = False
    logging.getLogger("datasets").setLevel(logging.CRITICAL)
    load: Callable[..., Any] = datasets.load_dataset
    if source.is_on_hub:
        name, advice = source.name, "check the name, or give files got elsewhere"
        with readable(name, advice):
            yield from load(
                name,
                name=source.subset,
                split=source.split,
                revision=source.revision,
                streaming=True,
            )
        return
    places = [
        place
        for path in map(Path, source.paths)
        for place in ([path] if is_saved(path) else source.files_at(path))
    ]
    if not places:
        raise WorkloadError(f"{source.name} has no files of data: give some")
    builders = [SAVED if place.is_dir() else builder_of(place) for place in places]
    for place, builder in zip(places, builders, strict=True):
        with readable(place, "mend it, or leave it out"):
            if builder == SAVED:
                saved: Any = datasets.load_from_disk(str(place))
                yield from split_of(saved, place, source.split)
            elif BUILDERS.get(place.suffix) == TEXT:
                yield {source.column(TEXT): place.read_text("utf-8")}
            else:
                options = {"sample_by": "document"} if builder == TEXT else {}
                yield from load(
                    builder,
                    data_files=[escape(str(place))],  # else a pattern
                    split=TRAIN,
                    streaming=True,
                    cache_dir=str(cache),
                    **options,
                )


@contextmanager
def readable(place: str | Path, advice: str) -> Iterator[None]:
    """Within it, what is raised is told of a file, folder or data set of the hub.

    Raises:
        WorkloadError: something was raised.
    """
    try:
        yield
    except WorkloadError:
        raise
    except Exception as error:
        *_, first = causes(error)  # the readers wrap what happened
        reason = broken_line(Path(place)) or f"{type(first).__name__}: {first}"
        raise WorkloadError(
            f"{place} cannot be read: {shorten(reason, LONGEST_REASON)}: {advice}"
        ) from error


def broken_line(file: Path) -> str:
    """First line of a file of lines of JSON that is none, and why; else empty."""
    if file.suffix != LINES:
        return ""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                json.loads(line if line.strip() else b"0")
            except ValueError as error:  # of the JSON or of its encoding
                return f"line {number}: {error}"
    return ""


def split_of(found: Any, path: Path, split: str) -> Any:
    """Split of what `save_to_disk` has written, which may have several.

    Raises:
        WorkloadError: there is none of that name.
    """
    splits = found
    if not isinstance(found, Mapping):
        splits = {str(found.split or TRAIN): found, TRAIN: found}
    if split in splits:
        return splits[split]
    raise WorkloadError(
        f"{path} has no split {split!r}: there is {', '.join(splits)}; name that as "
        "split"
    )


def builder_of(file: Path) -> str:
    """How `datasets` reads a file.

    Raises:
        WorkloadError: it is of no kind that is known, or empty.
    """
    kinds = [BUILDERS[end] for end in file.suffixes if end in BUILDERS]
    if not kinds:
        raise WorkloadError(
            f"{file} is of no kind that can be read: name it "
            f"{', '.join(f'*{end}' for end in BUILDERS)}, or leave it out"
        )
    if not file.stat().st_size:
        raise WorkloadError(f"{file} is empty: give a file with text")
    return kinds[-1]
