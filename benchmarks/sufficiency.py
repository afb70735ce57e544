"""Does what is planned to fit fit, and does one device fewer really fail?

    random plans     each rank under a cap equal to its own upper bound: none runs out
    G                the planned count runs under the capacity it was planned for
    G - 1            where the certificate says "fails": the least-memory plan of every
                     mesh is run under that capacity, and dies of memory

All ranks are real gloo processes whose tensors are counted and refused over the cap.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import product

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.capped_run import Run, require_no_other_death, run_capped
from benchmarks.support.truth_models import (
    GLOBAL_BATCH,
    MODELS,
    MOST_RANKS,
    Arrangement,
)
from benchmarks.support.truth_run import (
    answer_of,
    arrangement_of,
    capacity_offer,
    planned,
    profile_of,
    run_rank,
)
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.objective import Goal as Aim
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.solution import Infeasible, Solution

NUM_RANDOM_PLANS = 50
SEED = 20261121
AT_ANY_SPEED = Objective(rate_floor=0.0)
LEAST_MEMORY = Objective(
    goal=Aim.MINIMIZE_MEMORY, rate_floor=0.0, throughput_tolerance=1.0
)
MOST_GPUS = 5
AMPLE_BYTES = 2**34


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    profiles = {name: profile_of(name) for name in track(MODELS, "profiles")}
    ended = [
        run_plan(name, plan, caps)
        for name, plan, caps in track(list(random_plans(profiles)), "random plans")
    ]
    yield Measurement(
        name=f"of {len(ended)} random plans under their upper bounds, out of memory",
        runs=(float(sum(run.is_full for run in ended)),),
        unit="plans",
        goal=Goal(at_most=0),
    )
    require_no_other_death(ended)
    tried = [Step(name, made) for name, made in profiles.items()]
    steps = [step for step in track(tried, "one fewer") if step.run()]
    yield Measurement(
        name="models with a count that fits and one fewer that fails",
        runs=(float(len(steps)),),
        unit="models",
        goal=Goal(at_least=6),
    )
    if not steps:
        return
    fewer = [run for step in steps for run in step.fewer]
    require_no_other_death([*(step.enough for step in steps), *fewer])
    yield Measurement(
        name="of them, planned count ran under the capacity",
        runs=(sum(step.enough.is_done for step in steps) / len(steps),),
        unit="part",
        goal=Goal(at_least=1),
    )
    yield Measurement(
        name=f"of {len(fewer)} least-memory plans with one fewer, died of memory",
        runs=(sum(run.is_full for run in fewer) / len(fewer),),
        unit="part",
        goal=Goal(at_least=1),
    )


def random_plans(
    profiles: dict[str, ModelProfile],
) -> Iterator[tuple[str, HybridPlan, list[int]]]:
    """Yield a model, a plan, and the upper bound of every rank."""
    dice = random.Random(SEED)  # noqa: S311 - no secret
    names = sorted(profiles)
    for place in range(NUM_RANDOM_PLANS):
        name = names[place % len(names)]
        num_layers = len(profiles[name].layers.name)
        how = random_arrangement(dice, num_layers)
        plan = plan_of(profiles[name], how)
        caps = [
            max(peak.device.upper_bytes for peak in stage.peaks)
            for stage in plan.stages
            for _ in stage.ranks
        ]
        yield name, plan, caps


def random_arrangement(dice: random.Random, num_layers: int) -> Arrangement:
    """Draw degrees, micro-batch, cuts, recompute, and choices of stages."""
    replicas = dice.choice((1, 1, 2))
    num_stages = dice.randint(1, min(MOST_RANKS // replicas, 4))
    most = GLOBAL_BATCH // replicas // num_stages
    micro_batch = dice.choice([b for b in (1, 2, 4, 8) if b <= most])
    inner = sorted(dice.sample(range(1, num_layers), num_stages - 1))
    recomputed = tuple(i for i in range(num_layers) if dice.random() < 1 / 3)
    is_divided = replicas > 1 and dice.random() < 1 / 2
    is_hosted = dice.random() < 1 / 2
    most_in_flight = dice.randint(1, num_stages)
    return Arrangement(
        cuts=(0, *inner),
        replicas=replicas,
        micro_batch=micro_batch,
        recomputed=recomputed,
        shardings=(Sharding.OPTIMIZER,) * num_stages if is_divided else (),
        caps=tuple(min(most_in_flight, num_stages - s) for s in range(num_stages)),
        homes=(OptimizerHome.HOST,) * num_stages if is_hosted else (),
    )


def plan_of(made: ModelProfile, how: Arrangement) -> HybridPlan:
    """Predict one arrangement on devices that hold anything."""
    found = answer_of(
        made,
        capacity_offer(AMPLE_BYTES),
        Limits(max_gpus=how.num_ranks),
        AT_ANY_SPEED,
        how.override(),
    )
    return planned(found)


def run_plan(name: str, plan: HybridPlan, caps: list[int]) -> Run:
    """Run a plan's ranks, each under its cap."""
    return run_capped(run_rank, caps, name, arrangement_of(plan))


class Step:
    """A model at the capacity where one device more makes the difference."""

    def __init__(self, name: str, made: ModelProfile) -> None:
        """Take a model."""
        self.name, self.made = name, made
        self.enough = Run(is_done=False, is_full=False)
        self.fewer: list[Run] = []

    def run(self) -> bool:
        """Find such a capacity and run both counts; False where there is none."""
        for num_gpus in range(MOST_GPUS, 1, -1):
            plan = self.least_memory_plan(num_gpus)
            capacity = plan.peak_bytes or AMPLE_BYTES
            found = self.ask(capacity, num_gpus)
            if not isinstance(found, Solution) or found.plan.num_gpus != num_gpus:
                continue
            before = found.certificate.counts[num_gpus - 2]
            if before.verdict is not Verdict.FAILS:
                continue
            caps = [capacity] * num_gpus
            self.enough = run_plan(self.name, found.plan, caps)
            self.fewer = [
                run_plan(self.name, one, caps[1:]) for one in self.meshes(num_gpus - 1)
            ]
            return True
        return False

    def ask(self, capacity: int, max_gpus: int) -> Solution | Infeasible:
        """Ask for the fewest devices of a capacity."""
        limits = Limits(max_gpus=max_gpus)
        return answer_of(self.made, capacity_offer(capacity), limits, AT_ANY_SPEED)

    def least_memory_plan(
        self,
        num_gpus: int,
        num_stages: int | None = None,
        tensor_degree: int | None = None,
    ) -> HybridPlan:
        """Plan of the least peak for a count, or for one of its meshes."""
        found = answer_of(
            self.made,
            capacity_offer(AMPLE_BYTES),
            Limits(max_gpus=num_gpus),
            LEAST_MEMORY,
            Override(
                num_gpus=num_gpus, num_stages=num_stages, tensor_degree=tensor_degree
            ),
        )
        return planned(found)

    def meshes(self, num_gpus: int) -> Iterator[HybridPlan]:
        """Yield the least-memory plan of every mesh that divides the batch."""
        stages = range(1, len(self.made.layers.name) + 1)
        for num_stages, degree in product(stages, self.made.tensor_degrees):
            replicas, rest = divmod(num_gpus, num_stages * degree)
            if rest == 0 and GLOBAL_BATCH % replicas == 0:
                yield self.least_memory_plan(num_gpus, num_stages, degree)


if __name__ == "__main__":
    sys.exit(run("sufficiency", measure))
