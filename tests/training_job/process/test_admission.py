"""A plan for another world or other code is refused before torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import save
from plimsoll_trainer.errors import MissingSourceError, PlanMismatchError, TrainerError
from plimsoll_trainer.process.admission import TORCHRUN, Place, admit, check_world
from plimsoll_trainer.process.options import Options
from tests.support.builders import a_plan


def test_a_world_of_another_size_is_refused() -> None:
    """Both counts are named."""
    check_world(a_plan(), 4)
    with pytest.raises(PlanMismatchError, match="for 4 ranks, but there are 8: start"):
        check_world(a_plan(), 8)


def test_the_place_is_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun this is the only rank."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Place.from_environment() == Place(rank=0, num_ranks=1, local_rank=0)
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Place.from_environment() == Place(rank=5, num_ranks=8, local_rank=1)


@pytest.mark.parametrize(
    ("environment", "fault"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK=x is no whole"),
        ({"RANK": "1"}, "WORLD_SIZE is not set in"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "LOCAL_RANK is not set in"),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK=2 is not below W"),
    ],
)
def test_a_wrong_start_is_one_line(environment: dict[str, str], fault: str) -> None:
    """Named by variable, with the reserved exit code, before torch is imported."""
    around = {k: v for k, v in os.environ.items() if k not in TORCHRUN}
    words = ["-m", "plimsoll_trainer", "--plan=p", "--entrypoint=m:f", "--steps=1"]
    process = subprocess.run(
        [sys.executable, *words],
        env=around | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = process.stderr.splitlines()
    assert process.returncode == ExitCode.FAILED
    assert line.startswith(f"plimsoll: {fault}")
    assert line.endswith(
        "the ranks with torchrun, or unset RANK, WORLD_SIZE, LOCAL_RANK to run alone"
    )


def test_an_unreadable_plan_is_one_line(tmp_path: Path) -> None:
    """The file, the field and what is allowed."""
    path = tmp_path / "plan.json"
    save(path, a_plan())
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"micro_batch": 0}))
    options = Options(plan=path, entrypoint="m:f", steps=1)
    place = Place(rank=0, num_ranks=4, local_rank=0)
    with pytest.raises(ValueError, match=r"plan\.json: HybridPlan\.micro_batch: got 0"):
        admit(options, place)
    path.unlink()
    with pytest.raises(ValueError, match=r"plan\.json: No such file"):
        admit(options, place)


def test_reports_that_could_not_be_written_are_refused(tmp_path: Path) -> None:
    """Before the training, not at its end."""
    path = tmp_path / "plan.json"
    save(path, a_plan())
    there, missing = (str(tmp_path / name) for name in ("r.jsonl", "no/r.jsonl"))
    place = Place(rank=0, num_ranks=4, local_rank=0)
    options = Options(plan=path, entrypoint="m:f", steps=1, report_file=missing)
    with pytest.raises(TrainerError, match=r"there is no folder .*/no; make it, or"):
        admit(options, place)
    with pytest.raises(MissingSourceError):
        admit(replace(options, report_file=there), place)


def test_torch_is_not_imported_for_it() -> None:
    """A wrong start costs a fraction of a second, not six."""
    module = "plimsoll_trainer.process.admission"
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
