"""The machines that plans may use: the cluster's nodes, or a table of offers.

In: a namespace and a spec. Out: offers. Nodes are listed once for all plans that look
within some seconds: they change by the minute, and there are many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.kube.api import CONFIG_MAPS, NODES, Api, Object
from plimsoll_operator.kube.template_fields import PATH, POD_PATH, entries, part_of
from plimsoll_operator.nodes.affinity import admits
from plimsoll_operator.nodes.inventory import Inventory, inventory_of
from plimsoll_operator.nodes.offers import offers_in
from plimsoll_operator.nodes.placement import required_terms
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer

FRESH_S: Final = 10.0
"""For how long a list of nodes is looked at again."""


class Machines:
    """Lists what can be had."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        """List from an API server; the clock is monotonic."""
        self._api = api
        self._clock = clock
        self._nodes: list[Object] = []
        self._listed_s: float | None = None
        self._one_at_a_time = asyncio.Lock()

    async def nodes(self) -> list[Object]:
        """All nodes, as they were some seconds ago at most.

        Raises:
            ClusterError: they cannot be listed.
        """
        async with self._one_at_a_time:
            is_old = self._listed_s is None or self._clock() - self._listed_s > FRESH_S
            if is_old:
                self._nodes = await self._api.list(NODES)
                self._listed_s = self._clock()
        return self._nodes

    async def inventory(self, template: Mapping[str, Any]) -> Inventory:
        """Offers of nodes to pods of a template."""
        pod = part_of(dict(template), "spec", PATH)
        part_of(pod, "nodeSelector", POD_PATH)
        required_terms(pod.get("affinity"))  # refused also where there is no node
        picked = (node for node in await self.nodes() if admits(pod, node))
        return inventory_of(picked, entries(pod, "tolerations", POD_PATH))

    async def has(
        self, kind: DeviceKind, spec: TrainingPlanSpec, template: Mapping[str, Any]
    ) -> bool:
        """Whether there are devices of the kind of an offer.

        What a table lists may have yet to be made; emulated devices need none.

        Raises:
            ClusterError: nodes cannot be read.
        """
        if kind is DeviceKind.EMULATED or not spec.search.offers.config_map:
            return True
        found = (await self.inventory(template)).offers
        return any(one.device_kind is kind for one in found)

    async def offers(
        self, namespace: str, spec: TrainingPlanSpec, template: Mapping[str, Any]
    ) -> tuple[Offer, ...]:
        """The machines that a plan may use, of one kind of device.

        Raises:
            InvalidInputError: there are none, or their table is not there or wrong.
            ClusterError: nodes cannot be read.
        """
        name = spec.search.offers.config_map
        if not name:
            inventory = await self.inventory(template)
            if not inventory.offers:
                raise InvalidFieldError("spec.search.offers", "", nothing(inventory))
            return of_one_kind(inventory.offers)
        found = await self._api.get(CONFIG_MAPS, namespace, name)
        if found is None:
            rule = f"a ConfigMap of namespace {namespace}: make it, or name another"
            raise InvalidFieldError("spec.search.offers.configMap", name, rule)
        return of_one_kind(offers_in(found))


def of_one_kind(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """The GPUs; emulated devices where there is no GPU."""
    gpus = tuple(one for one in offers if one.device_kind is DeviceKind.CUDA)
    return gpus or offers


def nothing(inventory: Inventory) -> str:
    """Why no node offers a device."""
    if not inventory.left_out:
        return "nodes with GPUs: there are none; a table of offers can stand in"
    one = inventory.left_out[0]
    others = len(inventory.left_out) - 1
    more = f" (and {others} others)" if others else ""
    return f"a node that can be used: {one.node} is left out: {one.reason}{more}"
