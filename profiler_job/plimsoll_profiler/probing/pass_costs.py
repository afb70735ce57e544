"""Bytes and work of a layer in its place, in one micro-batch.

In: a layer, the ways to run it. Out: `PassCosts` without seconds, which
`layer_timing` measures. Called by the prober.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import asdict

from torch import nn

from plimsoll_planner.records.engine import Way
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.counting.work_counter import Work, WorkCounter
from plimsoll_profiler.probing.few_pieces import FewPieces
from plimsoll_profiler.probing.layer_probe import (
    LayerCase,
    MicroBatch,
    probe_activations,
    probe_one,
)
from plimsoll_profiler.probing.messages import Activations, PassCosts


def probe_ways(
    layer: nn.Module, ways: Mapping[Way, LayerCase], bench: Bench, *, is_split: bool
) -> dict[Way, PassCosts]:
    """Probe the bytes of a layer by way to run, and count its work.

    The work is that of the plain way, where nothing is recomputed: what is, does the
    work of a forward pass more, which a plan adds.

    A device warms up in the first pass of each way. In those of each shape, torch finds
    the forms of what is split by tensors of its own, also as it recomputes; offloading
    meets no others.
    """
    every: dict[Way, Activations] = {}
    for way, where in ways.items():
        if bench.is_real or (is_split and not way.offloads):
            probe_one(layer, where, bench)  # warms up
        gc.collect()
        every[way] = probe_activations(layer, where, bench)
    forward, backward = work_of(layer, ways[Way.KEPT], bench)
    largest = max(forward.largest_message_bytes, backward.largest_message_bytes)
    return {
        way: PassCosts(
            **asdict(activations),
            forward_flop=forward.flop,
            forward_traffic_bytes=forward.traffic_bytes,
            forward_uncounted_flop=forward.uncounted_flop,
            backward_flop=backward.flop,
            backward_traffic_bytes=backward.traffic_bytes,
            backward_uncounted_flop=backward.uncounted_flop,
            forward_sent_bytes=forward.sent_bytes,
            forward_latencies=forward.latencies,
            backward_sent_bytes=backward.sent_bytes,
            backward_latencies=backward.latencies,
            largest_message_bytes=largest,
            uncounted=tuple(sorted(forward.uncounted | backward.uncounted)),
        )
        for way, activations in every.items()
    }


def work_of(layer: nn.Module, where: LayerCase, bench: Bench) -> tuple[Work, Work]:
    """Work of forward and backward."""
    few = FewPieces()
    run = MicroBatch(layer, where, bench.device, few)
    with few.counter as counter:
        run.forward()
    forward = counter.work
    run.release_output()
    run.turn()
    few.counter = WorkCounter()
    with few.counter as counter:
        run.backward()
    return forward, counter.work
