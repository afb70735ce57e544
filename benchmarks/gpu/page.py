"""The page of results: what was predicted, beside what a device really held.

In: results. Out: Markdown. Called by `make gpu`; docs/gpu.md is such a page.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.results import EdgeRow, ModelResult, ProfileRow, RankRow, Results
from plimsoll_planner.units import at_least

HERE = Path(__file__).parent
RANK_HEAD = (
    *("plan", "rank", "tensors predicted", "replay", "tensors", "reserved"),
    *("device", "device predicted", "step predicted, s", "step, s"),
)
PROFILE_HEAD = ("profile, traced beside measured", "largest error", "where")
SUMMARY_HEAD = (
    *("model", "parameters", "ranks", "formula, traced", "replay"),
    *("formula, measured", "in range", "device in range", "seconds"),
    *("edge", "minutes"),
)


def prose(name: str) -> str:
    """A part of the page that no result changes; its links lead from docs."""
    return (HERE / f"{name}.txt").read_text()


def page(results: Results | None, data: str) -> str:
    """The whole page.

    Args:
        results: what was measured; None: nothing yet.
        data: path of the file that has all numbers, as a reader would type it.
    """
    if results is None or not results.models:
        return prose("head") + "\n" + prose("nothing")
    parts = [
        prose("head"),
        heading(results),
        *summary(results.models.values()),
        *left_out(results.models.values()),
        *(part for model in results.models.values() for part in details(model)),
        *overhead(results),
        prose("foot").format(data=data),
    ]
    return "\n".join(parts)


def heading(results: Results) -> str:
    """Subject and date of the measurement."""
    size = " Sizes of the models are divided, as the device is emulated." * (
        results.is_tiny
    )
    return (
        f"## {results.device}, {at_least(results.capacity_bytes)}\n\n"
        f"{results.date}.{size} Errors are (predicted - measured) / "
        "measured; a range is lower to upper bound.\n"
    )


def summary(models: Iterable[ModelResult]) -> Iterator[str]:
    """One row for each model."""
    yield table_head(SUMMARY_HEAD)
    for model in models:
        ranks = [row for row in model.ranks if not row.full_phase]
        yield table_row(
            model.model,
            f"{model.num_parameters / 1e9:.3g} B",
            str(len(model.ranks)),
            worst_text([row.allocated[1] / row.peak[0] - 1 for row in ranks]),
            worst_text([row.replayed_bytes / row.peak[0] - 1 for row in ranks]),
            worst_text(
                [row.allocated_by_measured[1] / row.peak[0] - 1 for row in ranks]
            ),
            share_text([is_within(row.allocated, row.peak[0]) for row in ranks]),
            share_text(
                [is_within(row.device, row.peak[2]) for row in filter(is_alone, ranks)]
            ),
            worst_text([e for row in ranks if (e := step_error(row)) is not None]),
            edge_text(model),
            f"{model.wall_s / 60:.1f}",
        )
    yield ""


def is_alone(row: RankRow) -> bool:
    """Whether no other process is known to have been on the device."""
    return not row.other_bytes


def left_out(models: Iterable[ModelResult]) -> Iterator[str]:
    """Ranks that say nothing of what a device holds, and why."""
    count = sum(not is_alone(row) for model in models for row in model.ranks)
    if count:
        yield (
            f"Ranks beside another process: {count}. What the device held was not "
            'theirs alone, so they are left out of "device in range" and of what is '
            "beside tensors.\n"
        )


def details(model: ModelResult) -> Iterator[str]:
    """Results of one model."""
    versions = ", ".join(f"{name} {text}" for name, text in model.versions.items())
    yield f"### {model.model}\n\nMeasured with {versions}.\n"
    for error in model.errors:
        yield f"- not measured: {error}"
    if model.errors:
        yield ""
    if model.ranks:
        yield table_head(RANK_HEAD)
        yield from (table_row(*rank_cells(row)) for row in model.ranks)
        yield ""
    if model.profile:
        yield table_head(PROFILE_HEAD)
        yield from (table_row(*profile_cells(line)) for line in model.profile)
        yield ""
    yield from map(edge_line, model.edge)
    if model.edge:
        yield ""


def profile_cells(line: ProfileRow) -> Iterator[str]:
    """The cells of one quantity."""
    yield line.quantity
    yield f"{percent(line.largest_error)} ({line.largest_error_bytes:+,} B)"
    yield line.where


def edge_line(edge: EdgeRow) -> str:
    """Prediction of one side of the edge, and what happened."""
    did = "ran" if edge.ran else "ran out of memory"
    return (
        f"- micro-batch {edge.micro_batch} on one device, predicted "
        f"{span(edge.device)}: predicted that it {edge.predicted}, and it {did} "
        f"({at_least(edge.peak_device_bytes)} at most)"
    )


def rank_cells(row: RankRow) -> Iterator[str]:
    """The cells of one rank."""
    allocated, reserved, device = map(at_least, row.peak)
    full = f", full in {row.full_phase}" * bool(row.full_phase)
    others = f", others {at_least(row.other_bytes)}" if row.other_bytes else ""
    yield row.plan
    yield str(row.rank)
    yield span(row.allocated)
    yield at_least(row.replayed_bytes)
    yield f"{allocated}{full}"
    yield reserved
    yield f"{device}{others}"
    yield span(row.device)
    yield f"{row.busy_s[0]:.3g} to {row.busy_s[2]:.3g}"
    yield f"{statistics.median(row.step_s):.3g}" if row.step_s else "-"


def overhead(results: Results) -> Iterator[str]:
    """Bytes that the device holds beside tensors, by micro-batch."""
    rows = [row for model in results.models.values() for row in model.ranks]
    rows = [row for row in rows if is_alone(row) and not row.full_phase]
    if not rows:
        return
    yield "### Beside tensors\n"
    yield table_head(
        ("micro-batch", "ranks", "reserved - tensors", "device - reserved")
    )
    for micro_batch in sorted({row.micro_batch for row in rows}):
        peaks = [row.peak for row in rows if row.micro_batch == micro_batch]
        yield table_row(
            str(micro_batch),
            str(len(peaks)),
            least_to_most([r - a for a, r, _ in peaks]),
            least_to_most([d - r for _, r, d in peaks]),
        )
    yield ""


def least_to_most(values: Sequence[int]) -> str:
    """A range of bytes."""
    low, high = at_least(min(values)), at_least(max(values))
    return low if low == high else f"{low} to {high}"


def span(interval: Sequence[int]) -> str:
    """Lower to upper bound of an interval."""
    return least_to_most((interval[0], interval[-1]))


def is_within(interval: Sequence[int], value: int) -> bool:
    """Whether a value lies between lower and upper bound."""
    return interval[0] <= value <= interval[-1]


def step_error(row: RankRow) -> float | None:
    """Relative error of the predicted seconds; None where no step was timed."""
    if not row.step_s:
        return None
    return row.busy_s[1] / statistics.median(row.step_s) - 1


def worst_text(errors: Sequence[float]) -> str:
    """The error that is largest either way."""
    return percent(max(errors, key=abs)) if errors else "-"


def share_text(held: Sequence[bool]) -> str:
    """How many of them hold."""
    return f"{sum(held)} of {len(held)}" if held else "-"


def edge_text(model: ModelResult) -> str:
    """How many of the predictions around the device's edge came true."""
    right = [edge.ran == (edge.predicted == "fits") for edge in model.edge]
    return share_text(right)


def percent(value: float) -> str:
    """A relative error: two digits that count."""
    return f"{100 * value:+.2g} %" if value else "0 %"


def table_head(names: Sequence[str]) -> str:
    """The head of a table."""
    return table_row(*names) + "\n" + table_row(*("---" for _ in names))


def table_row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"
