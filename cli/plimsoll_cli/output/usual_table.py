"""Plans that people use, as a table and for machines.

In: rows of the search. Out: cells, JSON, lines. Called by `plimsoll compare`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from plimsoll_planner.units import at_least

if TYPE_CHECKING:
    from plimsoll_planner.search.baselines import Row
    from plimsoll_planner.search.usual_plans import UsualRow

STEPS = 1000
"""Steps that a price is of."""
LESS_IMPORTANT = ("MICRO-BATCH", "SHARDED", "SAMPLES/S")
MEANINGS = (
    "fsdp: parameters divided over all; fsdp-tp: and each layer over a node; "
    "torchtitan-3d, megatron-3d: and the fewest stages that fit, by their defaults. "
    "Blocks recompute; each is on the fewest GPUs that it fits on, at any speed. ours: "
    "the fastest on as many."
)


def usual_cells(row: UsualRow, noun: str) -> dict[str, str]:
    """The cells of a row, with a dash if none fits; devices are `noun`."""
    found = row.found
    candidate = found and found.candidate
    mesh = candidate and candidate.mesh
    cost = cost_of_steps(row)
    return {
        "PLAN": row.name,
        f"{noun.upper()}S": str(candidate.num_gpus) if candidate else "none fits",
        "P x D x T": f"{mesh.pipeline} x {mesh.data} x {mesh.tensor}" if mesh else "-",
        "MICRO-BATCH": str(candidate.micro_batch) if candidate else "-",
        "SHARDED": level(row) if found else "-",
        "PEAK": at_least(row.peak_bytes) if found else "-",
        "STEP": f"{found.step_s:.4g} s" if found else "-",
        "SAMPLES/S": f"{row.samples_per_s:.4g}" if found else "-",
        f"COST/{STEPS} STEPS": "-" if cost is None else f"{cost:.2f}",
    }


def usual_json(row: UsualRow) -> dict[str, object]:
    """One row for machines."""
    found, cost = row.found, cost_of_steps(row)
    return {
        "plan": row.name,
        "gpus": found and found.candidate.num_gpus,
        "sharding": level(row) if found else None,
        **figures_json(row),
        f"cost_of_{STEPS}_steps": None if cost is None else str(cost),
    }


def figures_json(row: UsualRow | Row) -> dict[str, object]:
    """Degrees, cuts and figures of a row for machines."""
    found, price = row.found, row.price_per_hour
    candidate = found and found.candidate
    return {
        "peak_bytes": row.peak_bytes,
        "samples_per_s": row.samples_per_s,
        "step_s": found and found.step_s,
        "stages": candidate and candidate.num_stages,
        "replicas": candidate and candidate.mesh.data,
        "tensor_degree": candidate and candidate.mesh.tensor,
        "micro_batch": candidate and candidate.micro_batch,
        "cuts": found and list(found.cuts),
        "price_per_hour": None if price is None else str(price),
    }


def level(row: UsualRow) -> str:
    """Levels of sharding of its stages, each once."""
    if row.found is None:
        return ""
    levels = (str(one.stated.get("sharding", "none")) for one in row.found.choices)
    return ", ".join(dict.fromkeys(levels))


def cost_of_steps(row: UsualRow) -> Decimal | None:
    """Price of some steps, None if no price is known."""
    if row.found is None or row.price_per_hour is None:
        return None
    hours = Decimal(row.found.step_s) * STEPS / 3600
    return (row.price_per_hour * hours).quantize(Decimal("0.01"))
