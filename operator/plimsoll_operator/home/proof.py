"""Shows a proof by running it: one device fewer, and every mesh dies of memory.

In: what acts for a plan whose answer stands. Out: how the least-memory plan of each
mesh with one device fewer ended, under the memory of the devices that were offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from plimsoll_operator.brain.seen import Child, ChildKind, ChildState, Ending
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.commands import PLAN, train_task
from plimsoll_operator.home.folders import PlanFolder
from plimsoll_operator.home.hands import Hands
from plimsoll_planner.records.document import save
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution

STEPS = 2
"""Enough for every peak: the second step has the optimizer's state from the start."""
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofRun:
    """What became of one mesh."""

    plan: HybridPlan
    ending: Ending | None
    """None where it was not run: it fits, and is too slow."""
    message: str

    @property
    def holds(self) -> bool:
        """Tell whether it is as the certificate says."""
        return self.ending in (None, Ending.OUT_OF_MEMORY)


async def prove(
    hands: Hands, problem: Problem, answer: Solution
) -> AsyncIterator[ProofRun]:
    """Run every mesh with one device fewer.

    Args:
        hands: of the plan.
        problem: what was asked.
        answer: what was answered.
    """
    # Imported here, for whoever only looks needs no numpy.
    from plimsoll_planner.search.slimmest import slimmest_plans  # noqa: PLC0415

    fewer = answer.plan.num_gpus - 1
    offer_bytes = problem.offers[0].device_memory_bytes
    usable_bytes = problem.limits.usable_bytes(offer_bytes)
    folder = PlanFolder(hands.folder.root / "proof")  # its logs lie apart as well
    folder.make()
    children = Children(folder.children)
    plans = await asyncio.to_thread(list, slimmest_plans(problem, fewer))
    for number, plan in enumerate(plans, start=1):
        if (plan.peak_bytes or 0) <= usable_bytes:
            text = "fits, but is slower than what was asked for"
            yield ProofRun(plan=plan, ending=None, message=text)
            continue
        child = await run_to_the_end(hands, children, number, plan, usable_bytes)
        yield ProofRun(plan=plan, ending=child.ending, message=child.message)


async def run_to_the_end(
    hands: Hands, children: Children, number: int, plan: HybridPlan, usable_bytes: int
) -> Child:
    """Run the gang of a plan and return how it ended."""
    spec = hands.plan.spec
    subject = ChildKind.TRAIN, str(number)
    children.clear(*subject)
    folder = children.folder(*subject)
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / PLAN, plan)
    task = train_task(
        number,
        plan,
        replace(spec, training=replace(spec.training, steps=STEPS)),
        folder,
        hands.plan.folder,
        checkpoints=folder / "checkpoints",
        device_memory_bytes=usable_bytes,
    )
    await asyncio.to_thread(children.start, task)
    while True:
        found = next(child for child in children.look() if child.subject == str(number))
        if found.state is ChildState.ENDED:
            children.clear(*subject)
            return found
        await asyncio.sleep(POLL_S)
