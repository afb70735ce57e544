"""Why no smaller choice works, tuple by tuple, and within which space that holds.

"Fewest" means nothing without the space it was searched in; so a certificate states its
techniques, degrees, schedules and limits, and for every GPU count each (P, T, D, b,
sharding, schedule) tuple with the rule that decided it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self, cast

from plimsoll_planner.records.bounds import (
    LARGEST_RATE,
    Bytes,
    Count,
    Fraction,
    Index,
    Message,
    Name,
    Range,
    Rate,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.record import Record, mapping_of
from plimsoll_planner.records.space import Space

SamplesPerS = Annotated[float, Range(minimum=0, maximum=LARGEST_RATE)]


class Rule(StrEnum):
    """Rule that decided a tuple."""

    BATCH_DOES_NOT_DIVIDE = "batch-does-not-divide"
    OUTSIDE_LIMITS = "outside-limits"
    """The limits or an override leave the count no degrees or no micro-batch."""
    ENGINE_CANNOT_RUN = "engine-cannot-run"
    POD_SHAPE = "pod-shape"
    TENSOR_GROUP = "tensor-group"
    """A tensor group does not leave a node, which has fewer devices than it has ranks.
    """
    STATES_EXCEED = "states-exceed"
    """The states alone, spread evenly, exceed the capacity."""
    LAYER_EXCEEDS = "layer-exceeds"
    """One layer that cannot be split exceeds the capacity."""
    MEMORY_RELAXED = "memory-relaxed"
    """The least memory at any speed, for all replicas and micro-batches at once."""
    PEAK_EXCEEDS = "memory-corner"
    """The least memory at any speed, found by the exact search."""
    HOST_MEMORY = "host-memory"
    """Some plan would fit the devices, and none that keeps optimizer state on the host
    fits the machine's memory as well."""
    RATE_BOUND = "rate-bound"
    """No plan of the tuple can reach the rate floor, for all seconds inside their
    intervals."""
    RATE_AT_EQUAL_ERROR = "rate-at-equal-error"
    """No plan of the tuple reaches a relative floor where all seconds are at the lower
    end of their intervals, as if one factor were the error of all; no proof."""
    DOMINATED = "dominated"
    """Another tuple, which fails, is proven to need no more memory."""
    SEARCHED = "searched"
    """The exact search over partitions, recompute and caps."""
    REPLAYED = "replayed"
    """The replay of the plan narrowed the interval."""
    PLACED = "placed"
    """A placement of operators fits, by its exact peaks."""
    PLACEMENT_BOUND = "placement-bound"
    """No placement of the operators can hold as little as a device has."""
    NOT_PLACED = "not-placed"
    """The heuristics found no placement that fits, which proves nothing."""
    NOT_SEARCHED = "not-searched"
    """A limit cut it off; the certificate is then not exhaustive."""


OPEN_RULES = (Rule.RATE_AT_EQUAL_ERROR, Rule.NOT_PLACED, Rule.NOT_SEARCHED)
"""Rules that decide nothing: a tuple of theirs is undecided."""


class Binding(StrEnum):
    """Which constraint a count or a problem breaks on."""

    MEMORY = "memory"
    HOST_MEMORY = "host-memory"
    RATE = "rate"
    BATCH = "batch"
    ENGINE = "engine"
    GPU_LIMIT = "gpu-limit"
    TENSOR_GROUP = "tensor-group"
    """Ranks that share each layer are more than the devices of a node."""
    WORK_LIMIT = "work-limit"
    """None that is known: the search was cut off before one was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestMiss(Record):
    """The rank that fails by the least, or the rate that is missed by the least."""

    binding: Binding
    offer: Index | None = None
    """Which entry of the space's `offers`."""
    rank: Index | None = None
    """The rank that does not fit, in the plan that comes nearest; None where no single
    plan was looked at: the bytes are then those of some rank of every plan."""
    phase: Phase | None = None
    layer: Name | None = None
    """The largest layer, if that alone is more than the device holds."""
    operator: Name | None = None
    """The operator, or parameter (`state NAME`), that alone is more."""
    needed_bytes: Bytes | None = None
    """Lower bound of that rank's device memory; of what it takes of its machine's,
    where that is missed."""
    capacity_bytes: Bytes | None = None
    """Memory of the device, less the headroom; or its share of the machine's."""
    samples_per_s: Rate | None = None
    """Upper bound of the throughput of the plan that comes nearest."""
    needed_samples_per_s: Rate | None = None

    def check_rules(self) -> None:
        """A miss of memory has its bytes; one of rate both rates."""
        is_memory = self.binding in {Binding.MEMORY, Binding.HOST_MEMORY}
        wanted = ("needed_bytes", "capacity_bytes") if is_memory else ()
        if self.binding is Binding.RATE:
            wanted = ("samples_per_s", "needed_samples_per_s")
        for field in wanted:
            if getattr(self, field) is None:
                raise self.refuse(field, f"given, where {self.binding} is missed")
        if (self.rank is None) != (self.phase is None):
            raise self.refuse("phase", "given exactly where rank is")
        if is_memory and self.short_bytes == 0:
            raise self.refuse("needed_bytes", f"above {self.capacity_bytes} bytes")
        needed = self.needed_samples_per_s or 0
        if self.samples_per_s and self.samples_per_s >= needed:
            raise self.refuse("samples_per_s", "below needed_samples_per_s")

    @property
    def place(self) -> str:
        """Place where memory is short: `rank 0, backward`, or `some rank`."""
        if self.binding is Binding.HOST_MEMORY:
            return "some rank's host memory"
        return "some rank" if self.rank is None else f"rank {self.rank}, {self.phase}"

    @property
    def short_bytes(self) -> int:
        """By how many bytes the rank does not fit; 0 where memory is not the reason."""
        return max((self.needed_bytes or 0) - (self.capacity_bytes or 0), 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions(Record):
    """Columns; entry i is one tuple of the space and what became of it.

    Or a family: tuples that differ by the micro-batch alone, decided by one bound.
    """

    pipeline_degree: tuple[Count, ...]
    """P, stages."""
    tensor_degree: tuple[Count, ...]
    """T, ranks that share each layer."""
    data_degree: tuple[Count, ...]
    """D, replicas."""
    micro_batch: tuple[Count, ...]
    """b, samples; of a family the smallest."""
    largest_micro_batch: tuple[Count, ...]
    """Of a family; of one tuple its own."""
    num_members: tuple[Count, ...]
    """Tuples that the row stands for."""
    sharding: tuple[Sharding, ...]
    """Up to which level each stage may be sharded."""
    schedule: tuple[Schedule, ...]
    offer: tuple[Index, ...]
    """Which entry of the space's `offers`."""
    gpus_per_pod: tuple[Count, ...]
    verdict: tuple[Verdict, ...]
    """Whether a plan of the tuple fits the memory and reaches the rate."""
    rule: tuple[Rule, ...]
    least_lower_bytes: tuple[Bytes, ...]
    """Least lower bound of the peak over the tuple's plans; 0 where not computed."""
    best_samples_per_s: tuple[SamplesPerS, ...]
    """Upper bound of the throughput of its plans; 0 where not computed."""
    sequence_parallel: tuple[bool, ...] | None = None
    """Whether tensor groups split what lies between layers as well; None: nowhere."""

    @classmethod
    def from_json(cls, value: object, path: str) -> Self:
        """Build the columns; see `Record.from_json`.

        A certificate without the columns of families has a row for each tuple.
        """
        given = mapping_of(value, path)
        rules = given.get("rule")
        if isinstance(rules, list):
            alone = {
                "largest_micro_batch": given.get("micro_batch"),
                "num_members": [1] * len(cast("list[object]", rules)),
            }
            given = alone | given
        return super(Decisions, cls).from_json(given, path)

    @property
    def has_tensor(self) -> bool:
        """Whether layers are split in some tuple."""
        return max(self.tensor_degree) > 1

    def num_decided(self) -> Counter[Rule]:
        """Number of tuples that each rule decided."""
        found: Counter[Rule] = Counter()
        for rule, members in zip(self.rule, self.num_members, strict=True):
            found[rule] += members
        return found

    def check_rules(self) -> None:
        """Columns are of one length, tuples occur once, what was skipped is open."""
        if not self.rule:
            raise self.refuse("rule", "at least one tuple")
        self.require_equal_lengths("rule", of="tuple")
        columns = (
            *(self.pipeline_degree, self.tensor_degree, self.data_degree),
            *(self.micro_batch, self.sharding, self.schedule),
            *(self.offer, self.gpus_per_pod),
            self.sequence_parallel or (False,) * len(self.rule),
        )
        self.require_distinct("rule", zip(*columns, strict=True))
        for verdict, rule in zip(self.verdict, self.rule, strict=True):
            if rule in OPEN_RULES and verdict is not Verdict.UNDECIDED:
                raise self.refuse("verdict", f"undecided, where {rule}", verdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountVerdict(Record):
    """Verdict on one number of GPUs."""

    num_gpus: Count
    binding: Binding | None = None
    """On what the count fails; None where it does not fail."""
    nearest_miss: NearestMiss | None = None
    num_undecided: Index = 0
    """Plans whose interval straddles the capacity."""
    floor_samples_per_s: SamplesPerS = 0.0
    """Rate that a plan must reach under expected seconds; 0 if any speed does."""
    decisions: Decisions

    @property
    def verdict(self) -> Verdict:
        """Fits when one tuple does, fails when all do, undecided otherwise."""
        found = set(self.decisions.verdict)
        if Verdict.FITS in found:
            return Verdict.FITS
        return Verdict.UNDECIDED if Verdict.UNDECIDED in found else Verdict.FAILS

    @property
    def is_slow_at_equal_error(self) -> bool:
        """Whether all that is left open is the error of seconds against seconds."""
        pairs = zip(self.decisions.verdict, self.decisions.rule, strict=True)
        left = {rule for verdict, rule in pairs if verdict is not Verdict.FAILS}
        return left == {Rule.RATE_AT_EQUAL_ERROR}

    def check_rules(self) -> None:
        """Every tuple has the count's GPUs; a count that fails has its reason."""
        tuples = self.decisions
        degrees = zip(
            tuples.pipeline_degree,
            tuples.tensor_degree,
            tuples.data_degree,
            strict=True,
        )
        for pipeline, tensor, data in degrees:
            if pipeline * tensor * data != self.num_gpus:
                rule = f"degrees P * T * D that multiply to {self.num_gpus} GPUs"
                raise self.refuse("decisions", rule, (pipeline, tensor, data))
        if (self.verdict is Verdict.FAILS) != (self.binding is not None):
            raise self.refuse("binding", "given exactly where every tuple fails")
        if self.nearest_miss and self.nearest_miss.binding is not self.binding:
            rule = f"a miss of what binds, {self.binding}"
            raise self.refuse("nearest_miss", rule, self.nearest_miss.binding)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Document):
    """Why no smaller (or cheaper) choice works."""

    space: Space
    counts: tuple[CountVerdict, ...]
    """Every count from 1 to the answer, in order; where whole nodes are paid for, to
    all that may pay for fewer."""
    fewest_at_any_speed: Count | None
    """Fewest GPUs with a plan that fits, whatever its rate."""
    rate_at_any_speed: Fraction | None = None
    """Rate of that plan, as a fraction of the best samples per second per GPU."""
    cut_off: Message = ""
    """The part that was not searched, and by which limit; empty if all was searched."""
    pruned: Message = ""
    """Which options were left out of the comparison; empty where none were. Counts that
    fail do so all the same: their bounds are below what was left out."""
    paid_gpus: Count | None = None
    """Devices of all nodes of the plan, where their number is what was made least
    (`limits.whole_nodes`); then a proof is that every tuple that pays for fewer fails.
    """

    @property
    def has_tensor(self) -> bool:
        """Whether there are tuples in which ranks share layers."""
        return any(count.decisions.has_tensor for count in self.counts)

    @property
    def fewest_at_floor(self) -> int | None:
        """Fewest GPUs with a plan that fits and reaches the rate floor."""
        fitting = (c.num_gpus for c in self.counts if c.verdict is Verdict.FITS)
        return next(fitting, None)

    @property
    def undecided_counts(self) -> list[int]:
        """Counts below the fewest that fits which are not proven to fail.

        Of all counts where none fits.
        """
        fewest = self.fewest_at_floor
        smaller = self.counts if fewest is None else self.counts[: fewest - 1]
        return [c.num_gpus for c in smaller if c.verdict is not Verdict.FAILS]

    @property
    def count_gap(self) -> float:
        """By how much fewer devices may do than the fewest found, as a part of them.

        Of what is paid for, where that is made least.
        """
        if self.paid_gpus is not None:
            return 1 - (self.fewest_paid_open or self.paid_gpus) / self.paid_gpus
        fewest, undecided = self.fewest_at_floor, self.undecided_counts
        return 1 - undecided[0] / fewest if fewest and undecided else 0.0

    @property
    def fewest_paid_open(self) -> int | None:
        """Fewest devices that a tuple pays for which is not proven to fail.

        Of those that pay for fewer than the plan does; None where all of them fail.
        """
        pays = (
            paid
            for count in self.counts
            for paid, verdict in self.paid_by(count)
            if verdict is not Verdict.FAILS and paid < (self.paid_gpus or 0)
        )
        return min(pays, default=None)

    def paid_by(self, count: CountVerdict) -> Iterator[tuple[int, Verdict]]:
        """Yield for each tuple of a count the devices of its nodes, and its verdict."""
        rows = count.decisions
        for place, pod, verdict in zip(
            rows.offer, rows.gpus_per_pod, rows.verdict, strict=True
        ):
            offer = self.space.offers[place]
            nodes = offer.num_nodes(count.num_gpus, pod)
            yield nodes * offer.devices_per_node, verdict

    @property
    def is_exhaustive(self) -> bool:
        """Whether every tuple was searched with all of its options.

        A limit of walked plans does not count: what it leaves open is in the gaps of
        the answer.
        """
        return not self.cut_off and not self.pruned

    @property
    def is_proof(self) -> bool:
        """Whether nothing was cut off and every smaller count fails.

        Smaller in what is paid for, where that is made least.
        """
        if self.paid_gpus is not None:
            return not self.cut_off and self.fewest_paid_open is None
        return not self.cut_off and not self.undecided_counts

    def check_rules(self) -> None:
        """Counts are complete, cite what is there, and mention what was cut off."""
        numbers = [count.num_gpus for count in self.counts]
        if numbers != list(range(1, len(numbers) + 1)):
            raise self.refuse("counts", "every count from 1 on, in order", numbers)
        if len(numbers) > self.space.limits.max_gpus:
            rule = f"at most {self.space.limits.max_gpus} counts, the limit"
            raise self.refuse("counts", rule, len(numbers))
        for count in self.counts:
            missed = count.nearest_miss.offer if count.nearest_miss else None
            last_offer = max(*count.decisions.offer, missed or 0)
            if last_offer >= len(self.space.offers):
                rule = f"indices below {len(self.space.offers)}, the number of offers"
                raise self.refuse("counts", rule, last_offer)
        rules = {rule for count in self.counts for rule in count.decisions.rule}
        if not self.cut_off and Rule.NOT_SEARCHED in rules:
            raise self.refuse("cut_off", "given, where a tuple was not searched")
        slow, fast = self.fewest_at_any_speed, self.fewest_at_floor
        if fast is not None and (slow is None or slow > fast):
            raise self.refuse("fewest_at_any_speed", f"a count of at most {fast}")
