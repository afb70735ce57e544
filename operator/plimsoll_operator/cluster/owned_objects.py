"""Objects of a plan on the API server: made once, removed with care.

In: the plan that owns them, and an object or its name. Out: its effect. Names follow
from the plan, so what was made is found made; what belongs to somebody else is left
alone. Called by `hands`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.brain.seen import Child, ChildKind
from plimsoll_operator.cluster.api import CONFIG_MAPS, JOBS, Api, Kind, Object
from plimsoll_operator.cluster.children import Owner, child_name
from plimsoll_operator.cluster.obstacles import fault_of
from plimsoll_operator.errors import ApiConflictError, ClusterError, ObstacleError

WITH_INPUTS = (ChildKind.REPLAY, ChildKind.REHEARSAL)
"""Kinds of children with a ConfigMap of their name."""


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Makes and removes objects of plans."""

    api: Api

    async def create(self, kind: Kind, owner: Owner, made: Object) -> None:
        """Make an object, unless it is made.

        Raises:
            ObstacleError: one of its name is there that no look finds as ours.
            ClusterError: it could not be made now; asked again, it may.
        """
        namespace, name = owner.namespace, made["metadata"]["name"]
        try:
            await self.api.create(kind, namespace, made)
        except ApiConflictError:
            found = await self.api.get(kind, namespace, name)
            if found is None:
                raise  # some other object has changed, as a quota
            if "deletionTimestamp" in found["metadata"]:
                text = f"{made['kind']} {namespace}/{name} is still being removed"
                raise ClusterError(text) from None
            if fault := fault_of(owner, found):
                text = f"{made['kind']} {namespace}/{name} {fault}"
                raise ObstacleError(text, made["kind"], name) from None

    async def clear(self, owner: Owner, child: Child) -> None:
        """Remove a child, and what was put beside its pods."""
        name = child_name(owner, child.kind, child.subject)
        await self.delete_job(owner, name)
        if child.kind in WITH_INPUTS:
            found = await self.api.get(CONFIG_MAPS, owner.namespace, name)
            if found is not None and owner.owns(found):
                uid = found["metadata"]["uid"]
                await self.api.delete(CONFIG_MAPS, owner.namespace, name, uid=uid)

    async def delete_job(
        self, owner: Owner, name: str, *, foreground: bool = False
    ) -> None:
        """Delete a Job of a plan, if it is there."""
        found = await self.api.get(JOBS, owner.namespace, name)
        if found is None or not owner.owns(found):
            return
        if "deletionTimestamp" in found["metadata"] and foreground:
            return  # asked for already
        uid = found["metadata"]["uid"]
        await self.api.delete(
            JOBS, owner.namespace, name, uid=uid, foreground=foreground
        )
