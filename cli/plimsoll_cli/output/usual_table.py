"""Plans that people use, as a table and for machines.

In: rows of the search. Out: cells, JSON, lines. Called by `plimsoll compare`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from plimsoll_cli.output.tables import money
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.text.counts import device_noun
from plimsoll_planner.text.explain import offer_text
from plimsoll_planner.text.plans import each_of
from plimsoll_planner.units import at_least, number_text

if TYPE_CHECKING:
    from plimsoll_planner.records.problem import Problem
    from plimsoll_planner.search.baselines import Row
    from plimsoll_planner.search.found import Found
    from plimsoll_planner.search.usual_plans import UsualRow

STEPS = 1000
"""Steps that a price is of."""
LESS_IMPORTANT = ("MICRO-BATCH", "SAMPLES/S", "SHARDED", "OFFER")
MEANINGS = (
    "P x D x T: stages, replicas, and ranks that share each layer. fsdp: parameters "
    "divided over all; fsdp-tp: and each layer over the largest T of a node that was "
    "profiled; torchtitan-3d, megatron-3d: and the fewest stages that fit, by their "
    "defaults. Their blocks recompute and optimizers are on devices, whatever the "
    "options fix; each is on the fewest devices up to --max-gpus that it fits on, at "
    "any speed. ours: the fastest on the fewest, and on as many as each of them."
)


def usual_cells(row: UsualRow, problem: Problem) -> dict[str, str]:
    """The cells of a row, with a dash if none fits."""
    found, offers = row.found, problem.offers
    noun, most = device_noun(offers), problem.limits.max_gpus
    candidate = found.candidate if found else None
    mesh = candidate and candidate.mesh
    offer = offers[candidate.offer] if candidate else None
    return {
        "PLAN": row.name,
        f"{noun.upper()}S": str(candidate.num_gpus) if candidate else f"none to {most}",
        "OFFER": offer_text(offer) if offer else "-",
        "P x D x T": f"{mesh.pipeline} x {mesh.data} x {mesh.tensor}" if mesh else "-",
        "MICRO-BATCH": str(candidate.micro_batch) if candidate else "-",
        "SHARDED": stated(found, "sharding", Sharding.NONE),
        "OPTIMIZER": stated(found, "optimizer_home", OptimizerHome.DEVICE),
        "PEAK": at_least(row.peak_bytes) if found else "-",
        **speed_cells(row),
        f"COST/{STEPS} STEPS": money(
            cost_of_steps(row), offer.currency if offer else None
        ),
    }


def usual_json(row: UsualRow) -> dict[str, object]:
    """One row for machines."""
    found, cost = row.found, cost_of_steps(row)
    return {
        "plan": row.name,
        "gpus": found and found.candidate.num_gpus,
        "sharding": stated(found, "sharding", Sharding.NONE) if found else None,
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


def speed_cells(row: UsualRow | Row) -> dict[str, str]:
    """Seconds of a step and rate of a row, with a dash if none fits."""
    found = row.found
    return {
        "STEP": f"{number_text(found.step_s)} s" if found else "-",
        "SAMPLES/S": number_text(row.samples_per_s) if found else "-",
    }


def stated(found: Found | None, name: str, usual: str) -> str:
    """A field of its stages that their choices state, each value once."""
    if found is None:
        return "-"
    return each_of(str(one.stated.get(name, usual)) for one in found.choices)


def cost_of_steps(row: UsualRow) -> Decimal | None:
    """Price of some steps, None if no price is known."""
    if row.found is None or row.price_per_hour is None:
        return None
    hours = Decimal(row.found.step_s) * STEPS / 3600
    return (row.price_per_hour * hours).quantize(Decimal("0.01"))
