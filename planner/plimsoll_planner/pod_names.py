"""Names on which the operator and what runs in its pods agree.

In: nothing. Out: variables, folders and file names. The operator writes them into pods
and carries no trainer; the trainer reads them there and knows no operator.
"""

from __future__ import annotations

from typing import Final

TASK_VARIABLE: Final = "PLIMSOLL_TASK"
"""The task of a pod: a `records.task.Task` as JSON."""
INGEST_VARIABLE: Final = "PLIMSOLL_INGEST_URL"
"""Path of a pod's termination message."""
IMAGE_VARIABLE: Final = "PLIMSOLL_IMAGE"
"""The image that the code runs in: a part of its fingerprint."""
CACHE_VARIABLE: Final = "PLIMSOLL_CACHE"
"""Folder for what can be made again; the one name of ours that a person gives."""
ROOT: Final = "/run/plimsoll"
"""Mount of everything that a pod reads and writes for us."""
REVISION: Final = "revision.json"
"""File beside the reports in which a revision of the plan appears."""

WEIGHTS: Final = "weights"
"""Folder beside the checkpoints with the trained weights in the model's own format."""


def report_name(rank: int | str) -> str:
    """Name of the file, or pipe, that a rank reports to."""
    return f"report-{rank}.jsonl"
