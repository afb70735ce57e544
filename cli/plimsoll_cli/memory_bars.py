"""How full each device is: a bar for each rank, up to its load line.

    rank 0  ███████████████████████▌░░┃  212.5 of 256 MiB, predicted 213.1

Filled: the peak that was measured so far. Shaded: what is predicted still. The line is
what the device has, less the headroom. Called by the view of a run and by `describe`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from plimsoll_operator.brain.summary import observed_peak_bytes, predicted_peaks
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.units import GIB, MIB

WIDTH = 28
MOST_RANKS = 8
"""That are drawn; the fullest ones of a larger gang."""
FULL, PART, AHEAD, LINE = "█", "▌", "░", "┃"


def memory_bars(
    plan: HybridPlan, observations: Iterable[Observation], capacity_bytes: int = 0
) -> list[Text]:
    """Draw the ranks of a plan.

    Args:
        plan: of record.
        observations: what the ranks have told so far.
        capacity_bytes: the load line; 0 is all that a device has.
    """
    measured = {one.rank: observed_peak_bytes(one) for one in observations if one.peaks}
    predicted = predicted_peaks(plan)
    fullest = sorted(predicted, key=lambda rank: -predicted[rank])[:MOST_RANKS]
    lines: list[Text] = []
    for stage in plan.stages:
        capacity = capacity_bytes or plan.offers[stage.offer].device_memory_bytes
        for rank in sorted(set(stage.ranks) & set(fullest)):
            told = measured.get(rank, 0)
            lines.append(bar(rank, told, predicted[rank], capacity))
    left = plan.num_gpus - len(lines)
    return [*lines, *([Text(f"  and {left} ranks that are less full")] if left else [])]


def bar(rank: int, measured: int, predicted: int, capacity: int) -> Text:
    """Draw one rank."""
    unit, name = (GIB, "GiB") if capacity >= 10 * GIB else (MIB, "MiB")
    halves = round(2 * WIDTH * min(measured / capacity, 1))
    filled = FULL * (halves // 2) + PART * (halves % 2)
    ahead = max(0, round(WIDTH * min(predicted / capacity, 1)) - len(filled))
    over = measured > capacity
    text = Text(f"  rank {rank:<3} ")
    text.append(filled, style="red" if over else "cyan")
    text.append(AHEAD * ahead, style="dim")
    text.append(" " * max(0, WIDTH - len(filled) - ahead))
    text.append(LINE, style="bold")
    told = f"{measured / unit:.1f}" if measured else "-"
    text.append(f" {told} of {capacity / unit:.4g} {name}")
    text.append(f", predicted {predicted / unit:.1f}", style="dim")
    return text
