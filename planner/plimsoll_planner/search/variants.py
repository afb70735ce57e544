"""Variants of layers that are searched: tensor degrees, plain or sequence parallel.

In: a problem. Out: variants, in the order of T. Called by `explore`, for each of them
multiplies the tuples.

**Sequence parallel alone.** For one T let two variants have the same state, and let the
sequence parallel one have, row by row and at every micro-batch of the problem, no more
activations or held messages under all three bounds, the same marks of what layers keep,
passes and steps of no more seconds, and no more bytes and latencies of messages. Then
each plan of the plain variant has, with the same cuts, ways and choices, no lower peak
on any rank: the terms of `rank_peak` are sums and maxima of those bytes, with factors
that are the same for both. Nor has it a shorter step, as a walk grows with each of its
passes and with the boundaries that it sends. So plain tuples can be left out: if all
others of a count fail they do, and the best plan is among the others. Engines that keep
the outputs of stages are an exception: their lower bytes count an output once
(`with_outputs_held_once`), so a smaller boundary may leave more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Ints
from plimsoll_planner.memory.chain_bytes import rows_of
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.records.layer_costs import (
    ByteColumns,
    LayerCosts,
    MessageColumns,
    SecondsColumns,
)
from plimsoll_planner.records.model_profile import ModelProfile, TiedLayers, Variant
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.record import column_lengths
from plimsoll_planner.records.strategy import divisors
from plimsoll_planner.timing.chain_seconds import is_measured

Rows = tuple[list[int], list[int]]
"""Of the sequence parallel variant, and of the plain one, kind by kind."""
Lines = ByteColumns | SecondsColumns
STATE = (
    *("parameter_bytes", "gradient_bytes", "buffer_bytes", "optimizer_bytes"),
    *("optimizer_transient_bytes", "recomputable"),
)


def searched_variants(problem: Problem) -> tuple[Variant, ...]:
    """Variants of the tensor degrees that are searched."""
    found: list[Variant] = []
    for degree in problem.tensor_degrees:
        every = problem.profile.variants
        mine = [
            one
            for one in every
            if one.tensor_degree == degree and one.has(problem.override.sequences)
        ]
        plain, *others = sorted(mine, key=lambda one: one.sequence_parallel)
        is_left_out = any(is_never_worse(problem, one, plain) for one in others)
        found += others if is_left_out else [plain, *others]
    return tuple(found)


def is_never_worse(problem: Problem, one: Variant, other: Variant) -> bool:
    """Whether no plan of one variant is worse than the same of another; see above."""
    profile, costs = problem.profile, problem.profile.costs
    pairs = set(zip(rows_of(profile, one), rows_of(profile, other), strict=True))
    rows = [mine for mine, _ in pairs], [theirs for _, theirs in pairs]
    batches = np.array(divisors(problem.global_batch_size))
    offers = problem.offers
    return (
        not holding_factors(problem.engine.holds).output_kept
        and has_same_state(costs, rows)
        and ties_of(profile, one) == ties_of(profile, other)
        and activations_are_no_more(costs, rows, batches)
        and messages_are_no_more(costs, rows, batches)
        and all(
            seconds_are_no_more(costs, rows, batches)
            if measured
            else work_is_no_more(costs, rows)
            for measured in {is_measured(profile, offer) for offer in offers}
        )
    )


def has_same_state(costs: LayerCosts, rows: Rows) -> bool:
    """Whether rows have the same state, also where replicas divide it."""
    columns = [getattr(costs, name) for name in STATE]
    if divided := costs.divided:
        columns += [getattr(divided, name) for name, _ in column_lengths(divided)]
    return all(
        column[mine] == column[theirs]
        for column in columns
        for mine, theirs in zip(*rows, strict=True)
    )


def ties_of(profile: ModelProfile, variant: Variant) -> list[TiedLayers]:
    """Layers that share state in a variant, whichever it is."""
    place = profile.variants.index(variant)
    return [replace(tie, variant=0) for tie in profile.tied if tie.variant == place]


def activations_are_no_more(costs: LayerCosts, rows: Rows, batches: Ints) -> bool:
    """Whether layers keep the same, and no bytes of a micro-batch are more."""
    ways = costs.ways.values()
    marks = [mark for way in ways for mark in (way.keeps_input, way.keeps_output)]
    return all(
        mark[mine] == mark[theirs]
        for mark in marks
        for mine, theirs in zip(*rows, strict=True)
    ) and are_no_more(costs.of_micro_batches, rows, batches)


def seconds_are_no_more(costs: LayerCosts, rows: Rows, batches: Ints) -> bool:
    """Whether no measured pass or step takes longer."""
    passes = costs.forward, costs.backward, costs.recompute
    steps = costs.optimizer_step_s, costs.host_step_s
    return are_no_more([one for one in passes if one], rows, batches) and all(
        numbers_are_no_more(column, rows) for column in steps if column
    )


def work_is_no_more(costs: LayerCosts, rows: Rows) -> bool:
    """Whether no pass or step does more, of all that seconds are estimated from."""
    columns: list[Sequence[float] | None] = [costs.optimizer_traffic_bytes]
    for work in (costs.forward_work, costs.backward_work):
        columns += [getattr(work, name) for name, _ in column_lengths(work)]
    return all(numbers_are_no_more(column, rows) for column in columns if column)


def messages_are_no_more(costs: LayerCosts, rows: Rows, batches: Ints) -> bool:
    """Whether no pass or end of a step has more bytes or latencies of messages."""
    every = costs.forward_messages, costs.backward_messages, costs.step_messages
    return all(
        numbers_are_no_more(one.num_latencies, rows)
        and bool((sent(one, rows[0], batches) <= sent(one, rows[1], batches)).all())
        for one in every
        if one is not None
    )


def sent(columns: MessageColumns, rows: list[int], batches: Ints) -> NDArray[Any]:
    """[row, b]: bytes of messages."""
    constant, slope = (
        np.array(columns.constant_bytes),
        np.array(columns.bytes_per_sample),
    )
    return np.asarray(constant[rows][:, None] + slope[rows][:, None] * batches)


def numbers_are_no_more(column: Sequence[float], rows: Rows) -> bool:
    """Whether no number of a column is more."""
    return all(
        column[mine] <= column[theirs] for mine, theirs in zip(*rows, strict=True)
    )


def are_no_more(every: Sequence[Lines], rows: Rows, batches: Ints) -> bool:
    """Whether no number of some lines is more, at any b and under any bound."""
    return all(
        bool((values(one, rows[0], batches) <= values(one, rows[1], batches)).all())
        for one in every
    )


def values(columns: Lines, rows: list[int], batches: Ints) -> NDArray[np.float64]:
    """[bound, row, b]: lower, expected and upper numbers, before they are rounded."""
    if isinstance(columns, ByteColumns):
        parts: tuple[Any, ...] = (
            columns.constant_bytes,
            columns.slope_bytes_per_sample,
            columns.residual_bytes,
        )
        probed: Any = columns.probed_bytes
    else:
        parts = columns.constant_s, columns.slope_s_per_sample, columns.residual_s
        probed = columns.probed_s
    constant, slope, residual, error = (
        np.array(part, dtype=np.float64)[rows][:, None]
        for part in (*parts, columns.relative_error)
    )
    value, around = constant + slope * batches, residual + np.zeros(len(batches))
    for place, row in enumerate(rows if probed else []):
        known = batches <= len(probed[row])
        value[place, known] = [probed[row][b - 1] for b in batches[known]]
        around[place, known] = 0.0
    lower = np.maximum(value - around, 0) * np.maximum(1 - error, 0)
    return np.stack([lower, value, (value + around) * (1 + error)])
