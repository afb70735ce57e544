"""Modules that importing the planner loads."""

from __future__ import annotations

import subprocess
import sys


def test_the_search_starts_without_anything_heavy() -> None:
    """Neither torch nor a solver nor a cluster client is loaded for a plan."""
    heavy = "('torch', 'highspy', 'scipy', 'kopf', 'kubernetes', 'sqlalchemy', 'rich')"
    code = (
        "import sys, plimsoll_planner.search.answer, "
        "plimsoll_planner.search.baselines, plimsoll_planner.overhead.calibration, "
        "plimsoll_planner.text.explain; "
        f"print([m for m in {heavy} if m in sys.modules], 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] True"


def test_the_words_of_an_answer_need_no_numpy() -> None:
    """`plimsoll explain` and the records are printed without it."""
    code = (
        "import sys, plimsoll_cli.verbs.explain, plimsoll_planner.text.explain; "
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
