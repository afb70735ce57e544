"""Reads and writes documents; what goes wrong is one line with what to do next.

In: paths that a person typed. Out: records, or files. Called by every verb but offers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from plimsoll_cli.errors import CannotWriteError
from plimsoll_planner.errors import (
    InvalidFieldError,
    MissingFieldError,
    UnknownFieldError,
    UnreadableError,
    shorten,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import (
    AnyDocument,
    Document,
    from_text,
    load,
    read_whole,
    to_text,
    write_whole,
)
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.solution import Infeasible, Solution

WRITERS: dict[type[Document], str] = {
    ModelProfile: "plimsoll profile writes one",
    DeviceOverhead: "without --overhead one is assumed",
    Solution: "plimsoll plan --solution writes one",
}
"""The source of a document of each kind."""


def read(path: Path, kind: type[AnyDocument]) -> AnyDocument:
    """Read a document.

    Raises:
        UnreadableError: no such file, no JSON, another kind, or fields of another
            release; says what writes one.
        InvalidFieldError, SchemaVersionError: see `Document.from_json`.
    """
    try:
        return load(path, kind)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {WRITERS[kind]}") from None
    except (MissingFieldError, UnknownFieldError) as error:
        raise of_another_release(error, kind) from None
    except InvalidFieldError as error:
        if error.path != f"{path}: {kind.__name__}.kind":
            raise
        raise UnreadableError(kind_text(path, error.value, kind)) from None


def read_answer(path: Path) -> Solution | Infeasible:
    """Read what `plimsoll plan --solution` wrote.

    Raises:
        UnreadableError: no such file, no JSON, neither of the two kinds, or fields of
            another release; says what writes one.
        InvalidFieldError, SchemaVersionError: see `Document.from_json`.
    """
    try:
        text = read_whole(path)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {WRITERS[Solution]}") from None
    value = parse_json(text, path)
    kind: object = None
    if isinstance(value, dict):
        kind = cast("dict[str, object]", value).get("kind")
    if kind not in {Solution.__name__, Infeasible.__name__}:
        raise UnreadableError(kind_text(path, kind, Solution, Infeasible))
    try:
        if kind == Solution.__name__:
            return from_text(text, Solution, str(path))
        return from_text(text, Infeasible, str(path))
    except (MissingFieldError, UnknownFieldError) as error:
        raise of_another_release(error, Solution) from None


def parse_json(text: str | bytes, path: Path) -> object:
    """The JSON of a file.

    Raises:
        UnreadableError: it is none.
    """
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not readable as JSON: {error}") from None


def of_another_release(
    error: MissingFieldError | UnknownFieldError, kind: type[Document]
) -> UnreadableError:
    """The error with what to do about fields that this release does not have."""
    advice = f"if another release wrote it, make it anew: {WRITERS[kind]}"
    return UnreadableError(f"{error}; {advice}")


def kind_text(path: Path, found: object, *needed: type[Document]) -> str:
    """Message about a file that holds another kind of document."""
    names = " or ".join(kind.__name__ for kind in needed)
    return f"{path}: kind is {shorten(found)}, needs {names}; {WRITERS[needed[0]]}"


def require_places(
    outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()
) -> None:
    """Refuse outputs that cannot be written, or are inputs, before minutes are spent.

    Raises:
        CannotWriteError: a folder is not there, or two files are one.
    """
    taken = {path.resolve(): f"{path}, which is read" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        place = path.resolve()
        if place.is_dir():
            raise CannotWriteError(f"{option}: {path} is a folder; name a file in it")
        if place.exists() and not place.is_file():
            continue  # a device or a pipe takes several
        if place in taken:
            text = f"{option} would overwrite {taken[place]}; choose another file"
            raise CannotWriteError(text)
        taken[place] = f"the file of {option}"
        require_folder(option, path)


def require_folder(option: str, path: Path) -> None:
    """Refuse a file whose folder does not take one."""
    folder = path.resolve().parent
    advice = f"make it, or choose another {option}"
    if not folder.is_dir():
        raise CannotWriteError(f"cannot write {path}: no folder {folder}; {advice}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror}; choose another {option}"
        raise CannotWriteError(reason) from None


def write(path: Path, document: Document) -> None:
    """Write a document; see `write_text`."""
    write_text(path, to_text(document) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text whole, or say why it cannot be written.

    Raises:
        CannotWriteError: a full disk, for one.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise CannotWriteError(f"cannot write {path}: {error.strerror}") from None
