"""Every wish of a plan is run as planned, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.engine import OptimizerHome, Schedule, Sharding
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    OptimizerMode,
    Precision,
    Recipe,
    Variant,
)
from plimsoll_planner.records.plan import HybridPlan, PodShape
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.errors import ForeignFingerprintError, PlanMismatchError
from plimsoll_trainer.process.assignment import assign
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.builders import a_plan, a_profile, a_stage, an_offer
from tests.support.workloads import a_gpt

EMULATED = an_offer(device_kind=DeviceKind.EMULATED)


def plan(**fields: Any) -> HybridPlan:
    """Build two stages of two replicas for four layers, on emulated devices."""
    return a_plan(**({"offers": (EMULATED,)} | fields))


def workload(**fields: Any) -> Workload:
    """Build four layers."""
    return a_gpt(depth=2, **fields)


def test_a_plan_becomes_slices() -> None:
    """Cuts, recompute and degrees arrive as planned."""
    found = assign(plan(), workload())
    assert found.slices == (
        StageSlice(first_layer=0, end_layer=2, recomputed=frozenset({1})),
        StageSlice(first_layer=2, end_layer=4),
    )
    assert (found.num_stages, found.num_replicas, found.global_batch_size) == (2, 2, 8)


def test_levels_and_caps_arrive_where_they_differ_from_plain() -> None:
    """A stage that has as many in flight as ever runs as ever."""
    stages = (
        a_stage(0, 2, (0, 1), sharding=Sharding.OPTIMIZER, in_flight_cap=1),
        a_stage(2, 4, (2, 3), in_flight_cap=1),
    )
    first, last = assign(plan(stages=stages), workload()).slices
    assert (first.sharding, first.in_flight_cap) == (Sharding.OPTIMIZER, 1)
    assert (last.sharding, last.in_flight_cap) == (Sharding.NONE, None)


def test_state_that_is_no_sum_of_parts_is_not_divided() -> None:
    """By the optimizer that is here, whatever was profiled."""
    whole = (a_stage(0, 2, (0, 1), in_flight_cap=2), a_stage(2, 4, (2, 3)))
    divided = (replace(whole[0], sharding=Sharding.OPTIMIZER), whole[1])
    loop = {"optimizer_mode": OptimizerMode.LOOP}
    mixing = workload(optimizer=torch.optim.Adafactor)
    assign(plan(stages=whole, **loop), mixing)
    with pytest.raises(PlanMismatchError, match=r"from 0 on, but a step .* Adafactor"):
        assign(plan(stages=divided, **loop), mixing)


class OnlyOnGpus(torch.optim.SGD):
    """Refuses what is not on a GPU, as optimizers of 8 bits do."""

    def step(self, closure: Any = None) -> Any:
        """Step, or refuse."""
        if not self.param_groups[0]["params"][0].is_cuda:
            raise RuntimeError("this kernel is for CUDA")
        return super().step(closure)


def test_an_optimizer_that_only_steps_on_gpus_stays_there() -> None:
    """By trying it, and in its own words."""
    stages = (
        a_stage(0, 2, (0, 1), in_flight_cap=2),
        a_stage(2, 4, (2, 3), optimizer_home=OptimizerHome.HOST),
    )
    first, last = assign(plan(stages=stages), workload()).slices
    assert first.optimizer_home is OptimizerHome.DEVICE
    assert last.optimizer_home is OptimizerHome.HOST
    loop = {"optimizer_mode": OptimizerMode.LOOP}
    with pytest.raises(PlanMismatchError, match=r"from 2 on .* is for CUDA at .*\.py:"):
        assign(plan(stages=stages, **loop), workload(optimizer=OnlyOnGpus))


THREE_PODS = PodShape(num_pods=1, gpus_per_pod=3, host_memory_bytes_per_pod=1)
SIX = PodShape(num_pods=1, gpus_per_pod=6, host_memory_bytes_per_pod=1)
SEQUENCE = Variant(tensor_degree=2, sequence_parallel=True)


def three_stages(first: int, second: int) -> dict[str, Any]:
    """Fields of a plan of three stages, with numbers in flight of the first two."""
    return {
        "stages": (
            a_stage(0, 1, (0, 1), in_flight_cap=first),
            a_stage(1, 2, (2, 3), in_flight_cap=second),
            a_stage(2, 4, (4, 5)),
        ),
        "num_micro_batches": 4,
        "global_batch_size": 8,
        "micro_batch": 1,
        "pods": SIX,
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": Schedule.GPIPE}, r"the schedule GPipe, .* which runs 1F1B"),
        (
            {
                "stages": (
                    a_stage(0, 2, (0, 1), variant=SEQUENCE, data_degree=1),
                    a_stage(2, 4, (2, 3), variant=SEQUENCE, data_degree=1),
                ),
                "num_micro_batches": 8,
            },
            "splits sequences over 2 ranks, but layer 'embedding' has no parallelize_s",
        ),
        (
            {"stages": (a_stage(0, 2, (0, 2)), a_stage(2, 4, (1, 3)))},
            r"the ranks \[0, 2\] on stage 0",
        ),
        (
            {
                "stages": (
                    a_stage(0, 2, (0, 1), in_flight_cap=3),
                    a_stage(2, 4, (2, 3)),
                )
            },
            "3 micro-batches in flight on stage 0, .* at most the 2 of plain 1F1B",
        ),
        (
            three_stages(1, 2),
            "2 micro-batches in flight on stage 1, after 1 on the stage before",
        ),
        (
            three_stages(3, 1),
            "stage 1, after 3 on the stage before, where only 3 or one fewer run",
        ),
        (
            {"num_micro_batches": 1, "micro_batch": 4, "stages": None},
            "1 micro-batches on 2 stages",
        ),
    ],
)
def test_what_cannot_run_yet_is_named(fields: dict[str, Any], message: str) -> None:
    """The line says what, and what this trainer runs instead."""
    if fields.get("stages", 0) is None:
        stages = (a_stage(0, 2, (0, 1)), a_stage(2, 4, (2, 3)))
        fields = fields | {"stages": stages}
    with pytest.raises(PlanMismatchError, match=message):
        assign(plan(**fields), workload())


def test_a_plan_for_another_chain_is_refused() -> None:
    """The number of layers, and where they may be recomputed."""
    message = (
        "for 4 layers, but the workload has 5: pass the arguments .* as the rank, the"
    )
    with pytest.raises(PlanMismatchError, match=message) as caught:
        assign(plan(), a_gpt(depth=3))
    assert caught.value.exit_code is ExitCode.BAD_WORKLOAD  # not to be tried again


def test_another_optimizer_is_refused() -> None:
    """It would hold other bytes at its step than were planned."""
    slow = AdamW(mode=OptimizerMode.FOREACH)
    with pytest.raises(PlanMismatchError, match=r"a fused optimizer, .* is foreach"):
        assign(plan(), workload(optimizer=slow))


def test_another_precision_or_name_is_refused_where_the_profile_is_at_hand() -> None:
    """A plan itself knows neither."""
    recipe = Recipe(
        precision=Precision.FP32, optimizer="AdamW", optimizer_mode=OptimizerMode.FUSED
    )
    profile = a_profile(recipe=recipe)
    planned = plan(fingerprint=profile.fingerprint)
    assign(planned, workload(), [profile])
    with pytest.raises(PlanMismatchError, match=r"precision was 'fp32' .* 'bf16'"):
        assign(planned, workload(precision=Precision.BF16), [profile])


def test_a_profile_of_other_sums_is_made_anew_or_refused() -> None:
    """One from before there was a choice does not match; a contradiction is refused."""
    for given, error in (
        (None, ForeignFingerprintError),
        (Precision.BF16, PlanMismatchError),
    ):
        recipe = Recipe(
            precision=Precision.BF16,
            optimizer="AdamW",
            optimizer_mode=OptimizerMode.FUSED,
            gradient_precision=given,
        )
        profile = a_profile(recipe=recipe)
        planned = plan(fingerprint=profile.fingerprint)
        with pytest.raises(error, match=r"bf16.* but here it is '?fp32'?"):
            assign(planned, workload(precision=Precision.BF16), [profile])
        both = workload(precision=Precision.BF16, gradient_precision=Precision.BF16)
        assign(planned, both, [profile])
