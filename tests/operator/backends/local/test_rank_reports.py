"""What ranks tell is read as it grows, and nothing in it can end the loop."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll_operator.backends.commands import report_of
from plimsoll_operator.backends.local.rank_reports import WorkerGroupReports
from plimsoll_planner.records.plan import Phase
from tests.support.builders import an_observation

STEP = {"event": "step", "rank": 0, "step": 1, "loss": 2.5, "step_s": 0.1}


def test_a_report_is_read_on_where_it_ended(tmp_path: Path) -> None:
    """A line that is not whole yet is left for the next time."""
    reports = WorkerGroupReports(tmp_path, 1)
    reports.read()
    assert reports.steps == []
    whole, half = json.dumps(STEP), json.dumps(STEP | {"step": 2})
    path = report_of(tmp_path, 0)
    path.write_text(f"{whole}\n{half[:20]}")
    reports.read()
    assert [step.step for step in reports.steps] == [1]
    with path.open("a") as file:
        file.write(f"{half[20:]}\n")
    reports.read()
    assert [step.step for step in reports.steps] == [1, 2]


def test_the_latest_observation_of_each_rank_counts(tmp_path: Path) -> None:
    """Of ranks that have told something that keeps the rules."""
    for rank, steps in ((0, (1, 7)), (2, (3,))):
        lines = [
            {
                "event": "observation",
                "observation": an_observation(rank=rank, num_steps=done).to_json(),
            }
            for done in steps
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        report_of(tmp_path, rank).write_text(text)
    report_of(tmp_path, 1).write_text('{"event": "observation"}\nnonsense\n[]\n')
    reports = WorkerGroupReports(tmp_path, 3)
    reports.read()
    assert [(o.rank, o.num_steps) for o in reports.observations] == [(0, 7), (2, 3)]


def test_a_loss_that_is_no_number_is_read(tmp_path: Path) -> None:
    """As the trainer writes it, for JSON has no NaN."""
    report_of(tmp_path, 0).write_text(json.dumps(STEP | {"loss": "nan"}) + "\n")
    reports = WorkerGroupReports(tmp_path, 1)
    reports.read()
    assert reports.steps[0].loss != reports.steps[0].loss


def test_a_full_device_is_told_with_what_did_not_fit(tmp_path: Path) -> None:
    """Other failures are not."""
    full = {"event": "failure", "phase": "backward", "asked_bytes": 4096}
    report_of(tmp_path, 0).write_text('{"event": "failure", "message": "x"}\n')
    report_of(tmp_path, 1).write_text(json.dumps(full) + "\n")
    reports = WorkerGroupReports(tmp_path, 2)
    reports.read()
    assert reports.full_device is not None
    assert reports.full_device.rank == 1
    assert reports.full_device.phase is Phase.BACKWARD
    assert reports.full_device.asked_bytes == 4096


def test_a_checkpoint_that_was_not_saved_is_told_until_one_is(tmp_path: Path) -> None:
    """The latest save counts, and whether the ranks wait for room."""
    path = report_of(tmp_path, 0)
    reports = WorkerGroupReports(tmp_path, 1)
    lines = (
        ({"event": "unsaved", "step": 5, "message": "full"}, (False, "full")),
        ({"event": "unsaved", "message": "waits", "waits": True}, (True, "waits")),
        ({"event": "checkpoint", "step": 10}, None),
    )
    for line, expected in lines:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        reports.read()
        found = reports.unsaved
        assert (found and (found.waits, found.message)) == expected
