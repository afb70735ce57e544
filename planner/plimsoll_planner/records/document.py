"""A record that stands alone in a file or a message, and its text.

The JSON of a document opens with `kind` and `schema_version`, also where it is nested
in another one. Reading refuses what was written by a newer release, what is not JSON,
and a field that is given twice.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from plimsoll_planner.errors import (
    InvalidFieldError,
    SchemaVersionError,
    UnreadableError,
    shorten,
)
from plimsoll_planner.records.record import Record, mapping_of
from plimsoll_planner.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_DOCUMENT_BYTES = 512 * 2**20
"""A profile of 100,000 layers, or a certificate of thousands of GPUs, has less."""

AnyDocument = TypeVar("AnyDocument", bound="Document")


class Document(Record):
    """Base of the records that travel alone."""

    __slots__ = ()
    schema_version: ClassVar[int] = 1
    """Grows when a field changes its meaning or goes away, not when one is added."""

    def to_json(self) -> dict[str, object]:
        """Fields behind the header."""
        header: dict[str, object] = {
            "kind": type(self).__name__,
            "schema_version": self.schema_version,
        }
        return header | Record.to_json(self)

    @classmethod
    def from_json(cls, value: object, path: str) -> Self:
        """Check the header, then read the fields; see `Record.from_json`.

        Raises:
            SchemaVersionError: the document was written by a newer release.
        """
        fields = dict(mapping_of(value, path))
        kind, version = fields.pop("kind", None), fields.pop("schema_version", None)
        if kind != cls.__name__:
            raise InvalidFieldError(f"{path}.kind", kind, cls.__name__)
        if type(version) is not int or version < 1:
            rule = f"a whole number from 1 to {cls.schema_version}"
            raise InvalidFieldError(f"{path}.schema_version", version, rule)
        if version > cls.schema_version:
            raise SchemaVersionError(
                f"{path}.schema_version: got {version}, but Plimsoll {__version__} "
                f"reads up to {cls.schema_version}: install the release that wrote it"
            )
        return super().from_json(cls.upgraded(fields, version, path), path)

    @classmethod
    def upgraded(
        cls, fields: dict[str, object], version: int, path: str
    ) -> dict[str, object]:
        """Fields of a document of an older version, as this one has them."""
        del version, path
        return fields


def to_text(document: Document) -> str:
    """Document as one line of JSON."""
    return json.dumps(document.to_json(), allow_nan=False, ensure_ascii=False)


def from_text(
    text: str | bytes, kind: type[AnyDocument], source: str = ""
) -> AnyDocument:
    """Read a document of the given kind.

    Args:
        text: JSON.
        kind: what it must be.
        source: where the text comes from; opens every message.

    Raises:
        UnreadableError: the text is not JSON.
        InvalidFieldError, SchemaVersionError: see `Document.from_json`.
    """
    path = f"{source}: {kind.__name__}" if source else kind.__name__
    try:
        value = json.loads(text, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise UnreadableError(f"{path}: not readable as JSON: {reason}") from None
    return kind.from_json(value, path)


def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a mapping; refuse a key given twice, where JSON readers differ."""
    mapping: dict[str, object] = {}
    for name, value in pairs:
        if name in mapping:
            raise UnreadableError(f"the field {shorten(name)} is given twice")
        mapping[name] = value
    return mapping


def canonical_text(record: Record) -> str:
    """JSON of a record in the only way to write it; equal ones have one."""
    return json.dumps(
        record.to_json(), allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def digest_of(record: Record) -> str:
    """`sha256:...` over the canonical JSON; equal records have one digest."""
    import hashlib  # noqa: PLC0415 - loads OpenSSL, and a search needs no digest

    return "sha256:" + hashlib.sha256(canonical_text(record).encode()).hexdigest()


def load(path: Path, kind: type[AnyDocument]) -> AnyDocument:
    """Read a document from a file; errors name the file.

    Raises:
        UnreadableError: the file is missing, or it is not JSON.
        InvalidFieldError, SchemaVersionError: see `Document.from_json`.
    """
    return from_text(read_whole(path), kind, str(path))


def read_whole(path: Path, most_bytes: int | None = None) -> bytes:
    """Text of a file that ends, which a device may not.

    Raises:
        UnreadableError: the file is missing, or larger than `most_bytes`, by default
            what a document may have.
    """
    most_bytes = most_bytes or LARGEST_DOCUMENT_BYTES
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise UnreadableError(f"{path}: {reason}") from None
    require_end(content, str(path), most_bytes)
    return content


def require_end(content: bytes, source: str, most_bytes: int) -> None:
    """Raise `UnreadableError` for what was read beyond the most there may be."""
    if len(content) > most_bytes:
        raise UnreadableError(f"{source}: larger than {most_bytes >> 20} MiB")


def save(path: Path, document: Document) -> None:
    """Write a document; see `write_whole`."""
    write_whole(path, to_text(document) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a text whole or not at all: to a temporary file, then renamed.

    A device or a pipe is written to, a link is followed.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
