"""Advice in the message of a task that failed."""

from __future__ import annotations

import pytest

from plimsoll_operator.rules.advice import ON_CLUSTER, ON_ONE_MACHINE, Words, advised
from plimsoll_planner.records.task import TaskKind


@pytest.mark.parametrize("words", [ON_ONE_MACHINE, ON_CLUSTER])
def test_advice_is_in_words_of_the_manifest(words: Words) -> None:
    """Not in options of the trainer, which nobody types; others' lines stay."""
    for line in (
        "stopped before step 3, and nothing is saved: give --checkpoint-dir to resume",
        "step 9 is past --steps 5: give more steps, or another with --resume-from",
        "of another model: give a new --checkpoint-dir to begin anew",
        "other data: restore it, or go on with --accept-other-data",
        "ValueError at own.py:7; --debug shows the traceback",
    ):
        found = advised(f"plimsoll: {line}", TaskKind.TRAIN, words, "toy")
        assert "--" not in found.replace(" --anew", "")
        assert advised(line, TaskKind.TRAIN, words, "toy") == line


def test_advice_names_the_logs_of_what_failed() -> None:
    """Profiling has logs of its own."""
    line = "plimsoll: no layers; --debug shows the traceback"
    assert "`plimsoll logs toy --of profile` shows" in advised(
        line, TaskKind.PROFILE, ON_ONE_MACHINE, "toy"
    )
    assert "`plimsoll logs toy` shows" in advised(
        line, TaskKind.TRAIN, ON_ONE_MACHINE, "toy"
    )
