"""Indexed Jobs: the back end that needs nothing beside Kubernetes."""

from __future__ import annotations

from typing import Final

from plimsoll_operator.api.spec import Backend
from plimsoll_operator.backends.launch_backend import LaunchBackend, WorkloadStatus
from plimsoll_operator.kube.api import JOBS, Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.objects.manifests import PORT, Owner, object_name
from plimsoll_operator.objects.pods import condition_of, is_true
from plimsoll_operator.rules.observed_state import TaskKind

JOB_NAME: Final = "batch.kubernetes.io/job-name"


class JobBackend(LaunchBackend):
    """Launches tasks as Jobs whose pods are not replaced."""

    name = Backend.JOB
    launches = "Indexed Jobs"
    makes = JOBS

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
        job = object_name(owner, TaskKind.TRAIN, str(attempt))
        return f"{job}-0.{owner.service}:{PORT}"

    @staticmethod
    def status_of(found: Object) -> WorkloadStatus:
        """Status of a Job, from its counts of pods and its conditions."""
        counts = found.get("status", {})
        ends = [condition_of(found, kind) for kind in ("Complete", "Failed")]
        held = [one for one in ends if one is not None and one["status"] == "True"]
        return WorkloadStatus(
            num_pods=found["spec"]["completions"],
            num_begun=sum(
                counts.get(name, 0) for name in ("ready", "succeeded", "failed")
            ),
            is_complete=is_true(found, "Complete"),
            is_failing=is_true(found, "FailureTarget"),
            is_terminating=counts.get("terminating", 0) > 0,
            ended_s=time_s(held[0]["lastTransitionTime"]) if held else None,
        )

    @staticmethod
    def counted_spec(spec: Object) -> Object:
        """Number of pods of a Job."""
        return {"completions": spec.get("completions", 1)}

    @staticmethod
    def template_of(found: Object) -> Object:
        """The pod template of a Job."""
        template: Object = found["spec"]["template"]
        return template

    @staticmethod
    def pod_selector(name: str) -> str:
        """The label by which the Job controller marks pods."""
        return f"{JOB_NAME}={name}"


BACKEND = JobBackend()
