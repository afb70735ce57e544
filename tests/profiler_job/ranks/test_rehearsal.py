"""A rank that runs alone on a device holds there what it holds among the others."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, Precision
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_profiler.errors import BusyDeviceError
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_profiler.ranks.rehearsal import (
    NUM_STEPS,
    RehearsalJob,
    fill_with_noise,
    job_of,
    rehearse,
)
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.devices.peaks import STEP_PHASES, PeakWatch
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import (
    ForeignFingerprintError,
    NoGpuError,
    PlanMismatchError,
    TrainerError,
)
from plimsoll_trainer.process.assignment import assign
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.workload import Workload
from tests.support.builders import a_profile, an_offer
from tests.support.plans import plan_for
from tests.support.ranks import Died, run_on_device, run_ranks, try_ranks

pytestmark = pytest.mark.slow
GPT = "tests.support.workloads:a_gpt"
TRAINED = "tests.support.workloads:a_trained_gpt"
SEQUENTIAL = "tests.support.workloads:a_sequential"
CPU = torch.device("cpu")
TOLERANCE_BYTES = 1024
"""Losses and norms that only a real step hands out, and buffers of gloo."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan of a small workload."""

    cuts: tuple[int, ...]
    replicas: int = 1
    recomputed: tuple[int, ...] = ()
    entrypoint: str = GPT
    fields: tuple[tuple[str, Any], ...] = (("depth", 4),)
    micro_batch: int = 2

    def plan(self) -> HybridPlan:
        """The plan."""
        return plan_for(
            self.cuts,
            replicas=self.replicas,
            recomputed=self.recomputed,
            micro_batch=self.micro_batch,
            global_batch=16,
            entrypoint=self.entrypoint,
            arguments=json.dumps(dict(self.fields)),
        )

    def workload(self) -> Workload:
        """The workload."""
        plan = self.plan()
        arguments = parse_arguments(plan.fingerprint.arguments)
        return load_workload(self.entrypoint, arguments)


def rehearsal_of(
    case: Case, rank: int, other_bytes: int | None = 0, cap_bytes: int = 0
) -> Rehearsal:
    """Rehearse a rank here.

    Args:
        case: of which plan.
        rank: 0 to G - 1.
        other_bytes: in use by other processes.
        cap_bytes: of the device; 0: unlimited.
    """
    plan, workload = case.plan(), case.workload()
    if cap_bytes:
        EmulatedDevice().set_cap(cap_bytes)
    job = RehearsalJob(
        plan=plan,
        workload=workload,
        assignment=assign(plan, workload),
        rank=rank,
        device=HostDevice(),
        other_bytes=other_bytes,
    )
    return rehearse(job)


def real_peaks(case: Case) -> dict[Phase, int]:
    """Train a few steps as one rank among all of them, and watch its peaks."""
    plan, workload = case.plan(), case.workload()
    work = assign(plan, workload)
    watch = PeakWatch(HostDevice())
    trainer = Trainer(
        workload,
        slices=work.slices,
        boundaries=boundaries_of(workload, work.micro_batch),
        num_micro_batches=work.num_micro_batches,
        world=join_world(work.num_stages, work.num_replicas, CPU),
        on_phase=watch,
    )
    for step in range(NUM_STEPS):
        trainer.run_step(step)
    return watch.device_bytes


def replayed_peak(case: Case, stage: int) -> int:
    """Replay a stage without data."""
    plan, workload = case.plan(), case.workload()
    work = assign(plan, workload)
    job = ReplayJob(
        workload=workload,
        slices=work.slices,
        num_replicas=work.num_replicas,
        num_micro_batches=work.num_micro_batches,
        boundaries=boundaries_of(workload, work.micro_batch),
        device_kind=DeviceKind.EMULATED,
    )
    return max(replay_stage(job, stage).values())


def steady_peak(peaks: dict[Phase, int]) -> int:
    """The largest peak of steps after the first."""
    return max(peaks[phase] for phase in STEP_PHASES)


def peaks_of(found: Rehearsal) -> dict[Phase, int]:
    """Bytes of the device by phase."""
    return {one.phase: one.device_bytes for one in found.observation.peaks}


CASES = {
    "one rank": Case(cuts=(0, 6)),
    "first, middle, last": Case(cuts=(0, 2, 4, 6)),
    "recomputed": Case(cuts=(0, 3, 6), recomputed=(1, 4)),
    "replicas": Case(cuts=(0, 4, 6), replicas=2, recomputed=(2,)),
    "no ties": Case(cuts=(0, 3, 6), fields=(("depth", 4), ("tied", False))),
    "bf16": Case(cuts=(0, 3, 6), fields=(("depth", 4), ("precision", "bf16"))),
    "batch statistics of floats": Case(
        cuts=(0, 2, 6), entrypoint=SEQUENTIAL, fields=(), micro_batch=4
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_rehearsed_rank_holds_what_it_holds_among_the_others(case: Case) -> None:
    """In every phase, first stages, middle ones and last ones; so does its replay."""
    real = run_ranks(real_peaks, len(case.cuts[1:]) * case.replicas, case)
    for stage in range(len(case.cuts) - 1):
        rank = stage * case.replicas
        found = run_on_device(rehearsal_of, case, rank)
        assert found.fits
        alone = peaks_of(found)
        assert alone.keys() == real[rank].keys()
        for phase, held in real[rank].items():
            assert abs(alone[phase] - held) <= TOLERANCE_BYTES, (rank, phase)
        replayed = run_on_device(replayed_peak, case, stage)
        assert abs(steady_peak(alone) - replayed) <= TOLERANCE_BYTES, rank


def test_what_overflows_in_a_rehearsal_is_stepped_on() -> None:
    """Noise overflows in fp16 where a training would not; the rank has its state."""
    fields = (("depth", 4), ("precision", "fp16"))
    low, high = (
        Case(cuts=(0, 3, 6), entrypoint=TRAINED, fields=(*fields, ("first_scale", one)))
        for one in (2.0**8, 2.0**60)
    )
    found = peaks_of(run_on_device(rehearsal_of, high, 1))
    assert found == peaks_of(run_on_device(rehearsal_of, low, 1))


def test_a_rehearsal_says_what_it_ran_and_where() -> None:
    """As a rank of an attempt does, but for groups that it talks in."""
    case = CASES["first, middle, last"]
    found = run_on_device(rehearsal_of, case, 1)
    seen, plan = found.observation, case.plan()
    assert (seen.rank, seen.attempt, seen.num_communicators) == (1, 1, 0)
    assert (seen.num_steps, len(seen.step_s)) == (NUM_STEPS, NUM_STEPS - 1)
    assert seen.fingerprint == plan.fingerprint
    assert seen.device_kind is DeviceKind.EMULATED
    assert seen.overhead_key.device_product == "process"
    assert (found.capacity_bytes, found.other_bytes) == (0, 0)


def test_a_cap_just_above_the_peak_is_enough_and_one_below_is_not() -> None:
    """Out of memory is a verdict, with rank, phase and bytes."""
    case = CASES["first, middle, last"]
    most = max(peaks_of(run_on_device(rehearsal_of, case, 1)).values())
    enough, less = most + 64, most - 64
    above = run_on_device(rehearsal_of, case, 1, cap_bytes=enough)
    assert above.fits
    assert above.capacity_bytes == enough
    below = run_on_device(rehearsal_of, case, 1, cap_bytes=less)
    full = below.full_device
    assert full is not None
    assert full.rank == 1
    assert full.phase in (Phase.FORWARD, *STEP_PHASES)
    assert full.asked_bytes > 0
    in_use = max(peak.allocated_bytes for peak in below.observation.peaks)
    assert less - full.asked_bytes < in_use <= less
    assert below.observation.num_steps < NUM_STEPS


def test_a_device_that_cannot_hold_the_layers_is_full_while_they_are_built() -> None:
    """Before any step; the bytes in use then are reported."""
    below = run_on_device(rehearsal_of, CASES["one rank"], 0, cap_bytes=2**16)
    assert below.full_device is not None
    assert below.full_device.phase is Phase.BUILD
    assert [peak.phase for peak in below.observation.peaks] == [Phase.BUILD]
    assert below.observation.num_steps == 0


@pytest.mark.parametrize("other_bytes", [None, 0, 5 * 2**20])
def test_memory_that_others_use_is_no_verdict(other_bytes: int | None) -> None:
    """A rank that runs out beside them is reported with their bytes; unless it fits.

    If their use is unknown, it counts as a verdict.
    """
    case = CASES["one rank"]
    fits = run_on_device(rehearsal_of, case, 0, other_bytes)
    assert (fits.fits, fits.other_bytes) == (True, other_bytes)
    if not other_bytes:
        full = run_on_device(rehearsal_of, case, 0, other_bytes, cap_bytes=2**16)
        assert (full.fits, full.other_bytes) == (False, other_bytes)
        return
    message = run_on_device(refused, case, other_bytes)
    assert message.startswith("out of device memory in build: ")
    assert "other processes have 5.00 MiB of the device" in message
    assert "end them, and rehearse again" in message


def refused(case: Case, other_bytes: int) -> str:
    """Why a rank that runs out beside others gives no result."""
    with pytest.raises(BusyDeviceError) as error:
        rehearsal_of(case, 0, other_bytes, 2**16)
    return str(error.value)


def broken() -> Workload:
    """Build a net whose data cannot be read."""
    workload = Case(cuts=(0, 6)).workload()
    return replace(workload, batch=no_batch)


def no_batch(step: int, first: int, count: int) -> Any:
    """Read nothing."""
    raise ValueError(f"no sample {first} of step {step} to {first + count}")


def test_what_else_goes_wrong_is_an_error_with_its_line() -> None:
    """It says nothing about memory."""
    [died] = try_ranks(rehearse_broken, [0])
    assert isinstance(died, Died)
    assert died.text.startswith("WorkloadError: batch(0, 0, 2) raises ValueError: ")
    assert "no sample 0 of step 0" in died.text


def rehearse_broken() -> None:
    """Rehearse that net in a process that is in no group."""
    torch.distributed.destroy_process_group()
    plan, workload = Case(cuts=(0, 6)).plan(), broken()
    work = assign(plan, workload)
    rehearse(
        RehearsalJob(
            plan=plan, workload=workload, assignment=work, rank=0, device=HostDevice()
        )
    )


def test_what_would_be_received_is_noise_of_one_size() -> None:
    """The same each time; integers are zeros, which index everything there is."""
    fill, again = fill_with_noise(CPU), fill_with_noise(CPU)
    floats, others = torch.empty(50_000), torch.empty(50_000)
    state = torch.get_rng_state()
    fill(floats)
    again(others)
    assert torch.equal(torch.get_rng_state(), state)  # a layer's numbers stay its own
    assert torch.equal(floats, others)
    assert float(floats.std()) == pytest.approx(1e-2, rel=0.05)
    fill(others)
    assert not torch.equal(floats, others)
    integers = torch.full((4,), 7)
    fill(integers)
    assert integers.tolist() == [0, 0, 0, 0]
    needs_gradient = torch.empty(4, requires_grad=True)
    fill(needs_gradient)
    assert needs_gradient.grad_fn is None
    half = torch.empty(4, dtype=torch.bfloat16)
    fill(half)
    assert torch.isfinite(half).all()


ARGUMENTS = json.dumps({"depth": 2, "precision": "bf16"})


@pytest.fixture(name="plan")
def a_small_plan() -> HybridPlan:
    """Put a GPT of four layers on two emulated devices."""
    return plan_for((0, 2, 4), entrypoint=GPT, arguments=ARGUMENTS)


@pytest.fixture(name="profile")
def its_profile(plan: HybridPlan) -> ModelProfile:
    """Build a profile of that GPT."""
    recipe = replace(a_profile().recipe, gradient_precision=Precision.FP32)
    return a_profile(fingerprint=plan.fingerprint, recipe=recipe)


def job_on_device(plan: HybridPlan, profile: ModelProfile, rank: int) -> int:
    """Make the job of a rank in this process; which rank it is of."""
    gc.collect()
    return job_of(plan, profile, GPT, rank, 0).rank


def why_not(
    plan: HybridPlan, profile: ModelProfile, rank: int, kind: type[TrainerError]
) -> str:
    """Why a job is refused in this process."""
    with pytest.raises(kind) as error:
        job_of(plan, profile, GPT, rank, 0)
    return str(error.value)


def test_the_job_of_each_rank_of_a_plan_is_made(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """And of no other."""
    assert run_on_device(job_on_device, plan, profile, 1) == 1
    for rank in (-1, 2):
        message = run_on_device(why_not, plan, profile, rank, PlanMismatchError)
        assert message == f"there is no rank {rank}: the plan has ranks 0 to 1"


def test_other_code_than_was_planned_or_profiled_is_not_rehearsed(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """Its memory would prove nothing about the plan."""
    other = replace(plan.fingerprint, source_digest="sha256:" + "0" * 64)
    pairs: Sequence[tuple[HybridPlan, ModelProfile]] = (
        (replace(plan, fingerprint=other), profile),
        (plan, replace(profile, fingerprint=other)),
    )
    for planned, profiled in pairs:
        message = run_on_device(why_not, planned, profiled, 0, ForeignFingerprintError)
        assert "the source is not" in message


def test_layers_of_another_name_are_not_rehearsed(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """The same code may build another model, say by an environment variable."""
    names = ("embedding", "block.0", "bend", "head")
    other = replace(profile, layers=replace(profile.layers, name=names))
    message = run_on_device(why_not, plan, other, 0, PlanMismatchError)
    assert "the name of layer 2 was 'bend' when profiled" in message


def why_not_without_gpus(plan: HybridPlan, profile: ModelProfile) -> str:
    """Why a job is refused where this process, which had none yet, finds no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return why_not(plan, profile, 0, NoGpuError)


def test_a_plan_for_gpus_is_not_rehearsed_without_one(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """Never on the CPU instead; a GPU that has gone is missed in the same words."""
    offer = an_offer(device_kind=DeviceKind.CUDA, devices_per_node=2)
    asked = replace(plan, offers=(offer,))
    message = run_on_device(why_not_without_gpus, asked, profile)
    assert message.startswith("the plan is for GPUs, and local rank 0 finds 0 of them")
