"""Plans of emulated devices for the workloads of tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from plimsoll_planner.records.document import digest_of, save
from plimsoll_planner.records.model_profile import DeviceKind, Variant
from plimsoll_planner.records.plan import Chunk, HybridPlan, PodShape
from plimsoll_planner.records.revision import Cause, Revision, cuts_of, num_layers_of
from plimsoll_planner.revising.moves import moves_between
from plimsoll_trainer.user_code.fingerprint import fingerprint_of
from tests.support.builders import a_plan, a_stage, an_offer

ENTRYPOINT = "tiny_model:workload"
"""A script that `tests.support.jobs.Job` writes: its fingerprint is its own."""


def plan_for(
    cuts: Sequence[int],
    *,
    replicas: int | tuple[int, int] = 1,
    recomputed: Collection[int] = (),
    of_stages: Sequence[Mapping[str, Any]] = (),
    micro_batch: int = 2,
    global_batch: int = 8,
    entrypoint: str = ENTRYPOINT,
    arguments: str = "{}",
    **fields: Any,
) -> HybridPlan:
    """Build a plan of emulated devices.

    Args:
        cuts: stage s holds the layers cuts[s] .. cuts[s + 1] - 1.
        replicas: D; or D, and T ranks that share each layer.
        recomputed: layers that are computed twice.
        of_stages: fields of every stage, such as its sharding.
        micro_batch: samples.
        global_batch: samples of a step.
        entrypoint: whose fingerprint the plan is for.
        arguments: of the entry point, as JSON.
        fields: of the plan.
    """
    replicas, parts = replicas if isinstance(replicas, tuple) else (replicas, 1)
    num_stages, of_stage = len(cuts) - 1, replicas * parts
    num_micro_batches = global_batch // replicas // micro_batch
    extra = [dict(one) for one in of_stages] or [{} for _ in range(num_stages)]
    stages = tuple(
        a_stage(
            cuts[stage],
            cuts[stage + 1],
            tuple(range(stage * of_stage, (stage + 1) * of_stage)),
            data_degree=replicas,
            recomputed_layers=tuple(
                i for i in sorted(recomputed) if cuts[stage] <= i < cuts[stage + 1]
            ),
            peaks=(),
            **{
                "variant": Variant(tensor_degree=parts),
                "in_flight_cap": min(num_stages - stage, num_micro_batches),
            }
            | extra[stage],
        )
        for stage in range(num_stages)
    )
    num_ranks = num_stages * of_stage
    offer = an_offer(
        device_kind=DeviceKind.EMULATED,
        device_product="process",
        devices_per_node=num_ranks,
    )
    defaults: dict[str, Any] = {
        "fingerprint": fingerprint_of(entrypoint, arguments),
        "global_batch_size": global_batch,
        "micro_batch": micro_batch,
        "num_micro_batches": num_micro_batches,
        "offers": (offer,),
        "stages": stages,
        "pods": PodShape(
            num_pods=1, gpus_per_pod=num_ranks, host_memory_bytes_per_pod=2**30
        ),
        "step_time": None,
    }
    return a_plan(**(defaults | fields))


def write_plan(folder: Path, cuts: Sequence[int], **fields: Any) -> Path:
    """Write a plan into a folder, under a name of its own."""
    path = folder / f"plan-{len(list(folder.glob('plan-*.json')))}.json"
    save(path, plan_for(cuts, **fields))
    return path


def revision_of(
    plan: HybridPlan, cuts: Sequence[int], recomputed: Collection[int] = ()
) -> Revision:
    """Build a revision of a plan with other cuts, and layers that recompute."""
    stages = tuple(
        replace(
            stage,
            chunks=(Chunk(first_layer=first, end_layer=end),),
            recomputed_layers=tuple(i for i in sorted(recomputed) if first <= i < end),
            offloaded_layers=(),
            offloaded_bytes=0,
            host_bytes=stage.host_bytes if stage.steps_on_host else 0,
        )
        for stage, (first, end) in zip(plan.stages, pairwise(cuts), strict=True)
    )
    after = replace(plan, revision=plan.revision + 1, stages=stages)
    return Revision(
        plan=after,
        follows=digest_of(plan),
        moves=moves_between(
            *(cuts_of(plan), cuts_of(after), num_layers_of(plan)),
            lambda _, first, end: end - first,
        ),
        cause=Cause.PACE,
        paces=(1.0,) * len(stages),
        step_before_s=2.0,
        step_after_s=1.0,
    )
