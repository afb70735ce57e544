"""Objects of a plan on the API server: made once, removed with care.

In: the plan that owns them, and an object or its name. Out: its effect. Names follow
from the plan, so what was made is found made; what belongs to somebody else is left
alone. Called by `backends` and `record_maps`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.errors import ApiConflictError, ClusterError, NameConflictError
from plimsoll_operator.kube.api import Api, Kind, Object
from plimsoll_operator.objects.manifests import Owner
from plimsoll_operator.objects.name_conflicts import fault_of


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Makes and removes objects of plans."""

    api: Api

    async def create(self, kind: Kind, owner: Owner, made: Object) -> None:
        """Make an object, unless it is made.

        Raises:
            NameConflictError: one of its name is there that no look finds as ours.
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
                raise NameConflictError(text, kind, name) from None

    async def find(self, kind: Kind, owner: Owner, name: str) -> Object | None:
        """An object of a plan; None: it is not there, or somebody else's."""
        found = await self.api.get(kind, owner.namespace, name)
        return found if found is not None and owner.owns(found) else None

    async def delete(
        self, kind: Kind, owner: Owner, name: str, *, foreground: bool = False
    ) -> None:
        """Delete an object of a plan, if it is there; in the foreground, once."""
        found = await self.find(kind, owner, name)
        if found is None:
            return
        if "deletionTimestamp" in found["metadata"] and foreground:
            return  # asked for already
        uid, namespace = found["metadata"]["uid"], owner.namespace
        await self.api.delete(kind, namespace, name, uid=uid, foreground=foreground)
