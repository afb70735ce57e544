"""The objects of a plan: their names, ConfigMaps and a Service, for every back end.

In: a plan, and what is to be done. Out: objects as plain JSON. All names follow from
the name of the plan and what they are for, so that whoever makes an object again finds
it made; all are owned by the plan and go with it. `backends` make the Jobs among them.

    <plan>-profile-<digest>   Job
    <plan>-replay-<digest>    Job, and a ConfigMap with plan and profile; alike
    <plan>-rehearsal-<digest>
    <plan>-train-<attempt>    Indexed Job, a pod for each share of a node
    <plan>-ranks              headless Service: the names of all its pods
    <plan>-plan-<attempt>     ConfigMap: the plan of record
    <plan>-result-<attempt>   ConfigMap: what became of it
    <plan>-question-<digest>  ConfigMap, as <plan>-answer-.. and <plan>-reports-..:
                              the rest of what pages show
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll_operator.errors import TooLargeError
from plimsoll_operator.kube.api import Object
from plimsoll_operator.names import (
    AFTER_ANNOTATION,
    API_VERSION,
    ATTEMPT_LABEL,
    KIND,
    NOTE_ANNOTATION,
    PLAN_LABEL,
    SUBJECT_ANNOTATION,
    TASK_LABEL,
)
from plimsoll_planner.records.document import Document, to_text
from plimsoll_planner.records.task import TaskKind
from plimsoll_planner.units import at_least

PLAN_OF_RECORD, RESULT = "plan", "result"
"""Purposes of ConfigMaps, beside the kinds of tasks."""
DIGEST_LENGTH: Final = 8
"""Of a digest in a name: plans have few tasks, and a subject stands in full."""
MOST_BYTES: Final = 900 * 1024
"""Of a ConfigMap; the API server refuses 1 MiB, names and labels included."""
NAMED: Final = 3
"""Documents of a ConfigMap that an error lists."""
PORT: Final = 29_500
"""Port at which ranks meet: each worker group in pods of its own."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The TrainingPlan that objects belong to."""

    namespace: str
    name: str
    uid: str

    @property
    def reference(self) -> Object:
        """As objects name their owner."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    @property
    def service(self) -> str:
        """Name of the Service of all ranks."""
        return f"{self.name}-ranks"

    def owns(self, found: Mapping[str, Any]) -> bool:
        """Whether an object is controlled by this very plan."""
        references = found["metadata"].get("ownerReferences", ())
        return any(
            one.get("controller") and one.get("uid") == self.uid for one in references
        )

    def own(self, found: Iterable[Object]) -> list[Object]:
        """Those objects that belong to this very plan."""
        return [one for one in found if self.owns(one)]


def object_name(owner: Owner, kind: str, subject: str) -> str:
    """The name of what works on a subject: a digest, or a number of attempt."""
    short = subject.removeprefix("sha256:")
    is_digest = short != subject
    return f"{owner.name}-{kind}-{short[:DIGEST_LENGTH] if is_digest else short}"


def labels_of(owner: Owner, kind: str, attempt: int | None = None) -> dict[str, str]:
    """Labels by which objects are selected."""
    labels = {PLAN_LABEL: owner.name, TASK_LABEL: kind}
    return labels if attempt is None else labels | {ATTEMPT_LABEL: str(attempt)}


def metadata_of(
    owner: Owner, name: str, labels: Mapping[str, str], notes: Mapping[str, str]
) -> Object:
    """The metadata of an object of a plan, its annotations from notes."""
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "annotations": dict(notes),
        "ownerReferences": [owner.reference],
    }


def task_metadata(
    owner: Owner,
    kind: TaskKind,
    subject: str,
    *,
    note: str = "",
    queue: str = "",
    after_s: float = 0.0,
) -> Object:
    """The metadata of what makes the pods of a task.

    `note` is a note for people about its pods, `queue` the LocalQueue of Kueue that
    admits it; empty: none. What it makes is later than `after_s`, since 1970.
    """
    attempt = int(subject) if kind is TaskKind.TRAIN else None
    labels = labels_of(owner, kind, attempt) | ({QUEUE_LABEL: queue} if queue else {})
    notes = {SUBJECT_ANNOTATION: subject, AFTER_ANNOTATION: repr(after_s)}
    notes |= {NOTE_ANNOTATION: note} if note else {}
    return metadata_of(owner, object_name(owner, kind, subject), labels, notes)


def service_of(owner: Owner) -> Object:
    """The Service by which the ranks of a plan find each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(
            owner, owner.service, labels_of(owner, TaskKind.TRAIN), {}
        ),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels_of(owner, TaskKind.TRAIN),
        },
    }


def packed_key(name: str) -> str:
    """The key of a ConfigMap under which a document lies packed."""
    return f"{name}.json.gz"


def packed(**documents: Document) -> dict[str, str]:
    """Documents as a ConfigMap holds them: `binaryData`.

    Raises:
        TooLargeError: they do not go into one.
    """
    made: dict[str, str] = {}
    for name, document in documents.items():
        # Without a time, so that equal plans make equal ConfigMaps.
        small = gzip.compress(to_text(document).encode(), mtime=0)
        made[packed_key(name)] = base64.b64encode(small).decode()
    size = sum(map(len, made.values()))
    if size > MOST_BYTES:
        what = " and ".join(documents) if len(documents) <= NAMED else "result"
        raise TooLargeError(
            f"the {what} would be {at_least(size)} in a ConfigMap, which holds "
            f"{at_least(MOST_BYTES)}: plan for fewer layers, operators or GPUs"
        )
    return made


def config_map(
    owner: Owner, kind: str, subject: str, data: Mapping[str, str], **notes: str
) -> Object:
    """An immutable ConfigMap with data of `packed`, annotated with notes.

    Its subject is a digest, or the number of an attempt.
    """
    attempt = int(subject) if subject.isdecimal() else None
    name, labels = object_name(owner, kind, subject), labels_of(owner, kind, attempt)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(owner, name, labels, notes),
        "immutable": True,
        "binaryData": dict(data),
    }
