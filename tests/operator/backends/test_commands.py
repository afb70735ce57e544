"""Command lines of tasks: read by the very programs that they start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.backends.commands import (
    PLAN,
    PROFILE,
    PROFILER,
    TRAINER,
    Where,
    profile_task,
    rehearsal_task,
    replay_task,
    report_of,
    train_task,
)
from plimsoll_operator.rules.profile_request import ProfileRequest
from plimsoll_planner.pod_names import REVISION
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import PodShape
from plimsoll_planner.records.task import Command, TaskKind
from tests.support.builders import DIGEST, a_plan
from tests.support.specs import a_spec

pytest.importorskip("torch", reason="torch is missing: run `make test`")
from plimsoll_profiler.__main__ import parser
from plimsoll_trainer.process.options import Options, parse

FOLDER = Path("/run/plimsoll/work")
IN_POD = Where(folder=FOLDER)
AT_HOME = Where(folder=FOLDER, code="/home/a/code", interpreter=("python3", "-P"))
SPEC = a_spec(checkpoint={"everySteps": 5}, profile={"timeoutSeconds": 70})
WISH = ProfileRequest(
    entrypoint="a:b",
    arguments='{"depth": "two words"}',
    device_kind=DeviceKind.CUDA,
    source=Source.MEASURED,
    place="here",
    tensor_degrees=(1, 2),
)
PODS = PodShape(num_pods=2, gpus_per_pod=2, host_memory_bytes_per_pod=2**30)
SPREAD = a_plan(pods=PODS)
IN_GANG = replace(IN_POD, meeting=("--meet-at", "tiny-train-3-0.tiny-ranks:29500"))


def words_of(command: Command, module: str) -> list[str]:
    """Arguments of a program; `python -m` comes first."""
    assert command.words[:2] == ("-m", module)
    return list(command.words[2:])


def told(where: Where, spec: TrainingPlanSpec = SPEC) -> Options:
    """Options as the trainer reads them."""
    first = train_task(3, SPREAD, spec, where).commands[0]
    return parse(words_of(first, TRAINER))


def test_the_profiler_is_told_what_is_wished_for() -> None:
    """Under the key by which its profile is looked for."""
    task = profile_task(WISH, SPEC, IN_POD)
    [command] = task.commands
    found = parser().parse_args(words_of(command, PROFILER))
    assert found.verb == "profile"
    assert (found.entrypoint, found.args) == (WISH.entrypoint, WISH.arguments)
    assert (found.device, found.source) == ("cuda", "measured")
    assert found.tensor_degrees == WISH.tensor_degrees
    assert found.graph_micro_batches == ()
    assert (found.request_key, found.out) == (WISH.key, FOLDER / PROFILE)
    assert (task.child_kind, task.subject) == (TaskKind.PROFILE, WISH.key)
    assert task.timeout_s == 70.0


def test_the_profiler_is_told_which_graphs_are_wished_for() -> None:
    """Where an engine places operators."""
    wish = replace(WISH, graph_micro_batches=(1, 4))
    [command] = profile_task(wish, SPEC, IN_POD).commands
    found = parser().parse_args(words_of(command, PROFILER))
    assert found.graph_micro_batches == (1, 4)


def test_a_replay_finds_plan_and_profile_beside_it() -> None:
    """It is named by the plan that it replays."""
    task = replay_task(DIGEST, SPEC, IN_POD)
    [command] = task.commands
    found = parser().parse_args(words_of(command, PROFILER))
    assert (found.verb, found.entrypoint) == ("replay", SPEC.workload.entrypoint)
    assert (found.plan, found.profile) == (FOLDER / PLAN, FOLDER / PROFILE)
    assert (task.child_kind, task.subject) == (TaskKind.REPLAY, DIGEST)


def test_a_rehearsal_is_told_which_plan_and_how_much_memory_there_is() -> None:
    """The rank is the fullest, unless a person names one; what is true is not said."""
    for given in (0, 5 * 2**20 + 1):
        where = replace(IN_POD, device_memory_bytes=given)
        task = rehearsal_task(DIGEST, SPEC, where)
        [command] = task.commands
        found = parser().parse_args(words_of(command, PROFILER))
        assert (found.verb, found.entrypoint) == ("rehearse", SPEC.workload.entrypoint)
        assert (found.plan, found.profile) == (FOLDER / PLAN, FOLDER / PROFILE)
        assert (found.rank, found.device_memory) == (None, given)
        assert ("--device-memory" in command.words) is bool(given)
        assert (task.child_kind, task.subject) == (TaskKind.REHEARSAL, DIGEST)
        assert task.timeout_s == 70.0


def test_ranks_are_told_apart_by_variables_alone() -> None:
    """All of a gang get the same words; its size counts those of other pods as well."""
    task = train_task(3, SPREAD, SPEC, IN_GANG)
    assert len({command.words for command in task.commands}) == 1
    given = [
        {variable.name: variable.value for variable in command.variables}
        for command in task.commands
    ]
    assert given == [
        {"RANK": str(local), "LOCAL_RANK": str(local), "WORLD_SIZE": "4"}
        for local in range(2)
    ]
    assert (task.child_kind, task.subject) == (TaskKind.TRAIN, "3")
    alone = replace(IN_POD, holds_all_ranks=True)
    assert len(train_task(3, SPREAD, SPEC, alone).commands) == 4


def test_the_trainer_is_told_what_the_spec_asks_for() -> None:
    """Each rank puts its number into the name of its report."""
    found = told(IN_GANG)
    assert (found.plan, found.steps, found.attempt) == (FOLDER / PLAN, 20, 3)
    assert found.meet_at == ("tiny-train-3-0.tiny-ranks", 29500)
    assert found.meet_timeout_s == SPEC.run_policy.pending_seconds
    assert found.report_file is not None
    assert Path(found.report_file.format(rank=7)) == report_of(FOLDER, 7)


@pytest.mark.parametrize("is_online", [True, False])
def test_ranks_look_for_revisions_whatever_the_policy_is(*, is_online: bool) -> None:
    """It may change while they run; none that is not to come is waited for."""
    found = told(IN_GANG, a_spec(runPolicy={"replanOnline": is_online}))
    assert found.revision_file == FOLDER / REVISION
    assert found.revision_wait_s == (10 if is_online else 0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (None, 0, None, 0)),
        ({"checkpoints": Path("/c")}, (Path("/c"), 5, None, 0)),
        ({"resume_from": Path("/o")}, (None, 0, Path("/o"), 0)),
        ({"device_memory_bytes": 3 * 2**20 + 5}, (None, 0, None, 3 * 2**20)),
    ],
)
def test_what_nobody_asks_for_is_not_said(
    given: dict[str, Any], expected: tuple[Path | None, int, Path | None, int]
) -> None:
    """Without a place for checkpoints none are made, however often they are asked for.

    A device never has more memory than it was said to have.
    """
    found = told(replace(IN_GANG, **given))
    assert expected == (
        found.checkpoint_dir,
        found.checkpoint_every,
        found.resume_from,
        found.device_memory,
    )


def test_at_home_the_interpreter_is_that_of_the_operator() -> None:
    """And the workload's module is found from its folder."""
    tasks = (
        profile_task(WISH, SPEC, AT_HOME),
        replay_task(DIGEST, SPEC, AT_HOME),
        rehearsal_task(DIGEST, SPEC, AT_HOME),
        train_task(3, SPREAD, SPEC, AT_HOME),
    )
    for task in tasks:
        assert task.folder == "/home/a/code"
        for command in task.commands:
            assert command.words[:3] == ("python3", "-P", "-m")
