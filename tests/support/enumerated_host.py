"""Optimizer state on the host, for the enumerator.

In: numbers of a problem, the parts of a stage's state. Out: bytes of the machine,
seconds. All numbers have 4 bytes. A rank on the host keeps there what the optimizer
keeps, and a copy of each gradient and parameter that it steps on.
"""

from __future__ import annotations

from tests.support.enumerated_costs import Costs, Mesh
from tests.support.enumerated_sharding import Parts

COPIED = 8
PROCESS = {"lower": 2**28, "expected": 2**29, "upper": 2**30}


def machine_bytes(costs: Costs, parts: Parts) -> int:
    """Bytes of the machine that a rank takes: process, tensors, a checkpoint."""
    kept = parts.optimizer + COPIED * parts.own
    copied = parts.parameter + parts.buffer + parts.optimizer
    return PROCESS[costs.which] + kept + (0 if costs.which == "lower" else copied)


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
