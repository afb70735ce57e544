"""Whole training processes that run a placement of operators."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

from tests.support.jobs import events, losses, num_ranks, texts, train
from tests.support.placed_plans import placement_of, write_placed
from tests.support.ranks import run_ranks, try_ranks
from tests.support.workloads import a_gpt

if TYPE_CHECKING:
    from plimsoll_planner.records.placement_plan import PlacementPlan
    from tests.support.jobs import Job

pytestmark = pytest.mark.slow

CUTS = (0, 2, 5)
SAME = 1e-6
"""Relative; a pipeline adds micro-batches up as sums, a placement as means."""


@pytest.fixture(scope="module")
def placement() -> PlacementPlan:
    """The tiny model of a job, on two devices."""
    return placement_of(a_gpt(depth=3, width=16), 2)


def run_placed(
    job: Job, placement: PlacementPlan, steps: int, report: str, **fields: Any
) -> None:
    """Run all ranks of a placement to their end."""
    plan = fields.pop("plan", {})
    path = write_placed(job.folder, placement, **plan)
    options = replace(job.options(CUTS, steps, report=report, **fields), plan=path)
    assert run_ranks(train, num_ranks(options), job.folder, options) == [0] * num_ranks(
        options
    )


def test_losses_are_those_of_a_pipeline(job: Job, placement: PlacementPlan) -> None:
    """So are those of evaluations, of whose samples the last pass has fewer."""
    plan = {"entrypoint": "tiny_model:evaluated"}
    job.run(CUTS, 4, report="pipeline", entrypoint=plan["entrypoint"], plan=plan)
    run_placed(
        *(job, placement, 4, "placed"),
        entrypoint=plan["entrypoint"],
        plan={**plan, "replicas": 2},
    )
    pipeline, placed = losses(job.report("pipeline")), losses(job.report("placed"))
    assert placed == pytest.approx(pipeline, rel=SAME)
    assert len(set(placed.values())) == 4
    found = [
        [(one["step"], one["loss"]) for one in events(job.report(name), "evaluation")]
        for name in ("pipeline", "placed")
    ]
    assert [step for step, _ in found[1]] == [2, 4]
    for (step, loss), (other_step, other) in zip(*found, strict=True):
        assert step == other_step
        assert other == pytest.approx(loss, rel=SAME)


def test_each_engine_goes_on_from_what_the_other_saved(
    job: Job, placement: PlacementPlan
) -> None:
    """Losses are those of a training without a break."""
    job.run(CUTS, 6, report="whole")
    job.run(CUTS, 2, report="first", saves=True)
    run_placed(job, placement, 4, "second", saves=True)
    job.run(CUTS, 6, report="third", saves=True)
    reports = [job.report(name) for name in ("first", "second", "third")]
    assert [sorted(losses(one)) for one in reports] == [[1, 2], [3, 4], [5, 6]]
    assert losses(*reports) == pytest.approx(losses(job.report("whole")), rel=SAME)


def test_another_graph_is_refused_before_anything_is_built(
    job: Job, placement: PlacementPlan
) -> None:
    """As one of a model that has changed since it was placed."""
    path = write_placed(job.folder, placement, arguments=json.dumps({"depth": 2}))
    options = replace(job.options(CUTS, 2), plan=path)
    ends = try_ranks(train, [0, 0], job.folder, options)
    for text in texts(ends):
        assert "is another one than when it was placed: profile and place" in text
    assert len(texts(ends)) == 2


def test_a_checkpoint_of_another_model_is_refused(
    job: Job, placement: PlacementPlan, tmp_path: Path
) -> None:
    """By the name of what it holds, or lacks."""
    job.run(CUTS, 2, saves=True, args=json.dumps({"width": 24}))
    options = replace(
        job.options(CUTS, 4, saves=True), plan=write_placed(tmp_path, placement)
    )
    ends = try_ranks(train, [0, 0], job.folder, options)
    assert len(texts(ends)) == 2
    for text in texts(ends):
        assert "is for another model: layers.block.0.mlp.0.bias is" in text
