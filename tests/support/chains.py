"""Profiles of chains, written layer by layer, and random ones for hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from plimsoll_planner.memory.flow import Flow
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
    LayerColumns,
    ModelProfile,
    TiedLayers,
    Variant,
)
from tests.support.builders import a_profile


@dataclass(frozen=True, kw_only=True)
class Activation:
    """Bytes of one sample in a layer."""

    saved: int = 0
    keeps_input: bool = False
    keeps_output: bool = False
    forward: int = 0
    backward: int = 0
    held: int = 0
    """Bytes that backward holds on top of that at the end of a stage."""
    held_input: int = 0
    """Bytes that it holds on top if the input outlives it."""
    on_host: int = 0
    """Bytes in the memory of the machine between the passes."""


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Messages of a tensor group in one pass of a layer, or at the end of a step."""

    constant: int = 0
    """Bytes that each rank sends."""
    of_sample: int = 0
    """And for each sample."""
    latencies: int = 0


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer; activations in bytes for each sample, seconds for each sample."""

    parameters: int = 0
    gradients: int = 0
    buffers: int = 0
    optimizer: int = 0
    optimizer_transient: int = 0
    boundary: int = 0
    kept: Activation = field(default_factory=Activation)
    again: Activation = field(default_factory=lambda: Activation(keeps_input=True))
    away: Activation | None = None
    """Offloaded; None: nobody has profiled that, of any layer."""
    again_away: Activation | None = None
    """Recomputed from an input that is offloaded; None as well."""
    recomputable: bool = True
    forward_s: float = 1.0
    backward_s: float = 2.0
    recompute_s: float = 1.0
    step_s: float = 0.0
    host_step_s: float = 0.0
    numbers: int = 0
    """Trained numbers of its one parameter, if replicas may divide its optimizer state.
    """
    optimizer_of_number: int = 0
    transient_of_number: int = 0
    flop: float = 0.0
    traffic: float = 0.0
    forward_messages: Messages = Messages()
    backward_messages: Messages = Messages()
    step_messages: Messages = Messages()
    held_messages: int = 0
    """Bytes of messages that may stay past their time."""


def of_adam(numbers: int, **fields: Any) -> Layer:
    """Layer of so many numbers in fp32, with Adam's two numbers each and its count."""
    return Layer(
        parameters=4 * numbers,
        gradients=4 * numbers,
        optimizer=8 * numbers + 4,
        optimizer_transient=4 * numbers,
        numbers=numbers,
        optimizer_of_number=8,
        transient_of_number=4,
        **fields,
    )


def full_flow(in_flight: int) -> Flow:
    """Micro-batches of one sample, all of them in flight at once."""
    return Flow(
        in_flight=in_flight,
        num_micro_batches=in_flight,
        micro_batch=1,
        data_degree=1,
    )


def lines(slopes: Sequence[int], relative_error: float) -> ByteColumns:
    """Build lines through the origin."""
    size = len(slopes)
    return ByteColumns(
        constant_bytes=(0,) * size,
        slope_bytes_per_sample=tuple(slopes),
        residual_bytes=(0,) * size,
        relative_error=(relative_error,) * size,
        source=(Source.TRACED,) * size,
    )


def seconds_lines(slopes: Sequence[float], relative_error: float) -> SecondsColumns:
    """Build lines through the origin."""
    size = len(slopes)
    return SecondsColumns(
        constant_s=(0.0,) * size,
        slope_s_per_sample=tuple(slopes),
        residual_s=(0.0,) * size,
        relative_error=(relative_error,) * size,
        source=(Source.MEASURED,) * size,
    )


def activation(found: Sequence[Activation], relative_error: float) -> ActivationColumns:
    """Build the columns of one choice."""
    return ActivationColumns(
        saved=lines([a.saved for a in found], relative_error),
        keeps_input=tuple(a.keeps_input for a in found),
        keeps_output=tuple(a.keeps_output for a in found),
        forward_transient=lines([a.forward for a in found], relative_error),
        backward_transient=lines([a.backward for a in found], relative_error),
        backward_transient_at_end=lines(
            [a.backward + a.held for a in found], relative_error
        ),
        held_input=lines([a.held_input for a in found], relative_error),
        on_host=lines([a.on_host for a in found], relative_error),
    )


def if_profiled(
    found: Sequence[Activation | None], relative_error: float
) -> ActivationColumns | None:
    """Build the columns of a choice that layers may lack."""
    given = [one for one in found if one is not None]
    return activation(given, relative_error) if len(given) == len(found) else None


def work(flop: Sequence[float], traffic: Sequence[float]) -> WorkColumns:
    """Build work that grows with the samples."""
    zeros = (0.0,) * len(flop)
    return WorkColumns(
        flop_constant=zeros,
        flop_per_sample=tuple(flop),
        traffic_constant_bytes=zeros,
        traffic_bytes_per_sample=tuple(traffic),
    )


def messages(found: Sequence[Messages]) -> MessageColumns | None:
    """Build the columns of messages, if there are any."""
    if not any(one != Messages() for one in found):
        return None
    return MessageColumns(
        constant_bytes=tuple(one.constant for one in found),
        bytes_per_sample=tuple(one.of_sample for one in found),
        num_latencies=tuple(one.latencies for one in found),
    )


def costs_of(
    kinds: Sequence[Layer],
    *,
    num_variants: int,
    timed: bool,
    byte_error: float,
    time_error: float,
) -> LayerCosts:
    """Build the table with one row for each kind, variant after variant."""
    size = len(kinds) // num_variants
    held = [kind.held_messages for kind in kinds]
    passes = [messages([kind.forward_messages for kind in kinds])]
    passes += [messages([kind.backward_messages for kind in kinds])]
    if any(passes):
        nothing = MessageColumns(
            constant_bytes=(0,) * len(kinds),
            bytes_per_sample=(0,) * len(kinds),
            num_latencies=(0,) * len(kinds),
        )
        passes = [one or nothing for one in passes]

    def seconds(name: str) -> SecondsColumns | None:
        slopes = [getattr(kind, name) for kind in kinds]
        return seconds_lines(slopes, time_error) if timed else None

    return LayerCosts(
        kind=tuple(range(size)) * num_variants,
        variant=tuple(place // size for place in range(len(kinds))),
        parameter_bytes=tuple(kind.parameters for kind in kinds),
        gradient_bytes=tuple(kind.gradients for kind in kinds),
        buffer_bytes=tuple(kind.buffers for kind in kinds),
        optimizer_bytes=tuple(kind.optimizer for kind in kinds),
        optimizer_transient_bytes=tuple(kind.optimizer_transient for kind in kinds),
        boundary=lines([kind.boundary for kind in kinds], byte_error),
        kept=activation([kind.kept for kind in kinds], byte_error),
        recomputable=tuple(kind.recomputable for kind in kinds),
        recomputed=activation([kind.again for kind in kinds], byte_error),
        offloaded=if_profiled([kind.away for kind in kinds], byte_error),
        recomputed_from_host=if_profiled([k.again_away for k in kinds], byte_error),
        forward_work=work(
            [kind.flop for kind in kinds], [kind.traffic for kind in kinds]
        ),
        backward_work=work(
            [2 * kind.flop for kind in kinds], [2 * kind.traffic for kind in kinds]
        ),
        optimizer_traffic_bytes=(0.0,) * len(kinds),
        forward=seconds("forward_s"),
        backward=seconds("backward_s"),
        recompute=seconds("recompute_s"),
        optimizer_step_s=tuple(kind.step_s for kind in kinds) if timed else None,
        host_step_s=tuple(kind.host_step_s for kind in kinds) if timed else None,
        divided=divided_of(kinds),
        forward_messages=passes[0],
        backward_messages=passes[1],
        step_messages=messages([kind.step_messages for kind in kinds]),
        held_messages=lines(held, byte_error) if any(held) else None,
    )


def divided_of(kinds: Sequence[Layer]) -> DividedColumns | None:
    """Build the columns of layers that have numbers, if any has."""
    if not any(kind.numbers for kind in kinds):
        return None
    counts = tuple(int(kind.numbers > 0) for kind in kinds)
    return DividedColumns(
        num_parameters=counts,
        num_buffers=counts,
        num_numbers=tuple(kind.numbers for kind in kinds),
        smallest_buffer=tuple(kind.numbers for kind in kinds),
        parameter_bytes=tuple(kind.parameters for kind in kinds),
        optimizer_bytes_per_number=tuple(kind.optimizer_of_number for kind in kinds),
        optimizer_rest_bytes=tuple(
            kind.optimizer - kind.numbers * kind.optimizer_of_number for kind in kinds
        ),
        transient_bytes_per_number=tuple(kind.transient_of_number for kind in kinds),
    )


def chain_profile(
    layers: Sequence[Layer],
    *,
    timed: bool = True,
    byte_error: float = 0.0,
    time_error: float = 0.0,
    tied: tuple[TiedLayers, ...] = (),
    split: Mapping[Variant, Sequence[Layer]] | None = None,
    **fields: Any,
) -> ModelProfile:
    """Build the profile of a chain; layers that are equal everywhere are of one kind.

    `split` are the same layers as one rank of a tensor group has them.
    """
    split = split or {}
    variants = (Variant(), *split)
    every = list(zip(layers, *split.values(), strict=True))
    kinds = list(dict.fromkeys(every))
    size = len(layers)
    defaults: dict[str, Any] = {
        "device_product": "H200" if timed else "",
        "input_bytes_per_sample": 0,
        "target_bytes_per_sample": 0,
        "kinds": tuple(f"kind.{place}" for place in range(len(kinds))),
        "layers": LayerColumns(
            name=tuple(f"layer.{place}" for place in range(size)),
            kind=tuple(map(kinds.index, every)),
        ),
        "variants": variants,
        "costs": costs_of(
            [kind[place] for place in range(len(variants)) for kind in kinds],
            num_variants=len(variants),
            timed=timed,
            byte_error=byte_error,
            time_error=time_error,
        ),
        "tied": tied,
        "probes": (),
    }
    return a_profile(**(defaults | fields))


SMALL = st.integers(0, 9)
"""Few values, so that ties are common."""
ACTIVATIONS = st.builds(
    Activation,
    saved=SMALL,
    keeps_input=st.booleans(),
    keeps_output=st.booleans(),
    forward=SMALL,
    backward=st.integers(0, 19),
    held=st.integers(0, 4),
    held_input=st.integers(0, 4),
)
LAYERS = st.builds(
    Layer,
    parameters=SMALL,
    gradients=SMALL,
    optimizer=SMALL,
    optimizer_transient=SMALL,
    boundary=st.integers(0, 4),
    kept=ACTIVATIONS,
    again=ACTIVATIONS,
    recomputable=st.booleans(),
    forward_s=st.integers(1, 4).map(float),
    backward_s=st.integers(1, 6).map(float),
    recompute_s=st.integers(0, 4).map(float),
    step_s=st.integers(0, 2).map(float),
)


@st.composite
def random_layers(draw: st.DrawFn, longest: int = 7) -> list[Layer]:
    """Draw a chain in which runs of equal layers are common."""
    kinds = draw(st.lists(LAYERS, min_size=1, max_size=3))
    size = draw(st.integers(1, longest))
    return [draw(st.sampled_from(kinds)) for _ in range(size)]


@st.composite
def random_profiles(draw: st.DrawFn, longest: int = 7) -> ModelProfile:
    """Draw a chain with inputs, targets and sometimes tied layers."""
    layers = draw(random_layers(longest))
    tied: tuple[TiedLayers, ...] = ()
    if len(layers) > 1 and draw(st.booleans()):
        ends = (0, len(layers) - 1)
        shared = min(layers[end].parameters for end in ends)
        tied = (TiedLayers(layers=ends, parameter_bytes=shared),)
    return chain_profile(
        layers,
        tied=tied,
        input_bytes_per_sample=draw(SMALL),
        target_bytes_per_sample=draw(SMALL),
        num_untrained=draw(st.integers(0, len(layers) - 1)),
    )
