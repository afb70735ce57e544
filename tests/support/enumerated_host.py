"""Optimizer state and activations on the host, for the enumerator.

In: numbers of a problem, the parts of a stage's state. Out: bytes of the machine,
seconds. All numbers have 4 bytes. A rank on the host keeps there what the optimizer
keeps, and a copy of each gradient and parameter that it steps on.
"""

from __future__ import annotations

from plimsoll_planner.records.layer_costs import ActivationColumns
from tests.support.enumerated_costs import Costs, Mesh
from tests.support.enumerated_sharding import Parts

COPIED = 8
RECOMPUTE, OFFLOAD, FROM_HOST = "recompute", "offload", "recompute from host"
"""Of which each stage has one, beside what it keeps."""
PROCESS = {"lower": 2**28, "expected": 2**29, "upper": 2**30}


def ways_of(costs: Costs, mesh: Mesh) -> list[str]:
    """List the ways in which layers of a stage can be run that are not kept."""
    found = [RECOMPUTE]
    if share(costs, mesh) > 0 and costs.costs.offloaded is not None:
        found.append(OFFLOAD)
        if any(costs.costs.recomputable):
            found.append(FROM_HOST)
    return found


def side_of(costs: Costs, way: str) -> ActivationColumns:
    """Columns of a way."""
    found = {
        RECOMPUTE: costs.costs.recomputed,
        OFFLOAD: costs.costs.offloaded,
        FROM_HOST: costs.costs.recomputed_from_host,
    }[way]
    assert found is not None
    return found


def machine_bytes(costs: Costs, parts: Parts, *, on_host: bool) -> int:
    """Bytes of the machine that a rank takes: process, tensors, a checkpoint.

    Tensors are those of the optimizer if it is there.
    """
    kept = (parts.optimizer + COPIED * parts.own) * on_host
    copied = parts.parameter + parts.buffer + parts.optimizer
    return PROCESS[costs.which] + kept + (0 if costs.which == "lower" else copied)


def offloaded_bytes(
    costs: Costs, mesh: Mesh, run: tuple[int, int], way: str, in_flight: int
) -> int:
    """Bytes of activations that count: of all layers, in so many micro-batches."""
    if costs.which == "lower":
        return 0
    side = side_of(costs, way)
    if side.on_host is None:
        return 0
    each = sum(costs.amount(mesh, side.on_host, layer) for layer in range(*run))
    return in_flight * each


def copied_s(
    costs: Costs, mesh: Mesh, layer: int, way: str, passes: tuple[float, float, float]
) -> tuple[float, float]:
    """Seconds that the copies of a layer, and its recomputing, add to its passes.

    `passes` are those of forward, backward and recomputing alone.
    """
    forward, backward, again = passes
    again *= way != OFFLOAD
    if way == RECOMPUTE:
        return 0.0, again
    offer, side = costs.problem.offers[mesh.offer], side_of(costs, way)
    link = offer.link_to_host
    assert link is not None
    assert side.on_host is not None
    num_bytes = costs.amount(mesh, side.on_host, layer, costs.which_s)
    copy = link.latency_s * (num_bytes > 0) + num_bytes / link.bandwidth_bytes_per_s
    if costs.which_s == "lower":
        return max(copy, forward) - forward, max(backward + again, copy) - backward
    copy *= offer.devices_per_node if offer.host_link_shared else 1
    return copy, again + copy


def share(costs: Costs, mesh: Mesh) -> int:
    """Bytes of the machine for each of its devices; 0 if the host cannot be used."""
    offer = costs.problem.offers[mesh.offer]
    if offer.host_memory_bytes is None or offer.link_to_host is None:
        return 0
    own = offer.device_memory_bytes  # devices are emulated, out of the same memory
    return max(offer.host_memory_bytes // offer.devices_per_node - own, 1)


def host_s(
    costs: Costs, mesh: Mesh, run: tuple[int, int], own: int, parts_of_step: int
) -> float:
    """Seconds of the copies and of the step, of which a rank makes a part."""
    offer = costs.problem.offers[mesh.offer]
    link = offer.link_to_host
    assert link is not None
    layers = [costs.column(mesh, "gradient_bytes", layer) > 0 for layer in range(*run)]
    copy = sum(layers) * link.latency_s + own * 4 / link.bandwidth_bytes_per_s
    step = sum(costs.host_step_s(mesh, layer) for layer in range(*run)) / parts_of_step
    if costs.which_s == "lower":
        return max(copy, step)
    sharing = ranks_on_node(costs, mesh) if offer.host_link_shared else 1
    return 2 * copy * sharing + step


def ranks_on_node(costs: Costs, mesh: Mesh) -> int:
    """Ranks of a node that is full, in equal pods."""
    on_node = costs.problem.offers[mesh.offer].devices_per_node
    sizes = range(mesh.tensor, min(mesh.gpus, on_node) + 1, mesh.tensor)
    pod = max(size for size in sizes if mesh.gpus % size == 0)
    return min(on_node // pod * pod, mesh.gpus)
