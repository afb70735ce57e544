"""Question, answer and reports of a plan as ConfigMaps, for its pages.

In: the question of the search, its answer, reports of ranks. Out: ConfigMaps, and the
documents in them. Made by `control.publishing`, and read by `plimsoll describe
--cluster` and its like: who may read ConfigMaps of a namespace may read these. Each is
immutable and named after what it holds; another one takes its place.

    <plan>-question-<digest>   the problem, with the profile
    <plan>-answer-<digest>     the plan, its proof, what else could be had; or why none
    <plan>-reports-<digest>    reports of ranks that run; later their result has them
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from plimsoll_operator.errors import TooLargeError
from plimsoll_operator.kube.api import Object
from plimsoll_operator.names import GROUP, SUBJECT_ANNOTATION, TASK_LABEL
from plimsoll_operator.objects.bounded import inflated
from plimsoll_operator.objects.manifests import (
    Owner,
    config_map,
    object_name,
    packed,
    packed_key,
)
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.records.document import Document, from_text

QUESTION, ANSWER, REPORTS = "question", "answer", "reports"
"""Purposes of ConfigMaps."""
PAGES: Final = (QUESTION, ANSWER, REPORTS)
RECORDED: Final = f"{GROUP}/recorded"
"""On a ConfigMap: its time, in seconds since 1970. For a moment there are two of a
kind, and the later one counts."""
LEFT_OUT: Final = f"{GROUP}/left-out"
"""On a ConfigMap without its document: why that is not in it."""
MOST_BYTES: Final = 64 * 2**20
"""Of a document, unpacked: an answer takes 22 times its bytes in a ConfigMap."""

AnyDocument = TypeVar("AnyDocument", bound=Document)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedMap:
    """One of these ConfigMaps, as its metadata tells."""

    name: str
    kind: str
    subject: str
    """Digest of what it is about: of the problem, else of all that makes it another."""


def published_in(maps: Iterable[Object]) -> tuple[PublishedMap, ...]:
    """Those among the ConfigMaps of a plan."""
    return tuple(
        PublishedMap(
            name=one["metadata"]["name"],
            kind=purpose_of(one),
            subject=note_of(one, SUBJECT_ANNOTATION),
        )
        for one in maps
        if purpose_of(one) in PAGES
    )


def purpose_of(found: Mapping[str, Any]) -> str:
    """Purpose of a ConfigMap of a plan; empty where it has none of ours."""
    labels: Mapping[str, str] = found["metadata"].get("labels") or {}
    return labels.get(TASK_LABEL, "")


def subject_of(*facts: object) -> str:
    """Digest of facts: equal ones need no other ConfigMap."""
    text = "\n".join(map(str, facts))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def page_map(
    owner: Owner,
    kind: str,
    subject: str,
    document: Document,
    notes: Mapping[str, str],
) -> Object:
    """A ConfigMap of a document; one that does not fit is left out, with the reason."""
    given = {SUBJECT_ANNOTATION: subject, **notes}
    try:
        data = packed(**{kind: document})
    except TooLargeError as error:
        data, given = {}, given | {LEFT_OUT: str(error)}
    return config_map(owner, kind, subject_of(owner.uid, subject), data, **given)


def page_name(owner: Owner, kind: str, subject: str) -> str:
    """Name of such a ConfigMap: another one for an earlier plan of the name.

    That may have asked the same, and what is left of it is removed in time.
    """
    return object_name(owner, kind, subject_of(owner.uid, subject))


def note_of(found: Mapping[str, Any], name: str) -> str:
    """An annotation of an object; empty where it has none."""
    notes: Mapping[str, str] = found["metadata"].get("annotations") or {}
    return notes.get(name, "")


def document_in(
    found: Mapping[str, Any], key: str, *kinds: type[AnyDocument]
) -> AnyDocument:
    """The document of one of some kinds that a ConfigMap holds, whoever made it.

    Raises:
        InvalidInputError: it holds none that this release can read.
    """
    data: Object = found.get("binaryData") or {}
    if packed_key(key) not in data:
        why = note_of(found, LEFT_OUT) or f"there is no {packed_key(key)} in it"
        raise UnreadableError(why)
    try:
        small = base64.b64decode(data[packed_key(key)], validate=True)
    except ValueError as error:
        raise UnreadableError(f"{packed_key(key)}: no base64: {error}") from None
    text = inflated(small, MOST_BYTES)
    named = [one for one in kinds if f'"kind": "{one.__name__}"'.encode() in text[:64]]
    return from_text(text, (named or list(kinds))[0])
