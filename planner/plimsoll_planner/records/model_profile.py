"""Costs of one training workload, layer by layer, and a record of the profiled code.

A profile is a chain of layers, each of which passes one tensor on to the next; values
that skip layers are `carried` besides. Layers of one `kind` cost the same and are
profiled once. Two keys: the request key is computed
from the spec alone and finds a cached profile; the fingerprint is computed where the
code runs and is kept with the profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, cast

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Digest,
    Index,
    Label,
    Message,
    Name,
)
from plimsoll_planner.records.carried import NOTHING_CARRIED, CarriedColumns
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.fingerprint import Fingerprint as Fingerprint
from plimsoll_planner.records.fingerprint import LibraryVersion as LibraryVersion
from plimsoll_planner.records.graph_profile import ProfiledGraph
from plimsoll_planner.records.layer_costs import LayerCosts
from plimsoll_planner.records.precision import NUMBER_BYTES as NUMBER_BYTES
from plimsoll_planner.records.precision import NUMBERS as NUMBERS
from plimsoll_planner.records.precision import Precision as Precision
from plimsoll_planner.records.record import Record

MOST_NAMED = 3
"""Layers that a message lists by name."""


class DeviceKind(StrEnum):
    """Device that a rank computes on. A job planned for one never runs on the other."""

    CUDA = "cuda"
    EMULATED = "emulated"
    """A worker process whose tensor allocator is counted and capped."""


class OptimizerMode(StrEnum):
    """How the optimizer walks its parameters; decides what its step holds on top."""

    FOREACH = "foreach"
    FUSED = "fused"
    LOOP = "loop"


class Sequences(StrEnum):
    """Sequences that a rank of a tensor group has between the split parts."""

    WHOLE = "whole"
    """All of every sequence."""
    SPLIT = "split"
    """Its part: norms, sums and what passes from layer to layer are shared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant(Record):
    """How a layer is split inside its stage.

    An open record: a later axis (context or expert parallelism) is a new field whose
    default means "not split".
    """

    tensor_degree: Count = 1
    sequence_parallel: bool = False

    def check_rules(self) -> None:
        """Sequence parallelism splits along a tensor group."""
        if self.sequence_parallel and self.tensor_degree == 1:
            raise self.refuse("sequence_parallel", "false where tensor_degree is 1")

    @property
    def sequences(self) -> Sequences:
        """Whole on each rank, or split."""
        return Sequences.SPLIT if self.sequence_parallel else Sequences.WHOLE

    def has(self, sequences: Sequences | None) -> bool:
        """Whether sequences are as asked; None: whichever they are."""
        return sequences in {None, self.sequences}


@dataclass(frozen=True, kw_only=True, slots=True)
class NotSplit(Record):
    """A tensor degree that was asked for and cannot be had."""

    tensor_degree: Count
    sequence_parallel: bool = False
    """True: it can be had, but not with sequences split as well."""
    why: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe(Record):
    """How the workload trains; decides the bytes of state for each parameter."""

    precision: Precision
    optimizer: Name
    optimizer_mode: OptimizerMode
    gradient_precision: Precision | None = None
    """In which gradients are added up over micro-batches and replicas. None, as in
    profiles of before there was a choice: as `precision`."""
    elementwise: bool | None = None
    """Whether the optimizer treats each number on its own, so that replicas may divide
    its state; found by trying. None in profiles of before that was asked."""
    steps_on_host: bool | None = None
    """Whether the optimizer steps on tensors of the CPU, so that its state may be in
    the memory of the host; found by trying. None in profiles of before that was asked.
    """

    @property
    def sums_in(self) -> Precision:
        """In which gradients are added up."""
        return self.gradient_precision or self.precision

    @property
    def casts_sums(self) -> bool:
        """Whether a step makes a copy of gradients in the type that it steps in."""
        return NUMBER_BYTES[self.sums_in] != NUMBER_BYTES[self.precision.stepped_in]

    def check_rules(self) -> None:
        """Gradients are added up in a type of numbers."""
        if self.gradient_precision not in {None, *NUMBERS}:
            rule = f"one of {', '.join(NUMBERS)}"
            raise self.refuse("gradient_precision", rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerColumns(Record):
    """The layers in order."""

    name: tuple[Name, ...]
    kind: tuple[Index, ...]
    """Which entry of `kinds` the layer is."""

    def check_rules(self) -> None:
        """One kind for each layer, names that tell layers apart."""
        if not self.name:
            raise self.refuse("name", "at least one layer")
        self.require_equal_lengths("name", of="layer")
        self.require_distinct("name", self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class TiedLayers(Record):
    """Layers that share state: a tied embedding, or the same constant tables.

    Each row of the costs counts its own copy; a rank that holds several of the layers
    has one copy for all of them.
    """

    layers: tuple[Index, ...]
    parameter_bytes: Bytes = 0
    """The shared part of one layer's parameters."""
    gradient_bytes: Bytes = 0
    optimizer_bytes: Bytes = 0
    buffer_bytes: Bytes = 0
    num_numbers: Index = 0
    """Trained numbers of the shared tensor, rounded up as in `DividedColumns`; 0 where
    nothing is divided."""
    optimizer_bytes_per_number: Bytes = 0
    variant: Index = 0
    """Which entry of the profile's `variants` the bytes are those of."""

    def check_rules(self) -> None:
        """At least two layers share."""
        if len(self.layers) <= 1:
            raise self.refuse("layers", "at least two layers")
        self.require_distinct("layers", self.layers)


class ProbeOutcome(StrEnum):
    """How one profiling run ended."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out-of-memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe(Record):
    """One profiling run; one out of memory widens the interval and stays on record."""

    kind: Index
    variant: Index
    micro_batch: Count
    outcome: ProbeOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class UncountedOperator(Record):
    """An operator that does arithmetic that no formula counts."""

    kind: Index
    """Of the layers that run it."""
    operator: Name


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerStatistics(Record):
    """Layers that compute over the samples of a micro-batch, as BatchNorm does.

    What they train changes with the micro-batch.
    """

    kind: Index
    what: Name
    """The module that does, by class, or the operator; `found by trying` where none is
    known for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelProfile(Document):
    """Costs of one training workload, layer by layer."""

    schema_version: ClassVar[int] = 2
    """1 had the column `edges`, from layer to layer."""

    request_key: Digest
    fingerprint: Fingerprint
    device_kind: DeviceKind
    device_product: Label = ""
    """Product name of the device that measured; empty for a traced profile."""
    recipe: Recipe
    tokens_per_sample: Count = 1
    input_bytes_per_sample: Bytes
    """Held by the first stage for each sample of a step."""
    target_bytes_per_sample: Bytes
    """Held by the last stage for each sample of a step."""
    kinds: tuple[Name, ...]
    variants: tuple[Variant, ...]
    layers: LayerColumns
    costs: LayerCosts
    carried: CarriedColumns = NOTHING_CARRIED
    """Values that layers give to layers further behind. `costs` do not depend on them:
    the boundary of a layer is what it passes on."""
    tied: tuple[TiedLayers, ...] = ()
    probes: tuple[Probe, ...] = ()
    uncounted: tuple[UncountedOperator, ...] = ()
    """Operators without a FLOP formula; estimated seconds are wider for them."""
    not_split: tuple[NotSplit, ...] = ()
    """Tensor degrees that layers cannot be split by."""
    num_untrained: Index = 0
    """Layers in front of the first one that trains; no gradient reaches them."""
    not_compared: tuple[Index, ...] = ()
    """Kinds of layers too large for their split to be compared with the whole."""
    batch_statistics: tuple[LayerStatistics, ...] = ()
    """Layers whose micro-batch a person fixes; see `Problem.batch_statistics`."""
    graphs: tuple[ProfiledGraph, ...] = ()
    """Operators of a step, for an engine that places them one by one; micro-batches
    rise."""

    @property
    def tensor_degrees(self) -> tuple[int, ...]:
        """Degrees that some variant was profiled for, rising."""
        return self.tensor_degrees_of(None)

    def tensor_degrees_of(self, sequences: Sequences | None) -> tuple[int, ...]:
        """Those of the variants with such sequences; None: of all."""
        fitting = (one for one in self.variants if one.has(sequences))
        return tuple(sorted({variant.tensor_degree for variant in fitting}))

    def why_not_split(self, tensor_degree: int) -> str:
        """Why layers are not split by a degree; empty if that was not asked."""
        found = (
            one.why for one in self.not_split if one.tensor_degree == tensor_degree
        )
        return next(found, "")

    @property
    def least_micro_batch(self) -> int:
        """The smallest micro-batch that every probed kind completed; 1 without probes.

        Nothing is known of smaller ones: some layers refuse a single sample.
        """
        least: dict[int, int] = {}
        for probe in self.probes:
            if probe.outcome is ProbeOutcome.COMPLETED:
                known = least.get(probe.kind, probe.micro_batch)
                least[probe.kind] = min(known, probe.micro_batch)
        return max(least.values(), default=1)

    @property
    def statistics_text(self) -> str:
        """Which layers compute over a micro-batch, in words; empty where none does."""
        of_kind: dict[int, list[str]] = {}
        for one in self.batch_statistics:
            of_kind.setdefault(one.kind, []).append(one.what)
        named = [
            f"{name!r} ({', '.join(of_kind[kind])})"
            for name, kind in zip(self.layers.name, self.layers.kind, strict=True)
            if kind in of_kind
        ]
        more = f" and {len(named) - MOST_NAMED} more" if named[MOST_NAMED:] else ""
        return ", ".join(named[:MOST_NAMED]) + more

    def check_rules(self) -> None:
        """Every index points at something, and every kind has its costs."""
        self.require_distinct("kinds", self.kinds)
        self.require_distinct("variants", self.variants)
        self._check_indices()
        rows = set(zip(self.costs.kind, self.costs.variant, strict=True))
        for kind in set(self.layers.kind):
            for variant in range(len(self.variants)):
                if (kind, variant) not in rows:
                    rule = "a row for every kind of layer and every variant"
                    missing = f"none for {self.kinds[kind]} in variant {variant}"
                    raise self.refuse("costs.kind", rule, missing)
        self._check_carried()
        batches = [one.micro_batch for one in self.graphs]
        if batches != sorted(set(batches)):
            raise self.refuse("graphs", "micro-batches that rise", batches)

    @classmethod
    def upgraded(
        cls, fields: dict[str, object], version: int, path: str
    ) -> dict[str, object]:
        """Fields of a profile of version 1 without its edges, those of a plain chain.

        Raises:
            InvalidFieldError: they were not; nothing could be done with such a profile.
        """
        if version > 1 or "edges" not in fields:
            return fields
        others = {name: one for name, one in fields.items() if name != "edges"}
        edges, layers = fields["edges"], fields.get("layers")
        has_layers = isinstance(layers, dict)
        names = cast("dict[str, object]", layers).get("name") if has_layers else None
        size = len(cast("list[object]", names)) if isinstance(names, list) else 1
        plain = {
            "source": [*range(size - 1)],
            "target": [*range(1, size)],
            "part": [1.0] * (size - 1),
        }
        if edges != plain:
            rule = "layer after layer, as edges of schema_version 1 are: profile again"
            raise InvalidFieldError(f"{path}.edges", edges, rule)
        return others

    def _check_carried(self) -> None:
        """Gradients come back to what is trained; carried values are not split."""
        carried, trained = self.carried, self.num_untrained
        for place, source in enumerate(carried.source):
            if carried.needs_gradient[place] and source < trained:
                rule = f"false, as layers train from {trained} on and {source} gives it"
                raise self.refuse(f"carried.needs_gradient[{place}]", rule, True)
        if carried.source and any(one.sequence_parallel for one in self.variants):
            rule = "sequence_parallel false, as values are carried"
            raise self.refuse("variants", rule)

    def _check_indices(self) -> None:
        """Nothing is cited that is not there."""
        num_layers, num_kinds = len(self.layers.name), len(self.kinds)
        probed = tuple(probe.kind for probe in self.probes)
        probed_variants = tuple(probe.variant for probe in self.probes)
        with_statistics = tuple(one.kind for one in self.batch_statistics)
        tied_variants = tuple(group.variant for group in self.tied)
        limits = (
            ("layers.kind", self.layers.kind, num_kinds, "kinds"),
            ("costs.kind", self.costs.kind, num_kinds, "kinds"),
            ("costs.variant", self.costs.variant, len(self.variants), "variants"),
            ("carried.takers", self.carried.target, num_layers, "layers"),
            ("probes", probed, num_kinds, "kinds"),
            ("uncounted", tuple(u.kind for u in self.uncounted), num_kinds, "kinds"),
            ("batch_statistics", with_statistics, num_kinds, "kinds"),
            ("probes", probed_variants, len(self.variants), "variants"),
            *(("tied", group.layers, num_layers, "layers") for group in self.tied),
            ("tied", tied_variants, len(self.variants), "variants"),
        )
        for field, column, size, what in limits:
            if column and max(column) >= size:
                rule = f"indices below {size}, the number of {what}"
                raise self.refuse(field, rule, max(column))
