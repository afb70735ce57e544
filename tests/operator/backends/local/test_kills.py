"""Whoever kills what and when: run again, the plan succeeds, and nothing is left over.

`make soak` runs the same with many more kills.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from plimsoll_operator.backends.local.task_processes import is_supervisor
from tests.support.home_runs import HomeRun, kill_now, rank_of, wait_until_gone, watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NUM_KILLS = int(os.environ.get("PLIMSOLL_KILLS", "2"))
KILLS_PER_RUN = 2
SEED = 20261121
MOST_RUNS = 20
FIRST_LATEST = 0.7
"""Part of a run within which the first case kills: later moments are often behind its
end, and cost a whole run. Other cases kill at any time."""
VICTIMS = ("command", "everything", "supervisor", "rank", "ranks")
"""Choices of `victims`."""


def victims(
    what: str, run: HomeRun, command: subprocess.Popen[str]
) -> list[psutil.Process]:
    """Processes that are killed together."""
    processes = [p for found in run.processes().values() for p in found]
    mine = [psutil.Process(command.pid)]
    return {
        "command": mine,
        "everything": [*mine, *processes],
        "supervisor": [p for p in processes if is_supervisor(p)],
        "rank": [p for p in processes if rank_of(p) is not None][:1],
        "ranks": [p for p in processes if rank_of(p) is not None],
    }[what]


@pytest.mark.parametrize("case", range(-(-NUM_KILLS // KILLS_PER_RUN)))
def test_a_killed_run_ends_as_if_nobody_had_killed_it(
    case: int, undisturbed: tuple[HomeRun, float], tmp_path: Path
) -> None:
    """After two kills at random moments the losses are those of an undisturbed run.

    There is never more than one worker group, and no process is left over.

    A run that ends before all are made is no end of the case: the same command begins
    the plan anew, and that run is killed.
    """
    dice = random.Random(f"{SEED}/{case}")  # noqa: S311 - no secret
    model, usual_s = undisturbed
    run = model.copy(tmp_path)
    kills, code, err = 0, -1, ""
    latest = 1.0 if case else FIRST_LATEST
    with watched(run) as gangs:
        for _ in range(MOST_RUNS):
            command = run.start()
            while kills < KILLS_PER_RUN and command.poll() is None:
                time.sleep(dice.uniform(0, latest * usual_s))
                what = dice.choice(VICTIMS)
                if command.poll() is None:
                    kills += kill_now(victims(what, run, command)) > 0
            _, err = command.communicate()
            code = command.returncode
            if code >= 0:  # not killed
                assert code == ExitCode.DONE, err
                assert run.losses() == model.losses()
                if kills == KILLS_PER_RUN:
                    break
    assert kills == KILLS_PER_RUN
    assert code == ExitCode.DONE, err
    plan = run.plan()
    assert plan is not None
    assert plan.status.is_over
    assert gangs.most_gangs <= 1
    assert gangs.most_of_a_rank <= 1
    assert wait_until_gone(run) == {}
