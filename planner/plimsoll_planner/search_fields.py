"""The fields of a question that a person sets: one row for each.

In: nothing. Out: `FIELDS`. A new field needs the field of a record, with its type, and
a row here. Made of them are

    the option of `plimsoll plan`           plimsoll_cli.options.question
    the field of a TrainingPlan             plimsoll_operator.api.search_fields
    the parts of a `Problem` from both      `problem_parts`, here
    errors and texts in either's words      `vocabulary`
    docs/trainingplan.md, the definition    tools

What a field holds and its default stand in the record alone. A text that names a field
has the path of its record in backticks: `objective.rate_floor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, get_type_hints

from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem

USUAL_MAX_GPUS: Final = 16
"""Up to which count is searched unless more are asked for."""
RECORDS: Final[dict[str, type]] = {
    "limits": Limits,
    "objective": Objective,
    "override": Override,
    "": Problem,
}
"""The parts of a problem that hold fields which a person sets, by the path to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchField:
    """One field, and its name for each who sets it."""

    record: str
    """Its path in a `Problem`."""
    spec: str = ""
    """Its path in a TrainingPlan; empty: none sets it."""
    option: str
    """Of `plimsoll plan`."""
    help: str
    """Meaning, for the command line and for the page of the TrainingPlan."""
    given: int | None = None
    """Value if nobody sets the field and the record has no default."""

    @property
    def part(self) -> str:
        """The path to the record that has the field; empty: the problem itself."""
        return self.record.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The field of that record."""
        return self.record.rpartition(".")[2]

    @property
    def annotation(self) -> Any:
        """Type and bound, as the record has them."""
        return get_type_hints(RECORDS[self.part], include_extras=True)[self.name]

    @property
    def default(self) -> Any:
        """The default of the record, else what stands for it; None where neither is."""
        kind: Any = RECORDS[self.part]
        found = next(one.default for one in fields(kind) if one.name == self.name)
        return self.given if found is MISSING else found


INPUTS: Final = (
    SearchField(
        record="offers",
        spec="spec.search.offers",
        option="--offers",
        help="Machines: CSV, or JSON of Offer.",
    ),
    SearchField(
        record="overheads",
        option="--overhead",
        help="Calibrated DeviceOverhead, JSON; may be given several times.",
    ),
    SearchField(
        record="engine",
        spec="spec.search.engine",
        option="--engine",
        help="What will train; its bytes and abilities are planned with.",
    ),
)
"""Fields that come from a file or by name; the rest of a row is the same."""
FIELDS: Final = (
    SearchField(
        record="global_batch_size",
        spec="spec.training.globalBatchSize",
        option="--batch",
        help="How many samples a step takes, over all replicas together.",
        given=32,
    ),
    SearchField(
        record="num_steps",
        spec="spec.training.steps",
        option="--steps",
        help="How many steps the whole training has; for its cost.",
    ),
    SearchField(
        record="batch_statistics",
        spec="spec.training.batchStatistics",
        option="--batch-statistics",
        help="Who chooses the micro-batch where layers such as BatchNorm compute over "
        "it: a person, by `override.micro_batch`, or the search.",
    ),
    SearchField(
        record="objective.goal",
        spec="spec.search.objective",
        option="--objective",
        help="What the search makes smallest or largest; `MinimizeCost` needs prices, "
        "and `num_steps`.",
    ),
    SearchField(
        record="limits.max_gpus",
        spec="spec.search.maxGPUs",
        option="--max-gpus",
        help="The most GPUs that a plan may take; every count from 1 to this is "
        "searched.",
        given=USUAL_MAX_GPUS,
    ),
    SearchField(
        record="objective.rate_floor",
        spec="spec.search.rateFloor",
        option="--rate-floor",
        help="The slowest rate that will do, as a part of the best samples per second "
        "per GPU over all counts allowed.",
    ),
    SearchField(
        record="objective.min_samples_per_s",
        spec="spec.search.minSamplesPerSecond",
        option="--min-throughput",
        help="The slowest rate that will do, in samples per second; takes the place of "
        "`objective.rate_floor`.",
    ),
    SearchField(
        record="objective.throughput_tolerance",
        spec="spec.search.throughputTolerance",
        option="--tolerance",
        help="The part of the throughput that may go for less memory, within the count "
        "of GPUs that was chosen.",
    ),
    SearchField(
        record="objective.deadline_s",
        spec="spec.search.deadlineSeconds",
        option="--deadline",
        help="How many seconds the whole training may take, as it is predicted; needs "
        "`num_steps`. Unset: any time.",
    ),
    SearchField(
        record="limits.headroom",
        spec="spec.search.headroom",
        option="--headroom",
        help="The part of every device's memory that is kept free.",
    ),
    SearchField(
        record="limits.max_micro_batch",
        spec="spec.search.maxMicroBatch",
        option="--max-micro-batch",
        help="The largest micro-batch that is searched; unset: any.",
    ),
    SearchField(
        record="limits.max_tuples",
        option="--max-tuples",
        help="Work limit: how many combinations of offer, stages, replicas, tensor "
        "degree and micro-batch are searched.",
    ),
    SearchField(
        record="limits.whole_nodes",
        spec="spec.search.wholeNodes",
        option="--whole-nodes",
        help="Whether `MinimizeGPUs` makes the GPUs of all nodes fewest, which are "
        "paid for, and among those the GPUs in use. `MinimizeCost` prices whole nodes "
        "in any case; the other objectives refuse it.",
    ),
    SearchField(
        record="override.num_gpus",
        spec="spec.override.gpus",
        option="--gpus",
        help="How many GPUs the job takes, with one rank on each.",
    ),
    SearchField(
        record="override.num_stages",
        spec="spec.override.pipeline",
        option="--pipeline",
        help="How many stages the layers are cut into: the degree of pipeline "
        "parallelism.",
    ),
    SearchField(
        record="override.data_degree",
        spec="spec.override.data",
        option="--data",
        help="How many replicas train side by side: the degree of data parallelism.",
    ),
    SearchField(
        record="override.tensor_degree",
        spec="spec.override.tensor",
        option="--tensor",
        help="How many GPUs share each layer: the degree of tensor parallelism.",
    ),
    SearchField(
        record="override.sequences",
        spec="spec.override.sequences",
        option="--sequences",
        help="What each GPU of those that share layers has of the sequences between "
        "them: `whole`, or `split`, a part of each; unset: the search chooses.",
    ),
    SearchField(
        record="override.micro_batch",
        spec="spec.override.microBatch",
        option="--micro-batch",
        help="How many samples go through a stage at a time.",
    ),
    SearchField(
        record="override.cuts",
        spec="spec.override.cuts",
        option="--cuts",
        help="The first layer of each stage, counted from 0; empty: not fixed.",
    ),
    SearchField(
        record="override.recomputed_layers",
        spec="spec.override.recomputedLayers",
        option="--recompute",
        help="The layers that recompute, counted from 0, and no others; an empty list: "
        "none does; unset: not fixed.",
    ),
    SearchField(
        record="override.offloaded_layers",
        spec="spec.override.offloadedLayers",
        option="--offload",
        help="The layers whose activations wait in the memory of the machine for the "
        "backward pass, or whose inputs do, if they recompute, and no others; counted "
        "from 0; on one stage all that recompute, or others where none does; an empty "
        "list: none does; unset: not fixed.",
    ),
    SearchField(
        record="override.in_flight_caps",
        spec="spec.override.inFlightCaps",
        option="--in-flight-caps",
        help="How many micro-batches each stage holds in flight, first to last: as "
        "many as the one before or one fewer, and 1 on the last; empty: not fixed.",
    ),
    SearchField(
        record="override.sharding",
        spec="spec.override.sharding",
        option="--sharding",
        help="What the replicas of each stage divide among themselves: `none`, the "
        "state of the `optimizer`, `gradients` as well, or `parameters` as well as "
        "both; unset: the search chooses for each stage.",
    ),
    SearchField(
        record="override.optimizer_home",
        spec="spec.override.optimizerHome",
        option="--optimizer-home",
        help="Where the optimizer state of each stage is, and its step is computed: on "
        "the `device`, or on its `host`; unset: the search chooses for each stage.",
    ),
)


def problem_parts(values: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of a `Problem`: limits, objective, override, and fields of its own.

    Values come by the path of their record; None is the same as none. A limit of the
    GPUs that nobody set is wide enough for what is fixed.

    Raises:
        InvalidFieldError: a value breaks its bound, or values contradict each other.
    """
    found = {path: value for path, value in values.items() if value is not None}
    parts: dict[str, dict[str, Any]] = {part: {} for part in RECORDS}
    for row in FIELDS:
        value = found.get(row.record, row.given)
        if value is not None:
            parts[row.part][row.name] = value
    override, limits = Override(**parts["override"]), parts["limits"]
    if "limits.max_gpus" not in found:
        limits["max_gpus"] = max(limits["max_gpus"], override.least_gpus)
    return parts[""] | {
        "limits": Limits(**limits),
        "objective": Objective(**parts["objective"]),
        "override": override,
    }
