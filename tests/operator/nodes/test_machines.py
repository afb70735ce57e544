"""The machines of a cluster: its nodes, or the table that stands in for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from plimsoll_operator.kube.api import CONFIG_MAPS, NODES, Api, Kind, Object
from plimsoll_operator.nodes.machines import FRESH_S, Machines
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.nodes import a_gpuless_node, a_node, an_emulated_node
from tests.support.specs import a_spec

NO_TABLE = a_spec()
WITH_TABLE = a_spec(search={"offers": {"configMap": "offers"}})
ANYWHERE: dict[str, Any] = {"spec": {}}


class Cluster(Api):
    """An API server with nodes and a table, that counts lists."""

    def __init__(self, *nodes: Object, table: Object | None = None) -> None:
        """Have these."""
        super().__init__(None)
        self.nodes, self.table = list(nodes), table
        self.num_lists, self.now_s = 0, 0.0
        self.machines = Machines(self, lambda: self.now_s)

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """All nodes, after a moment."""
        assert (kind, namespace, labels, metadata_only) == (NODES, "", "", False)
        self.num_lists += 1
        await asyncio.sleep(0)
        return list(self.nodes)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Table."""
        assert (kind, namespace, name) == (CONFIG_MAPS, "team", "offers")
        return self.table


def kinds(cluster: Cluster, template: Mapping[str, Any] = ANYWHERE) -> list[str]:
    """Kinds of device that plans may use."""
    offers = asyncio.run(cluster.machines.offers("team", NO_TABLE, template))
    return [one.device_kind.value for one in offers]


def test_plans_that_look_at_once_share_a_list() -> None:
    """For some seconds; then nodes may have come or gone."""
    cluster = Cluster(a_node())

    async def work() -> None:
        machines = cluster.machines
        await asyncio.gather(*(machines.nodes() for _ in range(9)))
        cluster.now_s = FRESH_S
        await machines.nodes()
        assert cluster.num_lists == 1
        cluster.nodes.append(a_node("b"))
        cluster.now_s = FRESH_S + 1
        assert len(await machines.nodes()) == 2
        assert cluster.num_lists == 2

    asyncio.run(work())


def test_a_plan_uses_gpus_where_there_are_any() -> None:
    """Emulated devices are for clusters without; a plan uses no two kinds."""
    emulated, gpu = an_emulated_node(), a_node()
    assert kinds(Cluster(emulated)) == ["emulated"]
    assert kinds(Cluster(emulated, gpu)) == ["cuda"]


def test_a_node_selector_is_obeyed() -> None:
    """All of its labels; one that no node has leaves nothing."""
    cluster = Cluster(a_node("a", {"team": "x", "zone": "1"}), a_node("b"))
    for wanted, num_nodes in (
        ({}, 2),
        ({"team": "x"}, 1),
        ({"team": "x", "zone": "1"}, 1),
    ):
        template = {"spec": {"nodeSelector": wanted}}
        [offer] = asyncio.run(cluster.machines.offers("team", NO_TABLE, template))
        assert offer.nodes_available == num_nodes
    with pytest.raises(InvalidFieldError, match="there are none"):
        kinds(cluster, {"spec": {"nodeSelector": {"team": "x", "zone": "2"}}})


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((), "nodes with GPUs: there are none"),
        ((a_gpuless_node(),), "nodes with GPUs: there are none"),
        ((a_node(unschedulable=True),), "a is left out: "),
        (
            (a_node(unschedulable=True), a_node("b", unschedulable=True)),
            r"a is left out: .* \(and 1 others\)",
        ),
    ],
)
def test_without_a_machine_it_is_said_why(nodes: tuple[Object, ...], said: str) -> None:
    """The first node that is left out stands for all."""
    with pytest.raises(InvalidFieldError, match=said):
        kinds(Cluster(*nodes))


def test_a_table_that_is_not_there_is_named() -> None:
    """With the namespace to make it in."""
    with pytest.raises(InvalidFieldError, match="a ConfigMap of namespace team"):
        asyncio.run(Cluster(a_node()).machines.offers("team", WITH_TABLE, ANYWHERE))


@pytest.mark.parametrize(
    ("kind", "spec", "nodes", "is_here", "num_lists"),
    [
        (DeviceKind.CUDA, NO_TABLE, (), True, 0),
        (DeviceKind.EMULATED, WITH_TABLE, (), True, 0),
        (DeviceKind.CUDA, WITH_TABLE, (a_node(),), True, 1),
        (DeviceKind.CUDA, WITH_TABLE, (an_emulated_node(),), False, 1),
        (DeviceKind.CUDA, WITH_TABLE, (a_node(unschedulable=True),), False, 1),
    ],
)
def test_what_nodes_offered_is_here(
    kind: DeviceKind,
    spec: Any,
    nodes: tuple[Object, ...],
    is_here: bool,
    num_lists: int,
) -> None:
    """What a table promised is looked for; nothing is listed for what is known."""
    cluster = Cluster(*nodes)
    assert asyncio.run(cluster.machines.has(kind, spec, ANYWHERE)) is is_here
    assert cluster.num_lists == num_lists
