"""What planning costs: a whole answer, from a profile to plan and certificate.

Bars: a chain of 34 layers with every count up to 16 within 1 s, one of 100 layers with
every count up to 512 within 10 s, both on two cores; the search imports within 0.1 s
beyond numpy. The memory of the devices is chosen so that the model needs a pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.frame import Goal, Measurement, run, seconds_of, start_python
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.problem import Limits, Objective, Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.support.builders import an_offer, an_overhead
from tests.support.chains import Activation, Layer, chain_profile

MIB = 2**20


def language_model(num_blocks: int) -> ModelProfile:
    """Build an embedding, equal blocks, and a head with its logits."""
    embedding = Layer(
        parameters=50 * MIB,
        gradients=50 * MIB,
        optimizer=100 * MIB,
        boundary=4 * MIB,
        kept=Activation(forward=4 * MIB, backward=4 * MIB),
        again=Activation(keeps_input=True, forward=4 * MIB, backward=4 * MIB),
        forward_s=1e-4,
        backward_s=1e-4,
        recompute_s=1e-4,
    )
    block = Layer(
        parameters=24 * MIB,
        gradients=24 * MIB,
        optimizer=48 * MIB,
        boundary=4 * MIB,
        kept=Activation(
            saved=60 * MIB, keeps_input=True, forward=66 * MIB, backward=80 * MIB
        ),
        again=Activation(keeps_input=True, forward=36 * MIB, backward=84 * MIB),
        forward_s=2e-3,
        backward_s=4e-3,
        recompute_s=2e-3,
    )
    head = Layer(
        parameters=50 * MIB,
        gradients=50 * MIB,
        optimizer=100 * MIB,
        boundary=4,
        kept=Activation(
            saved=100 * MIB, keeps_input=True, forward=150 * MIB, backward=200 * MIB
        ),
        again=Activation(keeps_input=True, forward=150 * MIB, backward=220 * MIB),
        forward_s=3e-3,
        backward_s=6e-3,
        recompute_s=3e-3,
    )
    return chain_profile(
        [embedding, *[block] * num_blocks, head],
        byte_error=0.01,
        time_error=0.05,
        input_bytes_per_sample=16384,
        target_bytes_per_sample=16384,
    )


def question(num_blocks: int, memory_mib: int, max_gpus: int, batch: int) -> Problem:
    """Ask for the fewest of some devices."""
    offer = an_offer(
        device_memory_bytes=memory_mib * MIB,
        link_between_nodes=Link(bandwidth_bytes_per_s=50e9, latency_s=1e-5),
    )
    return Problem(
        profile=language_model(num_blocks),
        offers=(offer,),
        overheads=(an_overhead(),),
        engine=PLIMSOLL,
        global_batch_size=batch,
        num_steps=1000,
        limits=Limits(max_gpus=max_gpus),
        objective=Objective(),
    )


def answered(problem: Problem) -> str:
    """Answer once, and say what came out."""
    answer = solve(problem)
    if not isinstance(answer, Solution):
        return "no plan"
    return f"{answer.plan.num_gpus} GPUs of {answer.statistics.num_tuples} tuples"


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    with_numpy, with_search = seconds_of(
        partial(start_python, "import numpy"),
        partial(start_python, "import plimsoll_planner.search.answer"),
        runs=21,
    )
    beyond = zip(with_search, with_numpy, strict=True)
    yield Measurement(
        name="importing the search, beyond numpy imported beside it",
        runs=tuple(search_s - numpy_s for search_s, numpy_s in beyond),
        unit="s",
        goal=Goal(at_most=0.1),
    )
    sizes = (
        (32, 4096, 16, 32, 1.0, 5),
        (32, 2048, 16, 32, 1.0, 5),
        (98, 6144, 512, 1024, 10.0, 3),
        (98, 2560, 512, 1024, 10.0, 3),
    )
    for num_blocks, memory_mib, max_gpus, batch, bar_s, runs in sizes:
        problem = question(num_blocks, memory_mib, max_gpus, batch)
        (times,) = seconds_of(partial(solve, problem), runs=runs, warm_up=0)
        name = f"{num_blocks + 2} layers, every G <= {max_gpus}, {memory_mib} MiB"
        yield Measurement(
            name=f"{name}: {answered(problem)}",
            runs=times,
            unit="s",
            goal=Goal(at_most=bar_s),
        )


if __name__ == "__main__":
    sys.exit(run("plan", measure))
