"""Puts probes together into a `ModelProfile`: a line for each quantity and kind.

What a probe could not see widens the interval (`RELATIVE_ERROR`), and so does a kind of
which a probe was lost: its line has fewer points to rest on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

from plimsoll_planner.records.layer_costs import (
    ActivationColumns,
    ByteColumns,
    DividedColumns,
    LayerCosts,
    MessageColumns,
    SecondsColumns,
    Source,
    WorkColumns,
)
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    LayerColumns,
    LayerStatistics,
    ModelProfile,
    Probe,
    UncountedOperator,
    Variant,
)
from plimsoll_profiler.probing.messages import (
    DividedState,
    Frame,
    LayerState,
    PassCosts,
    ProbeResult,
)
from plimsoll_profiler.profiling.carried import carried_columns
from plimsoll_profiler.profiling.kinds import Kind, kind_of
from plimsoll_profiler.profiling.line_fit import (
    bytes_line,
    fit_samples,
    line_through,
    seconds_line,
)
from plimsoll_profiler.profiling.request import ProfileRequest

RELATIVE_ERROR = {
    (Source.TRACED, DeviceKind.EMULATED): 0.004,
    (Source.MEASURED, DeviceKind.EMULATED): 0.004,
    (Source.TRACED, DeviceKind.CUDA): 0.03,
    (Source.MEASURED, DeviceKind.CUDA): 0.01,
}
"""Of bytes. Emulated: the largest gap of the benchmark of truth, rounded up. CUDA: not
measured yet; kernels' own workspaces, which a trace does not see, are the reason."""
LOST_PROBE_ERROR = 0.05
"""Added where a probe was lost, so that a line rests on two points alone."""
GLOO_THREADS = 2
"""Of a group; each may hold on to the message that it was busy with."""
SECONDS_ERROR = 0.1
"""Spread of seconds between runs on a shared machine."""

WorkField = Callable[[PassCosts], float]
PassesOf = Callable[[Kind], tuple[PassCosts, ...]]
"""Probes of one way to run."""


def assemble(
    request: ProfileRequest, frame: Frame, results: Sequence[ProbeResult]
) -> ModelProfile:
    """Profile from all probes.

    Raises:
        TooFewProbesError: a kind has no probe that completed.
    """
    cases = range(len(frame.cases))
    alone = [kind_of(frame, case, Variant(), results) for case in cases]
    kinds = [
        kind_of(frame, case, variant, results) if frame.is_own(case, variant) else kind
        for variant in frame.variants
        for case, kind in enumerate(alone)
    ]
    error = RELATIVE_ERROR[request.source, request.device_kind]
    table = Table(
        kinds=kinds,
        device_kind=request.device_kind,
        num_variants=len(frame.variants),
        source=request.source,
        relative_error=error,
    )
    return ModelProfile(
        request_key=request.key(),
        fingerprint=frame.fingerprint,
        device_kind=request.device_kind,
        device_product=frame.device_product if table.is_timed else "",
        recipe=frame.recipe,
        tokens_per_sample=frame.tokens_per_sample,
        input_bytes_per_sample=frame.input_bytes_per_sample,
        target_bytes_per_sample=frame.target_bytes_per_sample,
        kinds=tuple(case.name for case in frame.cases),
        variants=frame.variants,
        layers=LayerColumns(name=frame.layers, kind=frame.kind_of_layer),
        carried=carried_columns(frame, request.source),
        costs=table.costs(),
        tied=frame.tied,
        probes=tuple(
            dict.fromkeys(
                Probe(
                    kind=result.case,
                    variant=frame.variants.index(result.variant),
                    micro_batch=result.micro_batch,
                    outcome=result.outcome,
                )
                for result in results
            )
        ),
        uncounted=tuple(
            UncountedOperator(kind=place, operator=operator)
            for place, kind in enumerate(alone)
            for operator in sorted({name for p in kind.kept for name in p.uncounted})
        ),
        not_split=frame.not_split,
        num_untrained=frame.num_untrained,
        not_compared=frame.not_compared,
        batch_statistics=tuple(
            dict.fromkeys(
                LayerStatistics(kind=result.case, what=what)
                for result in sorted(results, key=lambda result: result.case)
                for what in result.batch_statistics
            )
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Turns kinds into the columns of `LayerCosts`."""

    kinds: Sequence[Kind]
    """Of one variant after the other."""
    num_variants: int
    device_kind: DeviceKind
    source: Source
    relative_error: float

    @property
    def is_timed(self) -> bool:
        """Whether seconds were measured."""
        return all(kind.kept[0].forward_s is not None for kind in self.kinds)

    def costs(self) -> LayerCosts:
        """All columns."""
        states = [kind.state for kind in self.kinds]
        num_kinds = len(self.kinds) // self.num_variants
        steps = [state.optimizer_step_s for state in states]
        on_host = [s.host_step_s for s in states if s.host_step_s is not None]
        return LayerCosts(
            kind=tuple(place % num_kinds for place in range(len(self.kinds))),
            variant=tuple(place // num_kinds for place in range(len(self.kinds))),
            parameter_bytes=tuple(s.parameter_bytes for s in states),
            gradient_bytes=tuple(s.gradient_bytes for s in states),
            buffer_bytes=tuple(s.buffer_bytes for s in states),
            optimizer_bytes=tuple(s.optimizer_bytes for s in states),
            optimizer_transient_bytes=tuple(
                s.optimizer_transient_bytes for s in states
            ),
            optimizer_traffic_bytes=tuple(s.optimizer_traffic_bytes for s in states),
            optimizer_step_s=tuple(s or 0.0 for s in steps) if self.is_timed else None,
            host_step_s=tuple(on_host) if len(on_host) == len(states) else None,
            boundary=self.bytes_of(lambda p: p.boundary_bytes),
            kept=self.activations(lambda kind: kind.kept),
            recomputable=tuple(bool(kind.recomputed) for kind in self.kinds),
            recomputed=self.activations(lambda kind: kind.recomputed or kind.kept),
            offloaded=self.activations(lambda kind: kind.offloaded),
            recomputed_from_host=self.activations(
                lambda kind: kind.recomputed_from_host or kind.offloaded
            ),
            forward_work=self.work(
                lambda p: p.forward_flop,
                lambda p: p.forward_traffic_bytes,
                lambda p: p.forward_uncounted_flop,
            ),
            backward_work=self.work(
                lambda p: p.backward_flop,
                lambda p: p.backward_traffic_bytes,
                lambda p: p.backward_uncounted_flop,
            ),
            forward=self.seconds(lambda k: [p.forward_s or 0.0 for p in k.kept]),
            backward=self.seconds(lambda k: [p.backward_s or 0.0 for p in k.kept]),
            recompute=self.seconds(recompute_s),
            divided=self.divided(),
            forward_messages=self.messages(
                lambda p: p.forward_sent_bytes, lambda p: p.forward_latencies
            ),
            held_messages=self.held_messages(),
            backward_messages=self.messages(
                lambda p: p.backward_sent_bytes, lambda p: p.backward_latencies
            ),
            step_messages=step_messages([kind.state for kind in self.kinds]),
        )

    def held_messages(self) -> ByteColumns | None:
        """Bytes of messages that a device may hold past their time; None: nothing."""
        if self.num_variants == 1 or self.device_kind is DeviceKind.CUDA:
            return None
        return self.bytes_of(lambda p: GLOO_THREADS * p.largest_message_bytes)

    def messages(
        self, sent: Callable[[PassCosts], int], latencies: Callable[[PassCosts], int]
    ) -> MessageColumns | None:
        """Messages of one pass; None where nothing is split."""
        if self.num_variants == 1:
            return None
        lines = [
            line_through(kind.micro_batches, [sent(p) for p in kind.kept])
            for kind in self.kinds
        ]
        return MessageColumns(
            constant_bytes=tuple(math.ceil(line.constant) for line in lines),
            bytes_per_sample=tuple(math.ceil(line.slope) for line in lines),
            num_latencies=tuple(latencies(kind.kept[-1]) for kind in self.kinds),
        )

    def divided(self) -> DividedColumns | None:
        """State by numbers, if replicas can divide it."""
        found = [kind.state.divided for kind in self.kinds]
        states = [state for state in found if state is not None]
        if len(states) < len(found):
            return None
        columns = {
            field.name: tuple(getattr(state, field.name) for state in states)
            for field in fields(DividedState)
        }
        return DividedColumns(**columns)

    def activations(self, of_way: PassesOf) -> ActivationColumns:
        """Columns of one way to run."""
        fit = partial(self.bytes_of, of_way=of_way)
        last = [of_way(kind)[-1] for kind in self.kinds]
        is_offloaded = any(passes.host_bytes for passes in last)
        return ActivationColumns(
            saved=fit(lambda p: p.saved_bytes),
            keeps_input=tuple(passes.keeps_input for passes in last),
            keeps_output=tuple(passes.keeps_output for passes in last),
            forward_transient=fit(lambda p: p.forward_transient_bytes),
            backward_transient=fit(lambda p: p.backward_transient_bytes),
            backward_transient_at_end=fit(lambda p: p.backward_transient_at_end_bytes),
            held_input=fit(lambda p: p.held_input_bytes),
            on_host=fit(lambda p: p.host_bytes) if is_offloaded else None,
        )

    def bytes_of(
        self,
        value: Callable[[PassCosts], int],
        of_way: PassesOf = lambda kind: kind.kept,
    ) -> ByteColumns:
        """Lines of one quantity of every kind."""
        lines = [
            fit_samples(
                kind.micro_batches,
                [value(p) for p in of_way(kind)],
                bytes_line,
            )
            for kind in self.kinds
        ]
        return ByteColumns(
            constant_bytes=tuple(line.constant for line in lines),
            slope_bytes_per_sample=tuple(line.slope for line in lines),
            residual_bytes=tuple(line.residual for line in lines),
            relative_error=tuple(map(self.error_of, self.kinds)),
            source=(self.source,) * len(self.kinds),
            probed_bytes=tuple(line.probed for line in lines),
        )

    def error_of(self, kind: Kind) -> float:
        """Bytes by which a kind may be off."""
        return self.relative_error + (LOST_PROBE_ERROR if kind.is_short else 0.0)

    def work(
        self, flop: WorkField, traffic: WorkField, uncounted: WorkField
    ) -> WorkColumns:
        """Lines of the work of one pass of every kind."""
        flops, moved, rest = (
            [
                line_through(kind.micro_batches, [value(p) for p in kind.kept])
                for kind in self.kinds
            ]
            for value in (flop, traffic, uncounted)
        )
        is_whole = not any(p.uncounted for kind in self.kinds for p in kind.kept)
        constants = None if is_whole else tuple(line.constant for line in rest)
        slopes = None if is_whole else tuple(line.slope for line in rest)
        return WorkColumns(
            uncounted_flop_constant=constants,
            uncounted_flop_per_sample=slopes,
            flop_constant=tuple(line.constant for line in flops),
            flop_per_sample=tuple(line.slope for line in flops),
            traffic_constant_bytes=tuple(line.constant for line in moved),
            traffic_bytes_per_sample=tuple(line.slope for line in moved),
        )

    def seconds(self, values: Callable[[Kind], list[float]]) -> SecondsColumns | None:
        """Lines through some seconds of every kind's probes; None if none was timed."""
        if not self.is_timed:
            return None
        lines = [
            fit_samples(kind.micro_batches, values(kind), seconds_line)
            for kind in self.kinds
        ]
        return SecondsColumns(
            constant_s=tuple(line.constant for line in lines),
            slope_s_per_sample=tuple(line.slope for line in lines),
            residual_s=tuple(line.residual for line in lines),
            relative_error=(SECONDS_ERROR,) * len(lines),
            source=(Source.MEASURED,) * len(lines),
            probed_s=tuple(line.probed for line in lines),
        )


def step_messages(states: Sequence[LayerState]) -> MessageColumns | None:
    """Messages once in a step; None where there are none."""
    if not any(state.step_latencies for state in states):
        return None
    return MessageColumns(
        constant_bytes=tuple(state.step_sent_bytes for state in states),
        bytes_per_sample=(0,) * len(states),
        num_latencies=tuple(state.step_latencies for state in states),
    )


def recompute_s(kind: Kind) -> list[float]:
    """Seconds that recomputing adds to both passes, for each probe."""
    pairs = zip(kind.recomputed or kind.kept, kind.kept, strict=True)
    return [max(both_s(again) - both_s(plain), 0.0) for again, plain in pairs]


def both_s(passes: PassCosts) -> float:
    """Seconds of both passes."""
    return (passes.forward_s or 0.0) + (passes.backward_s or 0.0)
