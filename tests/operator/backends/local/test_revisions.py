"""Plans that are revised while they run: a slow rank, and kills in the middle of it.

`make soak` runs the same with many more kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from plimsoll_operator.rules.observed_state import RecordedRevision, RevisionState
from plimsoll_operator.store.store import open_store
from plimsoll_planner.pod_names import REVISION
from plimsoll_planner.records.revision import Cause
from tests.operator.backends.local.test_kills import VICTIMS, victims
from tests.support.home_runs import (
    LARGE,
    ROOT,
    HomeRun,
    kill_now,
    wait_until_gone,
    watched,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
NUM_KILLS = int(os.environ.get("PLIMSOLL_KILLS", "2"))
KILLS_PER_RUN = 2
MOST_RUNS = 20
SEED = 20261126
STEPS, BATCH = 150, 16
MIDST_S = 0.08
"""After a revision has appeared: ranks see it, agree, and have moved layers by then."""
POLL_S = 0.005
"""Much less than that."""
MOST_SPARED = 2
"""Revisions before one in the middle of which something is killed.

A slow machine revises three to six times in a run: with ten, most runs of an hour were
not killed at all.
"""
TWO_STAGES = "override: {pipeline: 2, data: 1, optimizerHome: device}"
"""Which hold their state alike: seconds would choose the home of each, and between a
device and a host no layer moves.
"""
ALWAYS = f"""runPolicy: {{replanCooldownSeconds: 0, replanLimit: 1000}}
  {TWO_STAGES}"""


def test_layers_leave_a_rank_that_is_slow(run: HomeRun, code: Path) -> None:
    """Without a restart; losses are those of any plan, to the bit."""
    args: dict[str, Any] = {
        "entrypoint": "own:workload",
        "args": "{}",
        "steps": 250,
        "extra": TWO_STAGES,
    }
    run.write(**args)
    (code / "slow").touch()
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert ended.status.attempt == 1
    [revision] = ended.status.revisions
    assert revision.state == RevisionState.FOLLOWED, revision
    assert revision.cause == Cause.PACE
    assert revision.moved_layers > 0
    assert revision.step_percent < 95
    plan = ended.status.plan
    assert plan is not None
    assert plan.revision == 2
    moved = run.losses()
    (code / "slow").unlink()
    run.write(name="fast", **args)
    again = run.run(*LARGE, code=code)
    assert again.code == ExitCode.DONE, again.err
    assert again.status.revisions == ()
    assert run.losses("fast") == moved


@contextmanager
def revising(run: HomeRun, printed: Path) -> Generator[subprocess.Popen[str]]:
    """Start a command that revises its plan again and again; it is gone at the end.

    It prints into a file: it would wait for a reader of a pipe that is full.
    """
    words = run.words(*LARGE)
    with printed.open("w") as output:
        command = subprocess.Popen(
            [sys.executable, "-m", "tests.support.revising_run", *words[3:]],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            text=True,
        )
    try:
        yield command
    finally:
        command.kill()
        command.wait()


def num_followed(run: HomeRun) -> int:
    """Revisions that ranks have followed, in all attempts of the current plan."""
    plan = run.plan("revised")
    assert plan is not None
    uid, attempts = plan.uid, run.attempts("revised")

    async def found() -> list[RecordedRevision]:
        async with open_store(run.home.store) as store:
            every = [await store.revisions.of(uid, one.number) for one in attempts]
            return [one for found in every for one in found]

    states = [one.state for one in asyncio.run(found())]
    return states.count(RevisionState.FOLLOWED)


def appearances(run: HomeRun, command: subprocess.Popen[str]) -> Iterator[None]:
    """Yield each time that a revision appears, until the command ends."""
    known: set[tuple[int, int]] = set()
    while command.poll() is None:
        for path in run.home.root.glob(f"plans/*/children/train-*/{REVISION}"):
            try:
                status = path.stat()
            except OSError:
                continue
            stamp = status.st_ino, status.st_mtime_ns
            if stamp not in known:
                known.add(stamp)
                yield
        time.sleep(POLL_S)


@pytest.fixture(scope="module")
def still(
    undisturbed: tuple[HomeRun, float], tmp_path_factory: pytest.TempPathFactory
) -> HomeRun:
    """A run of the same model whose plan stays, and which knows profile and replay."""
    run = undisturbed[0].copy(tmp_path_factory.mktemp("still"))
    stays = f"runPolicy: {{replanOnline: false}}\n  {TWO_STAGES}"
    ended = run.write(steps=STEPS, batch=BATCH, extra=stays).run(*LARGE)
    assert ended.code == ExitCode.DONE, ended.err
    return run


@pytest.mark.parametrize("case", range(-(-NUM_KILLS // KILLS_PER_RUN)))
def test_kills_in_the_middle_of_revisions(
    case: int, still: HomeRun, tmp_path: Path
) -> None:
    """Whatever is killed, the plan succeeds, with the losses of one that stays.

    A plan whose every revision was killed is run once more, until one is followed.
    """
    dice = random.Random(f"{SEED}/{case}")  # noqa: S311 - no secret
    run = still.copy(tmp_path)
    run.write(steps=STEPS, batch=BATCH, extra=ALWAYS, name="revised")
    printed, kills, code = tmp_path / "printed", 0, -1
    with watched(run) as gangs:
        for _ in range(MOST_RUNS):
            spared = dice.randint(1, MOST_SPARED)
            with revising(run, printed) as command:
                for _ in appearances(run, command):
                    spared -= 1
                    if kills < KILLS_PER_RUN and spared <= 0:
                        spared = dice.randint(1, MOST_SPARED)
                        time.sleep(dice.uniform(0, MIDST_S))
                        what = victims(dice.choice(VICTIMS), run, command)
                        kills += kill_now(what) > 0
                code = command.returncode
            if code >= 0:  # not killed
                assert code == ExitCode.DONE, printed.read_text()
                assert run.losses("revised") == still.losses()
                if kills == KILLS_PER_RUN and num_followed(run) > 0:
                    break
    assert kills == KILLS_PER_RUN
    assert code == ExitCode.DONE, printed.read_text()
    assert num_followed(run) > 0
    assert gangs.most_gangs <= 1
    assert gangs.most_of_a_rank <= 1
    assert wait_until_gone(run) == {}
