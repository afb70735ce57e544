"""Models that pipelines alone lose: the known good plan beside ours.

For each case three plans, judged by one formula: pipelines alone, a layout that is
known to work, fixed by hand, and ours. The bar: ours takes no more GPUs than the known
one. Written to docs/benchmarks/known_good.md; profiles are kept in build/known_good.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rich.progress import track

from benchmarks.frame import ROOT, Goal, Measurement, run
from benchmarks.support.no_overhead import nothing_besides
from benchmarks.support.pages import HERE, markdown, write_page
from plimsoll_cli.options.offers import read_table
from plimsoll_planner.engines import engine_named
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, Sequences
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import CapacityType
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.units import at_least
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest

KEPT = ROOT / "build" / "known_good"
OFFERS = ROOT / "examples" / "offers.csv"
HEADROOM = 0.08
STEPS = 1000
AT_ANY_SPEED, AT_HALF_SPEED = Objective(rate_floor=0.0), Objective()
SPLIT = {"tensor_degree": 8, "sequences": Sequences.SPLIT}
ON_DEVICE = {"optimizer_home": OptimizerHome.DEVICE, "micro_batch": 1}
HEAD = (
    *("plan", "GPUs", "P x D x T", "sequences", "sharded", "optimizer", "b x M"),
    *("recomputed", "peak at most", "a step", f"{STEPS} steps"),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, its machines, and the layout that is known to work."""

    name: str
    entrypoint: str
    sequence_length: int
    batch: int
    max_gpus: int
    known: Mapping[str, Any]
    """Parts of that layout that are fixed."""
    known_gpus: int
    why: str
    offer: str = "h100-8"
    degrees: tuple[int, ...] = (1, 2, 4, 8)
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Of ours."""
    objective: Objective = AT_HALF_SPEED
    """Of ours."""

    @property
    def profile(self) -> ModelProfile:
        """Trace the model, or read what was traced."""
        fields = {
            "sequence_length": self.sequence_length,
            "gradient_precision": "bf16",
        }
        request = ProfileRequest(
            entrypoint=f"examples.llama:{self.entrypoint}",
            arguments=json.dumps(fields),
            device_kind=DeviceKind.CUDA,
            source=Source.TRACED,
            micro_batches=(1, 2),
            tensor_degrees=self.degrees,
        )
        path = KEPT / f"{request.key().replace(':', '-')}.json"
        if not path.exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            made = profile(request, lambda *_: None)
            path.write_text(json.dumps(made.to_json()))
        return ModelProfile.from_json(json.loads(path.read_text()), "profile")

    def problem(self, **fields: Any) -> Problem:
        """Ask for the fewest GPUs."""
        made, limits = self.profile, fields.pop("limits", {})
        spot = [
            one
            for one in read_table(OFFERS)
            if one.name == self.offer and one.capacity_type is CapacityType.SPOT
        ]
        return Problem(
            profile=made,
            offers=tuple(spot),
            engine=engine_named("plimsoll", made.fingerprint.torch_version),
            global_batch_size=self.batch,
            objective=fields.pop("objective", AT_ANY_SPEED),
            limits=Limits(
                **{"max_gpus": self.max_gpus, "headroom": HEADROOM, **limits}
            ),
            # The headroom of a case stands for what is there besides tensors.
            overheads=(nothing_besides(spot[0].device_product, made),),
            num_steps=STEPS,
            **fields,
        )


ALONE = {
    "tensor_degrees": (1,),
    "shardings": (Sharding.NONE, Sharding.OPTIMIZER),
    "optimizer_homes": (OptimizerHome.DEVICE,),
}
"""Limits of pipelines, replicas, recompute and divided optimizer state alone."""
ALL_ON_DEVICE = {"optimizer_homes": (OptimizerHome.DEVICE,)}
AT_32K = Case(
    name="70B at 32k tokens, batch 32",
    entrypoint="llama_70b",
    sequence_length=32768,
    batch=32,
    max_gpus=48,
    known={**SPLIT, **ON_DEVICE, "num_stages": 3, "data_degree": 1},
    known_gpus=24,
    limits=ALL_ON_DEVICE,
    why="One boundary of a sample is 0.5 GiB, and a block keeps 8 times that or "
    "computes 5 GiB again. So the first of 21 stages holds three samples, the last "
    "one, and they wait for each other: seven times as long a step as ours. Split "
    "sequences leave a fourth or an eighth of each.",
)
CASES = (
    Case(
        name="70B at 4k tokens, batch 64",
        entrypoint="llama_70b",
        sequence_length=4096,
        batch=64,
        max_gpus=24,
        known={**SPLIT, **ON_DEVICE, "num_stages": 2, "data_degree": 1},
        known_gpus=16,
        limits=ALL_ON_DEVICE,
        why="65.7 GiB of state are left for each of 16 GPUs. A pipeline of 16 stages "
        "holds up to 16 micro-batches' boundaries on its first stage beside them, and "
        "82 layers on 16 stages leave six layers on some; tensor groups divide "
        "every layer evenly and hold one or two micro-batches.",
    ),
    Case(
        name="70B at 4k tokens, fewest at all",
        entrypoint="llama_70b",
        sequence_length=4096,
        batch=64,
        max_gpus=16,
        known={
            "num_stages": 1,
            "tensor_degree": 1,
            "data_degree": 8,
            "micro_batch": 1,
            "sharding": Sharding.PARAMETERS,
            "optimizer_home": OptimizerHome.HOST,
        },
        known_gpus=8,
        objective=AT_ANY_SPEED,
        why="With 12 of the 16 bytes of each parameter on the host, 4 are left: 263 "
        "GiB, 33 for each of 8 GPUs if they are divided. Replicas of a pipeline have "
        "all of their stage's.",
    ),
    AT_32K,
    replace(
        AT_32K,
        name="70B at 32k tokens, batch 64",
        batch=64,
        why="Twice the micro-batches take turns in the same memory: peaks are those of "
        "batch 32, and steps take nearly twice as long.",
    ),
    Case(
        name="8B at 128k tokens, batch 16",
        entrypoint="llama_8b",
        sequence_length=131072,
        batch=16,
        max_gpus=64,
        known={**SPLIT, **ON_DEVICE, "num_stages": 1, "data_degree": 1},
        known_gpus=8,
        limits=ALL_ON_DEVICE,
        why="A pipeline of four stages fits if it holds one sample at a time, so three "
        "of four GPUs wait. With split sequences all of them work on it, each on a "
        "half or an eighth. The loss is taken in pieces: all logits would be 31 GiB in "
        "bf16.",
    ),
    Case(
        name="Llama 3.2 1B at 4k tokens on L4, batch 32",
        entrypoint="llama_1b",
        sequence_length=4096,
        batch=32,
        max_gpus=4,
        known={"num_stages": 1, "data_degree": 1, "micro_batch": 1},
        known_gpus=1,
        why="18.4 GiB of state leave 2.3 GiB of the 20.7. The logits of 4,096 tokens "
        "and what the loss makes of them are 5.9 GiB; in pieces of 512 tokens 0.8.",
        offer="l4-1",
        degrees=(1,),
    ),
)


def cells(label: str, answer: Solution | Infeasible) -> tuple[str, ...]:
    """A row of a case."""
    if isinstance(answer, Infeasible):
        return (label, f"none on {answer.certificate.counts[-1].num_gpus}", *"-" * 9)
    plan, mesh = answer.plan, answer.plan.mesh
    first, step = plan.stages[0], plan.step_time
    assert mesh is not None  # noqa: S101 - one engine, which has equal stages
    assert step is not None  # noqa: S101 - the search states it
    cost = (
        float(plan.price_per_hour or 0) * step.expected_s * STEPS / 3600
        if plan.price_per_hour
        else None
    )
    layers = sum(len(stage.recomputed_layers) for stage in plan.stages)
    return (
        label,
        str(plan.num_gpus),
        f"{mesh.pipeline} x {mesh.data} x {mesh.tensor}",
        "split" if first.variant.sequence_parallel else "whole",
        ", ".join(dict.fromkeys(str(one.sharding) for one in plan.stages)),
        ", ".join(dict.fromkeys(str(one.optimizer_home) for one in plan.stages)),
        f"{plan.micro_batch} x {plan.num_micro_batches}",
        str(layers),
        at_least(plan.peak_bytes or 0),
        f"{step.expected_s:.4g} s ({step.lower_s:.4g} to {step.upper_s:.4g})",
        "-" if cost is None else f"{cost:.2f} {plan.currency}",
    )


def answers(case: Case) -> dict[str, Solution | Infeasible]:
    """The three plans of a case."""
    known = Override(**case.known)
    return {
        "pipelines alone": solve(case.problem(limits=ALONE)),
        "known good": solve(case.problem(override=known)),
        "ours": solve(case.problem(limits=case.limits, objective=case.objective)),
    }


def measure() -> Iterator[Measurement]:
    """Yield the GPUs of ours for each case, and write the page."""
    tables: list[tuple[str, str]] = []
    for case in track(CASES, description="cases"):
        found = answers(case)
        rows = [cells(label, answer) for label, answer in found.items()]
        tables.append((case.name, f"{markdown(HEAD, rows)}\n\n{case.why}"))
        ours = found["ours"]
        gpus = ours.plan.num_gpus if isinstance(ours, Solution) else float("inf")
        yield Measurement(
            name=case.name,
            runs=(float(gpus),),
            unit="GPUs",
            goal=Goal(at_most=case.known_gpus),
        )
    write_page("known_good", (HERE / "known_good.txt").read_text(), tables)


if __name__ == "__main__":
    sys.exit(run("known_good", measure))
