"""Seconds of every layer of a chain, for one bound, micro-batch and offer.

In: a profile, which of the three bounds, b, an offer. Out: a `ChainSeconds`. Called by
the search for every offer.

Measured seconds are used where the profile was measured on the offer's product. Else
each pass is estimated from its counted work and the offer's peak rates (a roofline):
with f the seconds of its arithmetic and t those of its memory traffic,

    lower = max(f, t)    expected = (f + t) / 0.6    upper = (f + t) / 0.5

the first because nothing runs faster than its scarcer resource; the other two because
well-fed training kernels reach 50 to 60 % of both peaks in sequence (an assumption,
stated in the answer; measure to narrow it). Of operators without a FLOP formula nobody
knows the FLOPs: they are assumed to be none for the lower bound, those of a product of
matrices as large as the operator's tensors for the expected one, 16 times that for the
upper one. No law stands behind the 16.

The optimizer step on a host that nobody measured is estimated from the bytes that it
must read and write: gradients once, parameters and optimizer state twice; and from the
rate at which a rank's share of the cores may do so: 1 TB/s for the lower bound, 30 and
10 GB/s for the others (assumptions, stated in the answer; one core of 2026 reaches 30).

Where tensor groups split layers, their messages take place inside the passes, over the
link inside a node: nothing is computed meanwhile, as each pass waits for them.
Recomputing repeats those of the forward pass. Their bytes are exact.

All seconds are whole ticks (`ticks`): lower bounds are rounded down, the others up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.chain_bytes import UNSPLIT, rows_of
from plimsoll_planner.records.interval import SecondsInterval
from plimsoll_planner.records.layer_costs import (
    UNCOUNTED,
    MessageColumns,
    SecondsColumns,
    WorkColumns,
)
from plimsoll_planner.records.model_profile import ModelProfile, Precision, Variant
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.timing.ticks import down, up

EFFICIENCY = {Bound.EXPECTED: 0.6, Bound.UPPER: 0.5}
HOST_BYTES_PER_S = {Bound.LOWER: 1e12, Bound.EXPECTED: 3e10, Bound.UPPER: 1e10}
"""Memory of a host that nobody measured."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ChainSeconds:
    """Arrays over the layers, shape [L]."""

    forward: Floats
    backward: Floats
    """Without recomputing."""
    recompute: Floats
    """Seconds that recomputing adds to the backward pass."""
    optimizer_step: Floats
    host_step: Floats
    """Of the optimizer where its state is in the memory of the host."""
    group_end: Floats
    """Of a tensor group's messages after the last backward pass of a step."""
    is_estimated: bool
    """From counted work instead of a measurement."""

    @property
    def total(self) -> float:
        """Of one micro-batch through the whole model, without recomputing."""
        return float(self.forward.sum() + self.backward.sum())


def chain_seconds(
    profile: ModelProfile,
    offer: Offer,
    bound: Bound,
    micro_batch: int,
    variant: Variant = UNSPLIT,
) -> ChainSeconds:
    """Measured seconds where there are any for the offer, else estimates.

    Raises:
        CannotPlanError: neither times nor rates, or all times are zero.
    """
    asked = profile, offer, bound, micro_batch, variant
    found = measured(*asked) if is_measured(profile, offer) else estimated(*asked)
    if found.total == 0 and bound is not Bound.LOWER:
        raise CannotPlanError(
            f"offer {offer.name}: the profile has no times for {offer.device_product}, "
            "every layer takes 0 s; profile the model again, on a device or with "
            "counted work"
        )
    return found if variant == UNSPLIT else with_messages(found, *asked)


def is_measured(profile: ModelProfile, offer: Offer) -> bool:
    """Whether the passes were measured on an offer's product."""
    return profile.costs.is_timed and profile.device_product == offer.device_product


def with_messages(
    chain: ChainSeconds,
    profile: ModelProfile,
    offer: Offer,
    bound: Bound,
    micro_batch: int,
    variant: Variant,
) -> ChainSeconds:
    """Seconds of a chain with those of its tensor groups' messages."""
    costs, rows = profile.costs, rows_of(profile, variant)

    def messages(columns: MessageColumns | None) -> Floats:
        if columns is None:
            return np.zeros(len(rows))

        def of_row(row: int) -> float:
            num_bytes = columns.num_bytes(row, micro_batch)
            return over_link(offer.link_in_node, num_bytes, columns.num_latencies[row])

        return of_layers(rows, of_row, bound)

    forward = messages(costs.forward_messages)
    return replace(
        chain,
        forward=chain.forward + forward,
        backward=chain.backward + messages(costs.backward_messages),
        recompute=chain.recompute + forward,
        group_end=messages(costs.step_messages),
    )


def of_layers(
    rows: Sequence[int], of_row: Callable[[int], float], bound: Bound
) -> Floats:
    """[L]: rounded seconds of each layer, from those of its row of the table."""
    found = {row: rounded(of_row(row), bound) for row in set(rows)}
    return np.array([found[row] for row in rows])


def over_link(link: Link | None, num_bytes: int, num_latencies: int) -> float:
    """Seconds of messages over a link; one that nobody states takes none."""
    if link is None:
        return 0.0
    return num_latencies * link.latency_s + num_bytes / link.bandwidth_bytes_per_s


def measured(
    profile: ModelProfile,
    offer: Offer,
    bound: Bound,
    micro_batch: int,
    variant: Variant = UNSPLIT,
) -> ChainSeconds:
    """Evaluate the lines of a timed profile."""
    costs, rows = profile.costs, rows_of(profile, variant)

    def line(columns: SecondsColumns | None) -> Floats:
        if columns is None:
            return np.zeros(len(rows))
        return of_layers(
            rows, lambda row: seconds_at(columns.at(row, micro_batch), bound), bound
        )

    step = costs.optimizer_step_s or (0.0,) * len(costs.kind)
    host_step = host_steps(profile, offer, bound)
    return ChainSeconds(
        forward=line(costs.forward),
        backward=line(costs.backward),
        recompute=line(costs.recompute),
        optimizer_step=np.array([rounded(step[row], bound) for row in rows]),
        host_step=np.array([host_step[row] for row in rows]),
        group_end=np.zeros(len(rows)),
        is_estimated=False,
    )


def estimated(
    profile: ModelProfile,
    offer: Offer,
    bound: Bound,
    micro_batch: int,
    variant: Variant,
) -> ChainSeconds:
    """Estimate from counted work and the rates of an offer."""
    asked = profile.recipe.precision.of_products
    rates = {rate.precision: rate.flop_per_s for rate in offer.compute_rates}
    is_bf16_enough = asked is Precision.FP16 and asked not in rates
    precision = Precision.BF16 if is_bf16_enough else asked  # as fast where both are
    if precision not in rates:
        others = f" (it has {', '.join(rates)})" * bool(rates)
        raise CannotPlanError(
            f"offer {offer.name}: no {asked} rate{others}, and the profile has no times"
            f" for {offer.device_product}: train in a precision that it has a rate of, "
            "state the rate in the offers, or profile the model on that device"
        )
    bandwidth = offer.memory_bandwidth_bytes_per_s or math.inf
    costs, rows = profile.costs, rows_of(profile, variant)

    def roofline(flop: float, traffic: float) -> float:
        arithmetic, memory = flop / rates[precision], traffic / bandwidth
        if bound is Bound.LOWER:
            return down(max(arithmetic, memory))
        return up((arithmetic + memory) / EFFICIENCY[bound])

    def work(columns: WorkColumns) -> Floats:
        return np.array(
            [
                roofline(
                    columns.flop_constant[row]
                    + columns.flop_per_sample[row] * micro_batch
                    + columns.uncounted_flop(row, micro_batch) * UNCOUNTED[bound],
                    columns.traffic_constant_bytes[row]
                    + columns.traffic_bytes_per_sample[row] * micro_batch,
                )
                for row in rows
            ]
        )

    forward, host_step = work(costs.forward_work), host_steps(profile, offer, bound)
    return ChainSeconds(
        forward=forward,
        backward=work(costs.backward_work),
        recompute=forward,
        optimizer_step=np.array(
            [roofline(0.0, costs.optimizer_traffic_bytes[row]) for row in rows]
        ),
        host_step=np.array([host_step[row] for row in rows]),
        group_end=np.zeros(len(rows)),
        is_estimated=True,
    )


def is_host_measured(profile: ModelProfile, offer: Offer) -> bool:
    """Whether the optimizer step was measured on a host of such devices."""
    is_same = profile.device_product == offer.device_product
    return is_same and profile.costs.host_step_s is not None


def host_steps(profile: ModelProfile, offer: Offer, bound: Bound) -> list[float]:
    """Seconds of the optimizer step on the host, row by row."""
    if is_host_measured(profile, offer):
        return [rounded(seconds, bound) for seconds in profile.costs.host_step_s or ()]
    costs, rate = profile.costs, HOST_BYTES_PER_S[bound]
    columns = costs.gradient_bytes, costs.parameter_bytes, costs.optimizer_bytes
    return [
        rounded((gradient + 2 * (parameter + state)) / rate, bound)
        for gradient, parameter, state in zip(*columns, strict=True)
    ]


def seconds_at(interval: SecondsInterval, bound: Bound) -> float:
    """One of the three numbers."""
    match bound:
        case Bound.LOWER:
            return interval.lower_s
        case Bound.EXPECTED:
            return interval.expected_s
        case Bound.UPPER:
            return interval.upper_s


def rounded(seconds: float, bound: Bound) -> float:
    """Round to whole ticks, a lower bound down and the others up."""
    return down(seconds) if bound is Bound.LOWER else up(seconds)
