"""Records whose JSON is in camel case, as Kubernetes writes it.

In: a field such as `max_gpus`. Out: `maxGPUs`. Abbreviations keep their capitals, but
for one that opens a name.
"""

from __future__ import annotations

from plimsoll_planner.records.record import Record

CAPITALS = {"gpu": "GPU", "gpus": "GPUs", "oom": "OOM"}


class ApiRecord(Record):
    """Base of all parts of a TrainingPlan."""

    __slots__ = ()

    @classmethod
    def wire_name(cls, field: str) -> str:
        """Name of a field in a manifest."""
        first, *others = field.split("_")
        return first + "".join(CAPITALS.get(word, word.capitalize()) for word in others)
