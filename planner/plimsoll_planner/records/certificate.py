"""Why no smaller choice works, tuple by tuple, and within which space that holds.

"Fewest" means nothing without the space it was searched in; so a certificate states its
techniques, degrees, schedules and limits, and for every GPU count each (P, T, D, b,
sharding, schedule) tuple with the rule that decided it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.records.bounds import Bytes, Count, Index, Message, Name, Rate
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.layer_costs import column_lengths
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.record import Record


class Rule(StrEnum):
    """What decided a tuple."""

    BATCH_DOES_NOT_DIVIDE = "batch-does-not-divide"
    ENGINE_CANNOT_RUN = "engine-cannot-run"
    POD_SHAPE = "pod-shape"
    STATES_EXCEED = "states-exceed"
    """The states alone, spread evenly, exceed the capacity."""
    LAYER_EXCEEDS = "layer-exceeds"
    """One layer that cannot be split exceeds the capacity."""
    MEMORY_CORNER = "memory-corner"
    """The least memory at any speed, found by the exact search."""
    RATE_BOUND = "rate-bound"
    """No plan of the tuple can reach the rate floor."""
    DOMINATED = "dominated"
    """Another tuple is proven to be at least as good."""
    SEARCHED = "searched"
    """The exact search over partitions, recompute and caps."""
    REPLAYED = "replayed"
    """The replay of the plan narrowed the interval."""
    NOT_SEARCHED = "not-searched"
    """A limit cut it off; the certificate is then not exhaustive."""


class Binding(StrEnum):
    """Which constraint a count or a problem breaks on."""

    MEMORY = "memory"
    RATE = "rate"
    BATCH = "batch"
    ENGINE = "engine"
    GPU_LIMIT = "gpu-limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestMiss(Record):
    """The rank that fails by the least, or the rate that is missed by the least."""

    binding: Binding
    rank: Index | None = None
    phase: Phase | None = None
    needed_bytes: Bytes | None = None
    capacity_bytes: Bytes | None = None
    samples_per_s: Rate | None = None
    needed_samples_per_s: Rate | None = None

    def check_rules(self) -> None:
        """A miss of memory names rank, phase and bytes; one of rate both rates."""
        wanted: tuple[str, ...] = ()
        if self.binding is Binding.MEMORY:
            wanted = ("rank", "phase", "needed_bytes", "capacity_bytes")
        elif self.binding is Binding.RATE:
            wanted = ("samples_per_s", "needed_samples_per_s")
        for field in wanted:
            if getattr(self, field) is None:
                raise self.refuse(field, f"given, where {self.binding} is missed")

    @property
    def short_bytes(self) -> int:
        """By how many bytes the rank does not fit; 0 where memory is not the reason."""
        return max((self.needed_bytes or 0) - (self.capacity_bytes or 0), 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions(Record):
    """Columns; entry i is one tuple of the space and what became of it."""

    pipeline_degree: tuple[Count, ...]
    tensor_degree: tuple[Count, ...]
    data_degree: tuple[Count, ...]
    micro_batch: tuple[Count, ...]
    sharding: tuple[Sharding, ...]
    schedule: tuple[Schedule, ...]
    offer: tuple[Index, ...]
    verdict: tuple[Verdict, ...]
    rule: tuple[Rule, ...]
    least_lower_bytes: tuple[Bytes, ...]
    """Least lower bound of the peak over the tuple's plans; 0 where not computed."""

    def check_rules(self) -> None:
        """All columns are of one length."""
        for path, length in column_lengths(self):
            if length != len(self.rule):
                rule = f"{len(self.rule)} entries, one for each tuple"
                raise self.refuse(path, rule, f"{length} entries")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountVerdict(Record):
    """What was found for one number of GPUs."""

    num_gpus: Count
    verdict: Verdict
    binding: Binding | None = None
    """Why the count is not the answer; None for the count that is."""
    nearest_miss: NearestMiss | None = None
    num_undecided: Index = 0
    """Plans whose interval straddles the capacity."""
    decisions: Decisions

    def check_rules(self) -> None:
        """A count that fails says on what; only undecided plans leave it undecided."""
        if self.verdict is Verdict.FAILS and self.binding is None:
            raise self.refuse("binding", "given, where the verdict is fails")
        if (self.verdict is Verdict.UNDECIDED) != (self.num_undecided > 0):
            rule = "at least 1 exactly where the verdict is undecided"
            raise self.refuse("num_undecided", rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class Space(Record):
    """Within what the certificate holds."""

    limits: Limits
    offers: tuple[Name, ...]
    without: tuple[Name, ...]
    """Techniques that were left out, such as offload."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Document):
    """Why no smaller (or cheaper) choice works."""

    space: Space
    counts: tuple[CountVerdict, ...]
    """Every count from 1 to the answer, in order."""
    fewest_at_floor: Count | None
    """Fewest GPUs with a plan that fits and reaches the rate floor."""
    fewest_at_any_speed: Count | None
    exhaustive: bool
    """Every tuple was decided by a proof or an exact search."""
    cut_off: Message = ""
    """What was not searched, and by which limit."""

    def check_rules(self) -> None:
        """Counts are complete; what was cut off is said."""
        numbers = [count.num_gpus for count in self.counts]
        if numbers != list(range(1, len(numbers) + 1)):
            raise self.refuse("counts", "every count from 1 on, in order", numbers)
        if self.exhaustive == bool(self.cut_off):
            rule = "given exactly where the search was not exhaustive"
            raise self.refuse("cut_off", rule)
        slow, fast = self.fewest_at_any_speed, self.fewest_at_floor
        if fast is not None and (slow is None or slow > fast):
            raise self.refuse("fewest_at_any_speed", f"a count of at most {fast}")
