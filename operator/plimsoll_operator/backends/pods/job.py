"""Indexed Jobs: the back end that needs nothing beside Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from plimsoll_operator.backends.pod_backend import PodBackend
from plimsoll_operator.backends.protocols import AttemptReports
from plimsoll_operator.backends.workloads import JobObserver
from plimsoll_operator.kube.api import JOBS, Kind, Object
from plimsoll_operator.objects.children import PORT, Owner, child_name
from plimsoll_operator.rules.observed_state import ChildKind


@dataclass(frozen=True, kw_only=True)
class JobBackend(PodBackend):
    """Launches children as Jobs whose pods are not replaced."""

    makes: ClassVar[Kind] = JOBS

    @staticmethod
    def render(metadata: Object, template: Object, num_pods: int = 1) -> Object:
        """The Job with these pods."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "completionMode": "Indexed",
                "completions": num_pods,
                "parallelism": num_pods,
                "backoffLimit": 0,
                "podReplacementPolicy": "Failed",
                "template": template,
            },
        }

    @staticmethod
    def meeting_point(owner: Owner, attempt: int) -> str:
        """Host and port of the first pod of a Job."""
        job = child_name(owner, ChildKind.TRAIN, str(attempt))
        return f"{job}-0.{owner.service}:{PORT}"

    async def reports(self, attempt: int) -> AttemptReports:
        """What the pods of an attempt say of its end; the store has the rest."""
        owner = self.plan.owner
        name = child_name(owner, ChildKind.TRAIN, str(attempt))
        job = await self.objects.find(JOBS, owner, name)
        observer = JobObserver(self.objects.api, self.store, self.machines)
        end = await observer.end(self.plan, job, attempt)
        return AttemptReports(full_device=None if end is None else end.full_device)
