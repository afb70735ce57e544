"""Time and cost of a plan, in words: hours, money, nodes.

In: a `HybridPlan`. Out: text. Called by the headline, the report and the CLI.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.text.counts import counted, gpus_text
from plimsoll_planner.timing.topology import largest_pod
from plimsoll_planner.units import S_PER_HOUR, number_text


def cost_of(plan: HybridPlan, num_steps: int | None) -> Decimal | None:
    """Expected price of all steps, None where something is not known."""
    if plan.price_per_hour is None or plan.step_time is None or num_steps is None:
        return None
    hours = Decimal(num_steps * plan.step_time.expected_s / S_PER_HOUR)
    return plan.price_per_hour * hours


def training_text(plan: HybridPlan, num_steps: int) -> str:
    """Duration and price of the whole training."""
    expected_s = 0.0 if plan.step_time is None else plan.step_time.expected_s
    text = f"{counted(num_steps, 'step')}: {duration_text(num_steps * expected_s)}"
    cost = cost_of(plan, num_steps)
    return text if cost is None else f"{text}, {cost:.2f} {plan.currency}"


def duration_text(seconds: float) -> str:
    """Seconds in the unit that people would use."""
    for unit, size in (("d", 24 * S_PER_HOUR), ("h", S_PER_HOUR), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{number_text(seconds, 3)} s"


def nodes_text(plan: HybridPlan) -> str:
    """Nodes of a plan, how many devices are paid for, and why so many."""
    on_node = plan.offers[0].devices_per_node
    paid = plan.num_nodes * on_node
    text = counted(plan.num_nodes, "node")
    if paid == plan.num_gpus:
        return text
    text += f" of {gpus_text(on_node, plan.offers)}: {paid} paid for"
    return f"{text}, {plan.num_gpus} used{pods_text(plan)}"


def pods_text(plan: HybridPlan) -> str:
    """Sentence if more devices stand on fewer nodes; empty if they do not.

    Pods are equal, so a count whose divisors do not fill nodes wastes some.
    """
    offer, pods = plan.offers[0], plan.pods
    tensor, most = plan.stages[0].variant.tensor_degree, offer.devices_per_node
    for more in range(plan.num_gpus + tensor, plan.num_nodes * most, tensor):
        nodes = offer.num_nodes(more, largest_pod(more, most, tensor))
        if nodes < plan.num_nodes:
            return (
                f" (pods are equal, {pods.num_pods} of {pods.gpus_per_pod}; "
                f"{more} stand on {nodes})"
            )
    return ""


def each_of(values: Iterable[str]) -> str:
    """Every value once, in order: `gradients, optimizer`."""
    return ", ".join(dict.fromkeys(values))
