"""Back end of a cluster: a kind of object that makes pods, as it is written and read.

In: metadata and a pod template, or an object as the API server has it. Out: an object
to create, or its status. Pure. Each back end is a file of `pods`; `admission`,
`pod_backend`, `workloads` and the watches of `control` work with any of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from plimsoll_operator.api.spec import Backend
from plimsoll_operator.kube.api import Kind, Object
from plimsoll_operator.objects.manifests import Owner
from plimsoll_planner.pod_names import TASK_VARIABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadStatus:
    """Status of an object that makes pods, as far as the object itself says it."""

    num_pods: int
    num_begun: int
    """Pods that run or have ended."""
    is_complete: bool
    is_failing: bool
    """It has failed, and its pods may still run."""
    is_terminating: bool
    """Some of its pods are being deleted."""
    ended_s: float | None
    """When it was over, seconds since 1970; None: it is not."""


class LaunchBackend(ABC):
    """A kind of object that makes pods; they are not replaced, and fail together."""

    name: ClassVar[Backend]
    """In a spec; also the kind of the object."""
    launches: ClassVar[str]
    """Its objects, for people."""
    makes: ClassVar[Kind]
    """The chart gives rights on it: get, list, watch, create, delete."""

    @staticmethod
    @abstractmethod
    def render(metadata: Object, template: Object, num_pods: int = 1) -> Object:
        """The object that makes pods of a template, each once."""

    @staticmethod
    @abstractmethod
    def meeting_point(owner: Owner, attempt: int) -> str:
        """Host and port where the ranks of an attempt meet: its first pod."""

    @staticmethod
    @abstractmethod
    def status_of(found: Object) -> WorkloadStatus:
        """Status of an object, from its status and what `counted_spec` keeps."""

    @staticmethod
    @abstractmethod
    def counted_spec(spec: Object) -> Object:
        """The part of a spec that `status_of` reads."""

    @staticmethod
    @abstractmethod
    def template_of(found: Object) -> Object:
        """The pod template of an object."""

    @staticmethod
    @abstractmethod
    def pod_selector(name: str) -> str:
        """Label selector of the pods of an object, also after it is gone."""

    @staticmethod
    def owns(pod: Object, uid: str) -> bool:
        """Whether a pod belongs to the object with this uid."""
        references = pod["metadata"].get("ownerReferences", ())
        return any(one.get("uid") == uid for one in references)


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that makes the pods of a task, and the back end that reads it."""

    backend: LaunchBackend
    found: Object

    @property
    def metadata(self) -> Object:
        """Metadata of the object."""
        metadata: Object = self.found["metadata"]
        return metadata

    @property
    def status(self) -> WorkloadStatus:
        """Status of the object."""
        return self.backend.status_of(self.found)

    @property
    def is_ending(self) -> bool:
        """Whether it is failing or being deleted, and its pods may still run.

        An object of which pods alone are being deleted does not say that it fails until
        they are gone; on a node that nobody can reach they never are.
        """
        status, is_deleted = self.status, "deletionTimestamp" in self.metadata
        return status.is_terminating or status.is_failing or is_deleted

    @property
    def container(self) -> str:
        """Name of the container that runs our process."""
        containers = self.backend.template_of(self.found)["spec"]["containers"]
        ours = (
            one
            for one in containers
            if any(each.get("name") == TASK_VARIABLE for each in one.get("env") or ())
        )
        return str(next(ours, containers[0])["name"])
