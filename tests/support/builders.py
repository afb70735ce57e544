"""Small valid records; a test overrides only what it is about."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    Decisions,
    NearestMiss,
    Rule,
)
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.document import Document, digest_of
from plimsoll_planner.records.engine import (
    EngineCapabilities,
    EngineHoldings,
    EngineTraits,
    Granularity,
    ReceiveBuffers,
    Schedule,
    Sharding,
)
from plimsoll_planner.records.frontier import Frontier, FrontierPoint
from plimsoll_planner.records.grid import Grid, GridCell
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval, Verdict
from plimsoll_planner.records.layer_costs import (
    ActivationColumns,
    ByteColumns,
    LayerCosts,
    SecondsColumns,
    Source,
    WorkColumns,
)
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    Fingerprint,
    LayerColumns,
    LibraryVersion,
    ModelProfile,
    OptimizerMode,
    Precision,
    Probe,
    ProbeOutcome,
    Recipe,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.offer import ComputeRate, Link, Offer
from plimsoll_planner.records.plan import (
    Chunk,
    HybridPlan,
    Phase,
    PhasePeak,
    PodShape,
    Stage,
)
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.rehearsal import MeasuredRank, MeasuredRanks, Rehearsal
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_planner.records.revision import Cause, Move, Revision
from plimsoll_planner.records.solution import (
    Infeasible,
    SearchStatistics,
    Solution,
    Termination,
)
from plimsoll_planner.records.space import Space
from plimsoll_planner.records.task import (
    Began,
    Command,
    End,
    Exit,
    FullDevice,
    Task,
    TaskKind,
    Variable,
)
from tests.support.operator_graphs import a_graph_profile, a_placement

DIGEST = "sha256:" + "0" * 64
MIB = 2**20


def byte_columns(num_rows: int, **fields: Any) -> ByteColumns:
    """Build lines of 1 MiB and 1 KiB for each sample."""
    defaults: dict[str, Any] = {
        "constant_bytes": (MIB,) * num_rows,
        "slope_bytes_per_sample": (1024,) * num_rows,
        "residual_bytes": (0,) * num_rows,
        "relative_error": (0.01,) * num_rows,
        "source": (Source.TRACED,) * num_rows,
    }
    return ByteColumns(**(defaults | fields))


def seconds_columns(num_rows: int, **fields: Any) -> SecondsColumns:
    """Build lines of 1 ms and 0.1 ms for each sample."""
    defaults: dict[str, Any] = {
        "constant_s": (1e-3,) * num_rows,
        "slope_s_per_sample": (1e-4,) * num_rows,
        "residual_s": (0.0,) * num_rows,
        "relative_error": (0.05,) * num_rows,
        "source": (Source.ESTIMATED,) * num_rows,
    }
    return SecondsColumns(**(defaults | fields))


def layer_costs(num_rows: int = 3, **fields: Any) -> LayerCosts:
    """Build a table with one row for each kind."""
    defaults: dict[str, Any] = {
        "kind": tuple(range(num_rows)),
        "variant": (0,) * num_rows,
        "parameter_bytes": (4 * MIB,) * num_rows,
        "gradient_bytes": (4 * MIB,) * num_rows,
        "buffer_bytes": (0,) * num_rows,
        "optimizer_bytes": (8 * MIB,) * num_rows,
        "optimizer_transient_bytes": (0,) * num_rows,
        "optimizer_step_s": (1e-4,) * num_rows,
        "optimizer_traffic_bytes": (1e6,) * num_rows,
        "recomputable": (True,) * num_rows,
    }
    defaults["boundary"] = byte_columns(num_rows)
    defaults["kept"] = activation_columns(num_rows)
    defaults["recomputed"] = activation_columns(
        num_rows, keeps_input=(True,) * num_rows
    )
    defaults["forward_work"] = work_columns(num_rows)
    defaults["backward_work"] = work_columns(num_rows)
    for name in ("forward", "backward", "recompute"):
        defaults[name] = seconds_columns(num_rows)
    return LayerCosts(**(defaults | fields))


def activation_columns(num_rows: int, **fields: Any) -> ActivationColumns:
    """Build lines of 1 MiB and 1 KiB for each sample; nothing at the ends is kept."""
    defaults: dict[str, Any] = {
        "saved": byte_columns(num_rows),
        "keeps_input": (False,) * num_rows,
        "keeps_output": (False,) * num_rows,
        "forward_transient": byte_columns(num_rows),
        "backward_transient": byte_columns(num_rows),
        "backward_transient_at_end": byte_columns(num_rows),
    }
    return ActivationColumns(**(defaults | fields))


def work_columns(num_rows: int, **fields: Any) -> WorkColumns:
    """Build 1 MFLOP and 1 kB for each sample."""
    defaults: dict[str, Any] = {
        "flop_constant": (0.0,) * num_rows,
        "flop_per_sample": (1e6,) * num_rows,
        "traffic_constant_bytes": (0.0,) * num_rows,
        "traffic_bytes_per_sample": (1e3,) * num_rows,
    }
    return WorkColumns(**(defaults | fields))


def a_fingerprint(**fields: Any) -> Fingerprint:
    """Build a fingerprint."""
    defaults: dict[str, Any] = {
        "source_digest": DIGEST,
        "python_version": "3.11.7",
        "torch_version": "2.15.0",
        "libraries": (LibraryVersion(name="transformers", version="5.23.0"),),
        "image": "registry.example/train@sha256:1",
    }
    return Fingerprint(**(defaults | fields))


def a_probe(**fields: Any) -> Probe:
    """Build a probe of the first kind that completed."""
    defaults: dict[str, Any] = {
        "kind": 0,
        "variant": 0,
        "micro_batch": 1,
        "outcome": ProbeOutcome.COMPLETED,
    }
    return Probe(**(defaults | fields))


def a_recipe(**fields: Any) -> Recipe:
    """Build how a workload trains."""
    defaults: dict[str, Any] = {
        "precision": Precision.BF16,
        "optimizer": "AdamW",
        "optimizer_mode": OptimizerMode.FUSED,
    }
    return Recipe(**(defaults | fields))


def a_profile(**fields: Any) -> ModelProfile:
    """Build a chain of embedding, two equal blocks and a tied head."""
    defaults: dict[str, Any] = {
        "request_key": DIGEST,
        "fingerprint": a_fingerprint(),
        "device_kind": DeviceKind.CUDA,
        "recipe": a_recipe(),
        "tokens_per_sample": 2048,
        "input_bytes_per_sample": 16384,
        "target_bytes_per_sample": 16384,
        "kinds": ("embedding", "block", "head"),
        "variants": (Variant(),),
        "layers": LayerColumns(
            name=("embedding", "block.0", "block.1", "head"), kind=(0, 1, 1, 2)
        ),
        "costs": layer_costs(),
        "tied": (TiedLayers(layers=(0, 3)),),
        "probes": (a_probe(kind=1, micro_batch=4, outcome=ProbeOutcome.OUT_OF_MEMORY),),
    }
    return ModelProfile(**(defaults | fields))


def an_overhead(**fields: Any) -> DeviceOverhead:
    """Build a calibrated overhead."""
    defaults: dict[str, Any] = {
        "key": OverheadKey(device_product="H200", torch_version="2.15.0"),
        "allocator": OverheadLine(constant_bytes=64 * MIB, relative_error=0.1),
        "outside": OverheadLine(
            constant_bytes=600 * MIB, bytes_per_communicator=500 * MIB
        ),
        "num_observations": 4,
    }
    return DeviceOverhead(**(defaults | fields))


def an_engine(**fields: Any) -> EngineTraits:
    """Build an engine that runs 1F1B."""
    defaults: dict[str, Any] = {
        "engine": "plimsoll",
        "version": "torch 2.15.0",
        "holds": EngineHoldings(
            receive_buffers=ReceiveBuffers.JUST_IN_TIME,
            stage_outputs_kept=False,
            logits_kept=True,
            sends_waited_at_step_end=False,
            gradient_bucket_copies=0.0,
        ),
        "can": EngineCapabilities(
            schedules=(Schedule.ONE_F_ONE_B,),
            fewer_micro_batches_than_stages=False,
            in_flight_caps=True,
            uneven_stages=True,
            recompute=Granularity.LAYER,
            shardings=(Sharding.NONE, Sharding.OPTIMIZER),
            shardings_with_pipeline=(Sharding.NONE,),
            tensor_parallel=False,
        ),
        "verified": False,
    }
    return EngineTraits(**(defaults | fields))


def an_offer(**fields: Any) -> Offer:
    """Build a priced machine of eight devices."""
    defaults: dict[str, Any] = {
        "name": "h200-8",
        "device_product": "H200",
        "device_memory_bytes": 139 * 2**30,
        "devices_per_node": 8,
        "price_per_node_hour": Decimal("80.00"),
        "currency": "USD",
        "link_in_node": Link(bandwidth_bytes_per_s=450e9, latency_s=5e-6),
        "compute_rates": (ComputeRate(precision=Precision.BF16, flop_per_s=989e12),),
    }
    return Offer(**(defaults | fields))


def a_problem(**fields: Any) -> Problem:
    """Build a question about the small chain."""
    defaults: dict[str, Any] = {
        "profile": a_profile(),
        "overheads": (an_overhead(),),
        "offers": (an_offer(),),
        "engine": an_engine(),
        "global_batch_size": 8,
        "limits": Limits(max_gpus=16),
        "objective": Objective(),
    }
    return Problem(**(defaults | fields))


def bytes_between(lower: int, upper: int) -> ByteInterval:
    """Build an interval whose expected value is the upper bound."""
    return ByteInterval(lower_bytes=lower, expected_bytes=upper, upper_bytes=upper)


def a_peak(phase: Phase = Phase.BACKWARD, upper_bytes: int = 10 * MIB) -> PhasePeak:
    """Build a predicted peak whose device number is `upper_bytes`."""
    return PhasePeak(
        phase=phase,
        allocated=bytes_between(0, upper_bytes),
        reserved=bytes_between(0, upper_bytes),
        device=bytes_between(0, upper_bytes),
    )


def a_stage(first: int, end: int, ranks: tuple[int, ...], **fields: Any) -> Stage:
    """Build a stage of the layers from `first` up to `end`."""
    defaults: dict[str, Any] = {
        "chunks": (Chunk(first_layer=first, end_layer=end),),
        "ranks": ranks,
        "offer": 0,
        "data_degree": len(ranks),
        "in_flight_cap": 1,
        "peaks": (a_peak(),),
    }
    return Stage(**(defaults | fields))


def a_plan(**fields: Any) -> HybridPlan:
    """Build two stages, each on two data-parallel ranks."""
    defaults: dict[str, Any] = {
        "fingerprint": a_fingerprint(),
        "global_batch_size": 8,
        "micro_batch": 1,
        "num_micro_batches": 4,
        "schedule": Schedule.ONE_F_ONE_B,
        "engine": "plimsoll",
        "engine_version": "torch 2.15.0",
        "optimizer_mode": OptimizerMode.FUSED,
        "offers": (an_offer(),),
        "stages": (
            a_stage(0, 2, (0, 1), in_flight_cap=2, recomputed_layers=(1,)),
            a_stage(2, 4, (2, 3)),
        ),
        "pods": PodShape(num_pods=1, gpus_per_pod=4, host_memory_bytes_per_pod=2**30),
        "step_time": SecondsInterval(lower_s=0.9, expected_s=1.0, upper_s=1.1),
    }
    return HybridPlan(**(defaults | fields))


def a_revision(before: HybridPlan | None = None, **fields: Any) -> Revision:
    """Build a revision of `a_plan`: layer 2 goes from stage 1 to stage 0."""
    before = before or a_plan()
    first, last = before.stages
    stages = (
        dataclasses.replace(first, chunks=(Chunk(first_layer=0, end_layer=3),)),
        dataclasses.replace(last, chunks=(Chunk(first_layer=3, end_layer=4),)),
    )
    defaults: dict[str, Any] = {
        "plan": dataclasses.replace(before, revision=2, stages=stages),
        "follows": digest_of(before),
        "moves": (Move(layer=2, source=1, destination=0),),
        "cause": Cause.PACE,
        "paces": (1.0, 2.0),
        "step_before_s": 2.0,
        "step_after_s": 1.5,
    }
    return Revision(**(defaults | fields))


def a_frontier(**fields: Any) -> Frontier:
    """Build a curve of `a_plan` and of one that is slower and lighter."""
    fast = FrontierPoint.of(a_plan(), least_peak_bytes=9 * MIB)
    slow = dataclasses.replace(
        fast,
        step_time=SecondsInterval(lower_s=1.8, expected_s=2.0, upper_s=2.2),
        peak_bytes=8 * MIB,
        least_peak_bytes=8 * MIB,
        in_flight_caps=(1, 1),
    )
    defaults: dict[str, Any] = {
        "num_gpus": 4,
        "capacity_bytes": 12 * MIB,
        "points": (fast, slow),
        "search_s": 0.5,
    }
    return Frontier(**(defaults | fields))


def a_grid(**fields: Any) -> Grid:
    """Build a grid of `a_plan`, of a count that fails, and one without time for it."""
    plan = FrontierPoint.of(a_plan(), least_peak_bytes=0)
    fits = GridCell(
        offer=0,
        num_gpus=4,
        micro_batch=plan.micro_batch,
        verdict=Verdict.FITS,
        plan=plan,
        price_per_hour=Decimal("1.5"),
    )
    fails = GridCell(
        offer=0,
        num_gpus=2,
        micro_batch=plan.micro_batch,
        verdict=Verdict.FAILS,
        binding=Binding.MEMORY,
        least_bytes=11 * MIB,
    )
    late = GridCell(offer=0, num_gpus=8, micro_batch=1, verdict=None)
    defaults: dict[str, Any] = {
        "cells": (fails, fits, late),
        "limit_s": 10.0,
        "search_s": 10.5,
    }
    return Grid(**(defaults | fields))


def decisions(num_gpus: int, **fields: Any) -> Decisions:
    """Build a single tuple, a pipeline of one device a stage, that fails."""
    defaults: dict[str, Any] = {
        "pipeline_degree": (num_gpus,),
        "tensor_degree": (1,),
        "data_degree": (1,),
        "micro_batch": (1,),
        "largest_micro_batch": (1,),
        "num_members": (1,),
        "sharding": (Sharding.NONE,),
        "schedule": (Schedule.ONE_F_ONE_B,),
        "offer": (0,),
        "gpus_per_pod": (1,),
        "verdict": (Verdict.FAILS,),
        "rule": (Rule.SEARCHED,),
        "least_lower_bytes": (11 * MIB,),
        "best_samples_per_s": (0.0,),
        "sequence_parallel": (False,),
    }
    return Decisions(**(defaults | fields))


def a_count(
    num_gpus: int, verdict: Verdict = Verdict.FAILS, **fields: Any
) -> CountVerdict:
    """Build the verdict for one count, decided by a single tuple."""
    fails = verdict is Verdict.FAILS
    defaults: dict[str, Any] = {
        "num_gpus": num_gpus,
        "binding": Binding.MEMORY if fails else None,
        "nearest_miss": a_miss() if fails else None,
        "num_undecided": int(verdict is Verdict.UNDECIDED),
        "decisions": decisions(num_gpus, verdict=(verdict,)),
    }
    return CountVerdict(**(defaults | fields))


def a_miss(**fields: Any) -> NearestMiss:
    """Build a rank that is 1 MiB short."""
    defaults: dict[str, Any] = {
        "binding": Binding.MEMORY,
        "rank": 0,
        "phase": Phase.BACKWARD,
        "needed_bytes": 11 * MIB,
        "capacity_bytes": 10 * MIB,
    }
    return NearestMiss(**(defaults | fields))


def a_certificate(**fields: Any) -> Certificate:
    """Build: 1 to 3 GPUs fail, 4 fit."""
    defaults: dict[str, Any] = {
        "space": Space(
            limits=Limits(max_gpus=16), offers=(an_offer(),), without=("offload",)
        ),
        "counts": (*map(a_count, (1, 2, 3)), a_count(4, Verdict.FITS)),
        "fewest_at_any_speed": 4,
        "rate_at_any_speed": 0.8,
    }
    return Certificate(**(defaults | fields))


STATISTICS = SearchStatistics(num_tuples=12, num_plans=340, search_s=0.02)


def a_solution(**fields: Any) -> Solution:
    """Build an optimal answer."""
    defaults: dict[str, Any] = {
        "termination": Termination.OPTIMAL,
        "gap": 0.0,
        "plan": a_plan(),
        "certificate": a_certificate(),
        "alternatives": (a_plan(revision=2),),
        "statistics": STATISTICS,
    }
    return Solution(**(defaults | fields))


def an_infeasible(**fields: Any) -> Infeasible:
    """Build an answer without a plan."""
    defaults: dict[str, Any] = {
        "binding": Binding.MEMORY,
        "nearest_miss": a_miss(),
        "nearest_change": "1 MiB more on each device",
        "certificate": a_certificate(
            counts=(a_count(1),), fewest_at_any_speed=None, rate_at_any_speed=None
        ),
        "statistics": STATISTICS,
    }
    return Infeasible(**(defaults | fields))


def an_observation(**fields: Any) -> Observation:
    """Build what one rank reports."""
    defaults: dict[str, Any] = {
        "plan_digest": DIGEST,
        "revision": 1,
        "attempt": 1,
        "rank": 0,
        "fingerprint": a_fingerprint(),
        "device_kind": DeviceKind.CUDA,
        "overhead_key": an_overhead().key,
        "num_communicators": 2,
        "num_steps": 2,
        "step_s": (1.02, 0.98),
        "peaks": (
            ObservedPeak(
                phase=Phase.BACKWARD,
                allocated_bytes=8 * MIB,
                reserved_bytes=9 * MIB,
                device_bytes=10 * MIB,
            ),
        ),
    }
    return Observation(**(defaults | fields))


def a_replay(**fields: Any) -> Replay:
    """Build the replay of one stage."""
    peak = ReplayedPeak(phase=Phase.BACKWARD, allocated_bytes=8 * MIB)
    defaults: dict[str, Any] = {
        "plan_digest": DIGEST,
        "torch_version": "2.15.0",
        "stages": (ReplayedStage(stage=0, peaks=(peak,)),),
    }
    return Replay(**(defaults | fields))


def a_rehearsal(**fields: Any) -> Rehearsal:
    """Build the rehearsal of rank 0 that ran all its steps, beside nobody."""
    defaults: dict[str, Any] = {
        "observation": an_observation(num_communicators=0),
        "capacity_bytes": 139 * 2**30,
        "other_bytes": 0,
    }
    return Rehearsal(**(defaults | fields))


def a_failed_rehearsal(**fields: Any) -> Rehearsal:
    """Build the rehearsal of rank 0 that ran out of memory in its first step."""
    seen = an_observation(num_communicators=0, num_steps=0, step_s=())
    full = FullDevice(rank=0, phase=Phase.BACKWARD, asked_bytes=MIB)
    return a_rehearsal(**({"observation": seen, "full_device": full} | fields))


def measured_ranks() -> MeasuredRanks:
    """Build what a machine without a store has measured: one rank."""
    seen = an_observation(num_communicators=0)
    rank = MeasuredRank(observation=seen, predicted=a_peak(), micro_batch=2)
    return MeasuredRanks(ranks=(rank,))


def a_life() -> tuple[Task, Began, End]:
    """Build the end of a worker group that ran out of device memory."""
    command = Command(
        words=("python3", "-m", "plimsoll_trainer"),
        variables=(Variable(name="RANK", value="0"),),
    )
    task = Task(
        child_kind=TaskKind.TRAIN, subject="1", commands=(command,), folder="/work"
    )
    full = FullDevice(rank=0, phase=Phase.BACKWARD, asked_bytes=MIB)
    ended = Exit(status=83, said="rank 0: backward: the device is full")
    end = End(at_s=2.5, exits=(ended,), first=0, full_device=full)
    return task, Began(pid=7, at_s=1.5), end


def every_document() -> list[Document]:
    """Build one of each kind of document."""
    return [
        a_profile(),
        an_overhead(),
        an_engine(),
        an_offer(),
        a_problem(),
        a_plan(),
        a_certificate(),
        a_solution(frontier=a_frontier(), grid=a_grid()),
        an_infeasible(grid=a_grid()),
        an_observation(),
        a_replay(),
        a_failed_rehearsal(),
        a_revision(),
        measured_ranks(),
        a_graph_profile(),
        a_placement(),
        *a_life(),
    ]
