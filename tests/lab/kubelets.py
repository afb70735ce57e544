"""Kubelets that nobody runs: what they would say of the pods of a namespace.

In: a script of endings. Out: the status of pods, and in the store the reports of pods,
as the ingest puts it there. For tests whose API server has no nodes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plimsoll_operator.backends.pods.job import JOB_NAME
from plimsoll_operator.kube.api import CONFIG_MAPS, JOBS, PODS, Api, Object
from plimsoll_operator.names import (
    AFTER_ANNOTATION,
    ATTEMPT_LABEL,
    GPU_RESOURCE,
    SUBJECT_ANNOTATION,
    TASK_LABEL,
)
from plimsoll_operator.objects.pods import index_of
from plimsoll_operator.objects.record_maps import plan_in
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_operator.store.learning import learn_rehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.document import digest_of, to_text
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_planner.records.task import End, Exit, FullDevice
from plimsoll_planner.search.replayed import largest
from tests.support.builders import an_observation
from tests.support.chains import Activation, Layer, chain_profile

POLL_S = 0.1
MIB = 2**20
LAYER = Layer(
    parameters=256 * MIB,
    gradients=256 * MIB,
    optimizer=512 * MIB,
    boundary=64 * MIB,
    kept=Activation(
        saved=384 * MIB, keeps_input=True, forward=448 * MIB, backward=512 * MIB
    ),
    again=Activation(keeps_input=True, forward=256 * MIB, backward=576 * MIB),
)
"""Large beside what a device holds besides tensors, as ranks report it."""
NUM_LAYERS = 8


def finished(pod: Object, status: int, message: str, now_s: float) -> Object:
    """Status of a pod that has ended."""
    at = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {
        "exitCode": status,
        "reason": "Error" if status else "Completed",
        "message": message,
        "startedAt": at,
        "finishedAt": at,
    }
    return {
        "phase": "Failed" if status else "Succeeded",
        "containerStatuses": [container_status(pod, {"terminated": ended})],
    }


def container_status(pod: Object, state: Object) -> Object:
    """Status of the container of a pod."""
    [container] = pod["spec"]["containers"]
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def gpus_of(pod: Object) -> int:
    """Count the GPUs that a pod asks for."""
    [container] = pod["spec"]["containers"]
    return int(container["resources"].get("limits", {}).get(GPU_RESOURCE, 0))


RUNS = "runs"
"""A pod that is left alone."""


@dataclass(kw_only=True)
class Kubelets:
    """Let pods of one namespace run and end."""

    api: Api
    store: Store
    namespace: str
    stores: dict[str, Store] = field(default_factory=dict[str, Store])
    """Of plans that have one of their own, by name."""
    met: dict[str, str] = field(default_factory=dict[str, str])
    """Names of Jobs whose pods were seen, by uid."""
    endings: dict[tuple[str, str], list[str | ExitCode]] = field(
        default_factory=dict[tuple[str, str], list["str | ExitCode"]]
    )
    """Of the tasks of a plan, by its name and their kind, one after the other; then
    all are done."""
    jobs: dict[str, str | ExitCode] = field(default_factory=dict[str, "str | ExitCode"])
    """How each Job ends, by its uid."""
    is_away: bool = False
    """Nothing is said of any pod."""
    gpus: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Kind of each Job whose pods were seen, and the GPUs that a pod of it asks for."""
    verdicts: list[bool] = field(default_factory=list[bool])
    """Whether rehearsed ranks fit, one after the other; then all do."""
    held_back: tuple[str, ...] = ()
    """Kinds of tasks whose pods never begin."""

    async def work(self) -> None:
        """Act until cancelled."""
        while True:
            for pod in await self.api.list(PODS, self.namespace):
                await self.act(pod)
            await asyncio.sleep(POLL_S)

    async def act(self, pod: Object) -> None:
        """Let one pod go one step on."""
        metadata, phase = pod["metadata"], pod["status"]["phase"]
        if phase in ("Succeeded", "Failed") or self.is_away:
            return
        job = await self.api.get(JOBS, self.namespace, metadata["labels"][JOB_NAME])
        if job is None:
            return
        kind = TaskKind(job["metadata"]["labels"][TASK_LABEL])
        if job["metadata"]["uid"] not in self.met:
            self.met[job["metadata"]["uid"]] = job["metadata"]["name"]
            self.gpus.append((kind.value, gpus_of(pod)))
        if "deletionTimestamp" in metadata:
            await self._end(pod, job, kind, ExitCode.CHECKPOINTED)
        elif "deletionTimestamp" not in job["metadata"] and kind not in self.held_back:
            await self._go_on(pod, job, kind)

    async def _go_on(self, pod: Object, job: Object, kind: TaskKind) -> None:
        """Let a pod begin, or end as the script says."""
        if pod["status"]["phase"] == "Pending" and kind is TaskKind.TRAIN:
            began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            state = {"running": {"startedAt": began}}
            status = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [container_status(pod, state)],
            }
            await self._say(pod, status)
            return
        ending = self._ending(job, kind)
        if isinstance(ending, ExitCode):
            await self._end(pod, job, kind, ending)

    async def _end(
        self, pod: Object, job: Object, kind: TaskKind, ending: ExitCode
    ) -> None:
        """Let a pod end, after its reports."""
        message = await self._report(pod, job, kind, ending)
        await self._say(pod, finished(pod, int(ending), message, time.time()))

    def _ending(self, job: Object, kind: TaskKind) -> str | ExitCode:
        """End of the pods of a Job."""
        metadata = job["metadata"]
        [owner] = metadata["ownerReferences"]
        script = self.endings.get((owner["name"], kind.value), [])
        if metadata["uid"] not in self.jobs:
            self.jobs[metadata["uid"]] = script.pop(0) if script else ExitCode.DONE
        return self.jobs[metadata["uid"]]

    async def _say(self, pod: Object, status: Object) -> None:
        """Write the status of a pod."""
        name = pod["metadata"]["name"]
        with suppress(Exception):  # it may be deleted meanwhile
            await self.api.patch(
                PODS, self.namespace, name, {"status": status}, part="status"
            )

    async def _report(
        self, pod: Object, job: Object, kind: TaskKind, ending: ExitCode
    ) -> str:
        """Store the reports of a pod of ours; return its termination message."""
        notes = job["metadata"]["annotations"]
        subject, store = notes[SUBJECT_ANNOTATION], self._store_of(job)
        if ending is ExitCode.DONE and kind is TaskKind.PROFILE:
            profile = a_profile(subject)
            made_s = max(time.time(), float(notes[AFTER_ANNOTATION]))
            await store.profiles.save(profile, made_s)
        if ending is ExitCode.DONE and kind is TaskKind.REPLAY:
            found = await self._plan_in(job["metadata"]["name"])
            await store.replays.save(a_replay(found))
        if ending is ExitCode.DONE and kind is TaskKind.REHEARSAL:
            found = await self._plan_in(job["metadata"]["name"])
            fits = self.verdicts.pop(0) if self.verdicts else True
            [owner] = job["metadata"]["ownerReferences"]
            rehearsal = a_rehearsal(found, fits=fits)
            await learn_rehearsal(store, owner["uid"], rehearsal, time.time())
        if kind is not TaskKind.TRAIN:
            return ""
        return await self._report_training(pod, job, ending)

    async def _report_training(self, pod: Object, job: Object, ending: ExitCode) -> str:
        """Report the ranks of a pod, and their end."""
        [owner] = job["metadata"]["ownerReferences"]
        number = int(job["metadata"]["labels"][ATTEMPT_LABEL])
        plan = await self._plan_in(f"{owner['name']}-plan-{number}")
        share, place = plan.pods.gpus_per_pod, index_of(pod)
        store = self._store_of(job)
        for rank in range(place * share, (place + 1) * share):
            peak = plan.stage_of(rank).peak()
            assert peak is not None
            observed = observed_by(plan, rank, attempt=number)
            await store.observations.save(
                owner["uid"], observed, peak, plan.micro_batch, time.time()
            )
        full = None
        if ending is ExitCode.DEVICE_OUT_OF_MEMORY:
            full = FullDevice(rank=place * share, phase=Phase.BACKWARD, asked_bytes=0)
        end = End(
            at_s=time.time(),
            exits=(Exit(status=int(ending)),) * share,
            full_device=full,
            was_stopped=ending is ExitCode.CHECKPOINTED,
        )
        await store.pod_ends.save(
            owner["uid"], number, place, pod["metadata"]["uid"], end
        )
        return to_text(end)

    def _store_of(self, job: Object) -> Store:
        """Store that the pods of a Job report to."""
        [owner] = job["metadata"]["ownerReferences"]
        return self.stores.get(owner["name"], self.store).within(self.namespace)

    async def _plan_in(self, name: str) -> HybridPlan:
        """Plan that a ConfigMap holds."""
        found = await self.api.get(CONFIG_MAPS, self.namespace, name)
        assert found is not None
        return plan_in(found)


def observed_by(plan: HybridPlan, rank: int, **fields: Any) -> Observation:
    """Build what a rank reports: that it held what was expected."""
    peak = plan.stage_of(rank).peak()
    assert peak is not None
    given: dict[str, Any] = {
        "plan_digest": digest_of(plan),
        "rank": rank,
        "device_kind": DeviceKind.EMULATED,
        "peaks": (
            ObservedPeak(
                phase=peak.phase,
                allocated_bytes=peak.allocated.expected_bytes,
                reserved_bytes=peak.device.expected_bytes,
                device_bytes=peak.device.expected_bytes,
            ),
        ),
    }
    return an_observation(**(given | fields))


def a_rehearsal(plan: HybridPlan, *, fits: bool) -> Rehearsal:
    """Rehearse the fullest rank of a plan: as was predicted, or it is out of memory."""
    rank = plan.fullest_rank
    full = FullDevice(rank=rank, phase=Phase.BACKWARD, asked_bytes=MIB)
    key = OverheadKey(
        device_product=plan.offers[0].device_product,
        image=plan.fingerprint.image,
        torch_version=plan.fingerprint.torch_version,
    )
    return Rehearsal(
        observation=observed_by(plan, rank, num_communicators=0, overhead_key=key),
        capacity_bytes=plan.offers[0].device_memory_bytes,
        other_bytes=0,
        full_device=None if fits else full,
    )


def a_profile(request_key: str) -> Any:
    """Profile a chain of equal layers."""
    return chain_profile(
        [LAYER] * NUM_LAYERS,
        byte_error=0.01,
        device_kind=DeviceKind.EMULATED,
        request_key=request_key,
    )


def a_replay(plan: HybridPlan) -> Replay:
    """Replay a plan: as was predicted."""
    stages = tuple(
        ReplayedStage(
            stage=place,
            peaks=(
                ReplayedPeak(
                    phase=Phase.BACKWARD,
                    allocated_bytes=largest(stage).expected_bytes,
                ),
            ),
        )
        for place, stage in enumerate(plan.stages)
    )
    return Replay(plan_digest=digest_of(plan), torch_version="2.15.0", stages=stages)
