"""A checkpoint taken under one plan resumes under any other, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import OptimizerMode, Variant
from tests.support.jobs import Job, events, losses

Plan = tuple[tuple[int, ...], dict[str, Any]]

ONE: Plan = ((0, 5), {})
TWO: Plan = ((0, 2, 5), {})
UNEVEN: Plan = ((0, 1, 4, 5), {})
RECOMPUTED: Plan = ((0, 3, 5), {"recomputed": (1, 2, 4)})
REPLICAS: Plan = ((0, 5), {"replicas": 2})
BOTH: Plan = ((0, 2, 5), {"replicas": 2})
DIVIDED = {"sharding": Sharding.OPTIMIZER}
PARAMETERS = {"sharding": Sharding.PARAMETERS}
GRADIENTS = {"sharding": Sharding.GRADIENTS}
DIVIDED_BY_2: Plan = ((0, 5), {"replicas": 2, "of_stages": (DIVIDED,)})
DIVIDED_BY_4: Plan = ((0, 5), {"replicas": 4, "of_stages": (DIVIDED,)})
PARAMETERS_BY_2: Plan = ((0, 5), {"replicas": 2, "of_stages": (PARAMETERS,)})
BOTH_DIVIDED: Plan = (
    (0, 2, 5),
    {"replicas": 2, "of_stages": (GRADIENTS, PARAMETERS)},
)
ONE_DIVIDED: Plan = ((0, 2, 5), {"replicas": 2, "of_stages": ({}, DIVIDED)})
HOST = {"optimizer_home": OptimizerHome.HOST}
TWO_ON_HOST: Plan = ((0, 2, 5), {"of_stages": (HOST, HOST)})
ONE_ON_HOST: Plan = ((0, 5), {"of_stages": (HOST,)})
DIVIDED_ON_HOST: Plan = ((0, 5), {"replicas": 2, "of_stages": (DIVIDED | HOST,)})
BY_2, BY_4 = (
    {"variant": Variant(tensor_degree=degree, sequence_parallel=True)}
    for degree in (2, 4)
)
STAGES_OF_PARTS: Plan = ((0, 2, 5), {"replicas": (1, 2), "of_stages": (BY_2, BY_2)})
REPLICAS_OF_PARTS: Plan = ((0, 5), {"replicas": (2, 2), "of_stages": (PARAMETERS,)})
PARTS_ON_HOST: Plan = ((0, 5), {"replicas": (1, 4), "of_stages": (HOST | BY_4,)})
LARGER_MICRO_BATCH: Plan = ((0, 2, 5), {"micro_batch": 4})

pytestmark = pytest.mark.slow  # 18 s of CPU: each job trains twice
SPLIT = "split_model:workload"
UNCLIPPED = {"max_gradient_norm": None, "dropout": 0.1}
UNTIED = UNCLIPPED | {"tied": False}
BF16 = UNCLIPPED | {"precision": "bf16"}
EXACT = [
    (TWO, TWO, {"dropout": 0.1}),
    (BOTH, BOTH, {}),
    (ONE, TWO, UNTIED),
    (TWO, ONE, UNTIED),
    (UNEVEN, RECOMPUTED, UNCLIPPED),
    (TWO, UNEVEN, BF16),
    (TWO, ONE, BF16 | {"tied": False}),
    (DIVIDED_BY_2, REPLICAS, BF16),
    (REPLICAS, DIVIDED_BY_2, BF16),
    (TWO, TWO_ON_HOST, {"dropout": 0.1}),
    (TWO_ON_HOST, TWO, BF16),
]
CLOSE = [
    (ONE, TWO),
    (TWO, REPLICAS),
    (BOTH, UNEVEN),
    (REPLICAS, BOTH),
    (UNEVEN, LARGER_MICRO_BATCH),
]


def resume(
    job: Job,
    before: Plan,
    after: Plan,
    on: Mapping[str, Any] = MappingProxyType({}),
    **args: Any,
) -> tuple[Any, Any]:
    """Train 6 steps, and the last 3 again under another plan; return the losses.

    Both plans have the fields `on`, of which an entry point is the job's as well.
    """
    common: dict[str, Any] = {"args": json.dumps(args), "saves": True}
    if "entrypoint" in on:
        common["entrypoint"] = on["entrypoint"]
    first, second = before[1] | dict(on), after[1] | dict(on)
    job.run(before[0], 6, plan=first, report="whole", checkpoint_every=3, **common)
    middle = job.checkpoints / "step-00000003"
    job.run(after[0], 6, plan=second, report="resumed", resume_from=middle, **common)
    again = losses(job.report("resumed"))
    assert sorted(again) == [4, 5, 6]
    whole = losses(job.report("whole"))
    return again, {step: whole[step] for step in again}


@pytest.mark.parametrize(("before", "after", "args"), EXACT)
def test_nothing_changes_to_the_bit(
    before: Plan, after: Plan, args: dict[str, Any], job: Job
) -> None:
    """Losses are equal to the bit where no sum is taken in another order.

    Always under the same plan; under other cuts where the norm does not clip and no
    tie moves from two stages into one. In bf16 too, for the fp32 masters are saved.
    """
    again, whole = resume(job, before, after, **args)
    assert again == whole


FUSED, LOOP = OptimizerMode.FUSED, OptimizerMode.LOOP
RECIPES: list[tuple[Plan, Plan, OptimizerMode, dict[str, Any]]] = [
    (TWO, ONE, FUSED, {"optimizer": "sgd", "arguments": {"momentum": 0.9}}),
    (TWO, UNEVEN, LOOP, {"optimizer": "adafactor"}),
    (ONE, TWO_ON_HOST, LOOP, {"optimizer": "muon"}),
    (DIVIDED_BY_2, REPLICAS, LOOP, {"optimizer": "lion"}),
    (TWO_ON_HOST, ONE, LOOP, {"optimizer": "adamw-8bit", "width": 32}),
    (TWO, ONE, FUSED, {"precision": "bf16-pure"}),
    (REPLICAS, PARAMETERS_BY_2, FUSED, {"precision": "bf16-autocast"}),
    (TWO, UNEVEN, FUSED, {"precision": "fp16", "first_scale": 2.0**24}),
    (ONE, TWO, FUSED, {"precision": "fp16-autocast", "first_scale": 2.0**24}),
    (TWO, ONE, FUSED, {"frozen": (0, 2)}),
]
"""The scale of the fourth step is another one than that of the first."""


@pytest.mark.parametrize(
    ("before", "after", "mode", "args"), RECIPES, ids=[str(r[-1]) for r in RECIPES]
)
def test_nothing_changes_whatever_is_trained_with(
    before: Plan, after: Plan, mode: OptimizerMode, args: dict[str, Any], job: Job
) -> None:
    """As above: all that an optimizer keeps is saved, and the scale of the loss."""
    on = {"entrypoint": "tiny_model:trained", "optimizer_mode": mode}
    again, whole = resume(job, before, after, on, max_gradient_norm=None, **args)
    assert again == whole
    if "first_scale" in args:
        reports = (job.report(name) for name in ("whole", "resumed"))
        first, second = ([e["loss_scale"] for e in events(r, "step")] for r in reports)
        assert first[3] < first[0]
        assert first[3:] == second


@pytest.mark.parametrize(("before", "after"), CLOSE)
def test_another_order_of_sums_stays_within_1e_6(
    before: Plan, after: Plan, job: Job
) -> None:
    """Replicas, micro-batches, the clipped norm and ties change the order."""
    again, whole = resume(job, before, after)
    assert again == pytest.approx(whole, rel=1e-6)


def test_divided_state_is_read_by_any_number_of_replicas(job: Job) -> None:
    """Saved by four, read by two on a stage of two, then by one, and so on.

    Whichever state they divide.
    """
    plans = (
        DIVIDED_BY_4,
        PARAMETERS_BY_2,
        ONE_DIVIDED,
        ONE,
        BOTH_DIVIDED,
        DIVIDED_BY_4,
    )
    num_steps = 2 * len(plans)
    job.run(ONE[0], num_steps, plan=ONE[1], report="whole", args=json.dumps(UNTIED))
    found: dict[int, float] = {}
    for place, (cuts, plan) in enumerate(plans):
        report, common = f"part-{place}", {"args": json.dumps(UNTIED), "saves": True}
        job.run(cuts, 2 * place + 2, plan=plan, report=report, **common)
        part = losses(job.report(report))
        assert sorted(part) == [2 * place + 1, 2 * place + 2]
        found |= part
    assert found == pytest.approx(losses(job.report("whole")), rel=1e-6)


def test_state_is_read_wherever_it_is_held(job: Job) -> None:
    """Saved by two replicas on the host, read by two stages on the device, then by one.

    That is on the host again, where fp32 parameters are what is stepped on.
    """
    job.run(TWO[0], 8, plan=TWO[1], report="whole")
    found: dict[int, float] = {}
    for place, plan in enumerate((DIVIDED_ON_HOST, TWO, ONE_ON_HOST, DIVIDED_BY_2)):
        job.run(plan[0], 2 * place + 2, plan=plan[1], report=f"{place}", saves=True)
        part = losses(job.report(f"{place}"))
        assert sorted(part) == [2 * place + 1, 2 * place + 2]
        found |= part
    assert found == pytest.approx(losses(job.report("whole")), rel=1e-6)


@pytest.mark.parametrize(
    "precision", ["fp32", pytest.param("bf16", marks=pytest.mark.nightly)]
)
def test_what_tensor_groups_share_is_read_by_any_plan(job: Job, precision: str) -> None:
    """Stages, replicas that divide state, parts of layers and of sequences take turns.

    Sums over ranks are taken in another order, as between replicas.
    """
    plans = (TWO, REPLICAS_OF_PARTS, ONE, STAGES_OF_PARTS, PARTS_ON_HOST, BOTH)
    split = {"entrypoint": SPLIT, "args": json.dumps({"precision": precision})}
    on = {"entrypoint": SPLIT}
    job.run(TWO[0], 12, plan=TWO[1] | on, report="whole", **split)
    found: dict[int, float] = {}
    for place, (cuts, plan) in enumerate(plans):
        done, report = 2 * place, f"{place}"
        job.run(cuts, done + 2, plan=plan | on, report=report, saves=True, **split)
        part = losses(job.report(report))
        assert sorted(part) == [done + 1, done + 2]
        found |= part
    tolerance = 1e-5 if precision == "fp32" else 1e-2
    assert found == pytest.approx(losses(job.report("whole")), rel=tolerance)


def test_a_resume_of_a_finished_job_trains_nothing(job: Job) -> None:
    """All steps are done, so the job ends at once, and well."""
    assert job.run((0, 2, 5), 2, saves=True) == [0, 0]
    assert job.run((0, 5), 2, saves=True, report="again") == [0]
    assert losses(job.report("again")) == {}
