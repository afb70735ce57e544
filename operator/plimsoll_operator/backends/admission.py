"""Whether a plan can be launched at all: asked of the API server, before any work.

In: a plan whose spec makes sense. Out: nothing, or why not, in words of the spec. The
Job and one of its pods are rendered as they would be, and made in a dry run with strict
validation: quotas, pod security, typing errors and missing service accounts show here,
not after a profile and a search. Done once for each generation of a spec.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from plimsoll_operator.api.spec import LaunchPolicy, TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.backends.pods import BACKENDS, backend_for
from plimsoll_operator.errors import ApiConflictError, ApiDeniedError, ApiRefusedError
from plimsoll_operator.kube.api import CLAIMS, PODS, Api, Kind, Object
from plimsoll_operator.nodes.placement import node_affinity_for
from plimsoll_operator.objects.manifests import task_metadata
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.pod_template import PodParts, Release, pod_template
from plimsoll_planner.errors import InvalidFieldError, InvalidInputError, one_line
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.task import Command, Task, TaskKind

SHARED_MODES: Final = frozenset({"ReadWriteMany"})
"""Of a volume that pods of several nodes may write to."""
LONGEST_REMARK: Final = 1024
UNSAVED: Final = (
    "spec.checkpoint.everySteps: nothing is saved without spec.checkpoint.claimName"
)
DRY: Final = "0"
"""Number of no attempt, for the names of what is made in a dry run."""


class Admission:
    """Asks the API server."""

    def __init__(self, api: Api, release: Release) -> None:
        """Render pods of a release."""
        self._api = api
        self._release = release

    async def check(
        self, plan: PlanObject, offers: Sequence[Offer], claim: Object | None
    ) -> str:
        """Refuse a plan, whose spec makes sense, if the API server would refuse it.

        Returns:
            What the API server warns of, and what else a person should know.

        Raises:
            InvalidInputError: with what it would refuse.
            ClusterError: it does not answer.
        """
        if plan.spec is None:
            return ""
        before = accepted_before(plan)
        if before is not None:
            return before
        check_backend(plan.spec)
        users = json.loads(plan.spec.template)
        template = pod_template(users, dry_parts(plan, offers[0]), self._release)
        check_paths(plan.spec)
        check_claim(plan.spec, claim, plan.owner.namespace)
        backend = backend_for(plan.spec)
        metadata = task_metadata(plan.owner, TaskKind.TRAIN, DRY)
        made = backend.render(metadata, template)
        warnings = [
            *await self._try(backend.makes, plan, made),
            *await self._try(PODS, plan, pod_of(made, template)),
        ]
        if plan.spec.checkpoint.every_steps and not plan.spec.checkpoint.claim_name:
            warnings.append(UNSAVED)
        return one_line("; ".join(dict.fromkeys(warnings)))[:LONGEST_REMARK]

    async def claim(self, plan: PlanObject) -> Object | None:
        """The claim for checkpoints, None where none is named or there.

        Raises:
            ClusterError: it cannot be read.
        """
        name = plan.spec.checkpoint.claim_name if plan.spec is not None else ""
        return await self._api.get(CLAIMS, plan.owner.namespace, name) if name else None

    async def _try(self, kind: Kind, plan: PlanObject, made: Object) -> tuple[str, ...]:
        """Make an object in a dry run; return what the API server warns of."""
        namespace = plan.owner.namespace
        try:
            done = await self._api.create(kind, namespace, made, dry_run=True)
        except ApiConflictError:
            return ()  # one of its name is there: it was made once
        except (ApiRefusedError, ApiDeniedError) as error:
            text = f"spec.template: the cluster refuses its {made['kind']}: {error}"
            raise InvalidInputError(text) from None
        return done.warnings


def accepted_before(plan: PlanObject) -> str | None:
    """The remark on this generation of a spec when found good, None if it was not."""
    found = plan.status.condition(ConditionType.ACCEPTED)
    if found is None or found.observed_generation != plan.generation:
        return None
    return found.message if found.status is Truth.TRUE else None


def check_backend(spec: TrainingPlanSpec) -> None:
    """Refuse what this release cannot launch with."""
    launches = spec.launch.policy is LaunchPolicy.LAUNCH
    if launches and spec.launch.backend not in BACKENDS:
        objects = " and ".join(one.launches for one in BACKENDS.values())
        rule = f"{' or '.join(BACKENDS)}: this release launches {objects} alone"
        raise InvalidFieldError("spec.launch.backend", spec.launch.backend.value, rule)


def holds_to_one_node(claim: Object | None) -> bool:
    """Whether a claim for checkpoints can be used on one node alone."""
    modes = claim["spec"].get("accessModes", ()) if claim is not None else ()
    return bool(modes) and not SHARED_MODES.intersection(modes)


def check_paths(spec: TrainingPlanSpec) -> None:
    """Refuse what would lead out of the claim, to where nothing is kept."""
    paths = {"path": spec.checkpoint.path, "resumeFrom": spec.checkpoint.resume_from}
    for field, path in paths.items():
        if path.startswith("/") or ".." in path.split("/"):
            rule = "a path below the claim: without a / in front, and without .."
            raise InvalidFieldError(f"spec.checkpoint.{field}", path, rule)


def check_claim(spec: TrainingPlanSpec, claim: Object | None, namespace: str) -> None:
    """Refuse a claim that is not there, for which pods would wait, or is not named."""
    name = spec.checkpoint.claim_name
    if spec.checkpoint.resume_from and not name:
        path, given = "spec.checkpoint.resumeFrom", spec.checkpoint.resume_from
        rule = "given with spec.checkpoint.claimName, which says where it lies"
        raise InvalidFieldError(path, given, rule)
    if spec.checkpoint.export_weights and not name:
        path, given = "spec.checkpoint.exportWeights", "true"
        rule = "given with spec.checkpoint.claimName, which says where they go"
        raise InvalidFieldError(path, given, rule)
    if name and claim is None:
        rule = f"a PersistentVolumeClaim of namespace {namespace}: make it first"
        raise InvalidFieldError("spec.checkpoint.claimName", name, rule)


def dry_parts(plan: PlanObject, offer: Offer) -> PodParts:
    """Parts of a pod with one GPU, as every worker group has them."""
    spec = plan.spec
    assert spec is not None  # noqa: S101 - asked by `check`
    command = Command(words=("-m", "plimsoll_trainer"))
    task = Task(child_kind=TaskKind.TRAIN, subject=DRY, commands=(command,), folder="")
    return PodParts(
        task=task,
        labels={},
        num_gpus=1,
        per_gpu=spec.launch.per_gpu,
        affinity=node_affinity_for(offer),
        subdomain=plan.owner.service,
        claim=spec.checkpoint.claim_name,
        priority_class=spec.launch.priority_class_name,
    )


def pod_of(made: Object, template: Object) -> Object:
    """A pod of a template, as the controller of what is made would make it."""
    metadata = made["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template.get("metadata", {}),
            "name": f"{metadata['name']}-0",
            "namespace": metadata["namespace"],
        },
        "spec": template["spec"],
    }
