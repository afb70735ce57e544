"""Plans that place the operators of a test's workload, without costs of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.records.document import save
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.profile import profile_of
from plimsoll_trainer.placed.workload import of_chain
from plimsoll_trainer.process.placed_run import PlacedAssignment
from plimsoll_trainer.workload import Workload
from tests.support.plans import plan_for

MICRO_BATCH = 2


def placement_of(
    workload: Workload, num_devices: int, micro_batch: int = MICRO_BATCH
) -> PlacementPlan:
    """Place a workload on devices that are too small for all of it on one."""
    return placed(profile_of(capture(of_chain(workload), micro_batch)), num_devices)


def placed(profile: GraphProfile, num_devices: int) -> PlacementPlan:
    """Place a graph likewise."""
    link = Link(bandwidth_bytes_per_s=1e9)
    whole = place(profile, 1, capacity_bytes=2**40, link=link)
    capacity_bytes = whole.peak_bytes * 3 // (2 * num_devices + 1)
    return place(profile, num_devices, capacity_bytes=capacity_bytes, link=link)


def assigned(
    workload: Workload, num_devices: int, micro_batch: int = MICRO_BATCH
) -> PlacedAssignment:
    """Work of the ranks of such a placement, as each of them finds it."""
    placed_workload = of_chain(workload)
    graph = capture(placed_workload, micro_batch)
    profile = profile_of(graph)
    return PlacedAssignment(
        workload=workload,
        placed_workload=placed_workload,
        graph=graph,
        profile=profile,
        placed=placed_of(placed(profile, num_devices), profile),
        num_replicas=1,
        micro_batch=micro_batch,
        num_micro_batches=2,
    )


def placed_plan(
    placement: PlacementPlan, *, replicas: int = 1, **fields: Any
) -> HybridPlan:
    """Plan of a placement; see `plan_for` for its fields."""
    return plan_for(
        range(placement.num_devices + 1),
        replicas=replicas,
        of_stages=[{"in_flight_cap": 1}] * placement.num_devices,
        **{"micro_batch": MICRO_BATCH} | fields,
        schedule=Schedule.PLACED,
        engine="graph",
        placement=placement,
    )


def write_placed(folder: Path, placement: PlacementPlan, **fields: Any) -> Path:
    """Write such a plan into a folder."""
    path = folder / f"plan-{len(list(folder.glob('plan-*.json')))}.json"
    save(path, placed_plan(placement, **fields))
    return path
