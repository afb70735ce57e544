"""Cost of planning: a whole answer, from a profile to plan and certificate.

Bars: a chain of 34 layers with every count up to 16 within 1 s, one of 96 layers with
every count up to 64 and one of 100 layers with every count up to 512 within 10 s, all
on two cores, with equal blocks and with blocks that all differ, with and without room
for the optimizer in the host's memory, with and without tensor groups of up to 8; 256
different layers on up to 64 GPUs, 1,000 into 64 stages, 2,000 offers, and batches of
720,720 and 10^6 within 60 s; the search imports within 0.1 s beyond numpy. The memory
of the devices is chosen so that the model needs a pipeline.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial

from benchmarks.frame import Goal, Measurement, run, seconds_of, start_python
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import ModelProfile, Variant
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.support.builders import an_offer, an_overhead
from tests.support.chains import Activation, Layer, Messages, chain_profile

MIB = 2**20
BOTH = (False, True)


def language_model(
    num_blocks: int, *, distinct: bool = False, split: bool = False
) -> ModelProfile:
    """Build an embedding, blocks, and a head with its logits.

    Args:
        num_blocks: how many.
        distinct: every block has a size and a speed of its own, between half and one
            and a half times the common ones.
        split: tensor groups can split the layers.
    """
    embedding = Layer(
        parameters=50 * MIB,
        gradients=50 * MIB,
        optimizer=100 * MIB,
        numbers=25 * MIB,
        optimizer_of_number=4,
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
        numbers=12 * MIB,
        optimizer_of_number=4,
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
        numbers=25 * MIB,
        optimizer_of_number=4,
        boundary=4,
        kept=Activation(
            saved=100 * MIB, keeps_input=True, forward=150 * MIB, backward=200 * MIB
        ),
        again=Activation(keeps_input=True, forward=150 * MIB, backward=220 * MIB),
        forward_s=3e-3,
        backward_s=6e-3,
        recompute_s=3e-3,
    )
    rng = random.Random(1)  # noqa: S311 - the same chain every time
    blocks = [varied(block, rng) if distinct else block for _ in range(num_blocks)]
    layers = [offloadable(layer) for layer in (embedding, *blocks, head)]
    parts = {
        Variant(tensor_degree=degree): [part_of(layer, degree) for layer in layers]
        for degree in (2, 4, 8)
    }
    return chain_profile(
        layers,
        split=parts if split else None,
        byte_error=0.01,
        time_error=0.05,
        input_bytes_per_sample=16384,
        target_bytes_per_sample=16384,
    )


def offloadable(layer: Layer) -> Layer:
    """Layer whose activations, or whose input, may wait on the host.

    Meanwhile the device has nothing of them, and in the backward pass what was saved.
    """
    kept, again = layer.kept, layer.again
    nothing = Activation()
    return replace(
        layer,
        away=replace(
            nothing,
            forward=kept.forward,
            backward=kept.backward,
            on_host=kept.saved + layer.boundary,
        ),
        again_away=replace(
            nothing,
            forward=again.forward,
            backward=again.backward + layer.boundary,
            on_host=layer.boundary,
        ),
    )


def part_of(layer: Layer, degree: int) -> Layer:
    """Layer on one rank of a tensor group: a T-th of its state, 0.6 of activations.

    That is at T = 2, and 0.4 and 0.3 at T = 4 and 8. Each pass sums the boundary twice,
    in rings.
    """
    rest = 0.2 + 0.8 / degree

    def scaled(activation: Activation) -> Activation:
        return replace(
            activation,
            saved=int(activation.saved * rest),
            forward=int(activation.forward * rest),
            backward=int(activation.backward * rest),
            on_host=int(activation.on_host * rest),
        )

    sums = Messages(
        of_sample=4 * (degree - 1) * layer.boundary // degree,
        latencies=4 * (degree - 1),
    )
    return replace(
        layer,
        parameters=layer.parameters // degree,
        gradients=layer.gradients // degree,
        optimizer=layer.optimizer // degree,
        numbers=layer.numbers // degree,
        kept=scaled(layer.kept),
        again=scaled(layer.again),
        away=layer.away and scaled(layer.away),
        again_away=layer.again_away and scaled(layer.again_away),
        forward_s=layer.forward_s / degree,
        backward_s=layer.backward_s / degree,
        recompute_s=layer.recompute_s / degree,
        forward_messages=sums,
        backward_messages=sums,
    )


def varied(block: Layer, rng: random.Random) -> Layer:
    """Block with parameters, activations and seconds scaled at random."""
    parameters, held, slow = (rng.uniform(0.5, 1.5) for _ in range(3))

    def scaled(activation: Activation) -> Activation:
        return replace(
            activation,
            saved=int(activation.saved * held),
            forward=int(activation.forward * held),
            backward=int(activation.backward * held),
        )

    return replace(
        block,
        parameters=int(block.parameters * parameters),
        gradients=int(block.gradients * parameters),
        optimizer=int(block.optimizer * parameters),
        numbers=int(block.numbers * parameters),
        kept=scaled(block.kept),
        again=scaled(block.again),
        forward_s=block.forward_s * slow,
        backward_s=block.backward_s * slow,
        recompute_s=block.recompute_s * slow,
    )


def question(
    size: Size, *, distinct: bool, hosted: bool = False, split: bool = False
) -> Problem:
    """Ask for the fewest devices; offers are of 20 products on nodes of four sizes.

    If `hosted`, a node has room for the optimizer of all its devices; if `split`,
    tensor groups of 2, 4 or 8 may split layers.
    """
    offers = tuple(
        an_offer(
            name=f"offer-{place}",
            device_memory_bytes=size.memory_mib * MIB * (20 + place % 20) // 20,
            devices_per_node=8 >> place // 20 % 4,
            price_per_node_hour=Decimal(8 + place % 97),
            link_in_node=Link(bandwidth_bytes_per_s=400e9, latency_s=3e-6),
            link_between_nodes=Link(bandwidth_bytes_per_s=50e9, latency_s=1e-5),
            host_memory_bytes=2**38 if hosted else None,
            link_to_host=Link(bandwidth_bytes_per_s=25e9) if hosted else None,
        )
        for place in range(size.num_offers)
    )
    return Problem(
        profile=language_model(size.num_blocks, distinct=distinct, split=split),
        offers=offers,
        overheads=(an_overhead(),),
        engine=PLIMSOLL,
        global_batch_size=size.batch,
        num_steps=1000,
        limits=Limits(max_gpus=size.max_gpus),
        objective=Objective(),
        override=Override(num_stages=size.num_stages),
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
    for size in SIZES:
        yield from measured(size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large a question is, and its bar."""

    num_blocks: int
    memory_mib: int
    max_gpus: int
    batch: int
    bar_s: float
    runs: int
    is_distinct: tuple[bool, ...] = BOTH
    """Whether all blocks differ; both are timed in turn."""
    is_hosted: tuple[bool, ...] = (False,)
    """Whether the optimizer may be on the host; timed in turn as well."""
    is_split: tuple[bool, ...] = (False,)
    """Whether tensor groups may split layers; timed in turn as well."""
    num_stages: int | None = None
    num_offers: int = 1

    def variants(self) -> Iterator[tuple[str, Problem]]:
        """Yield all questions, each with its text."""
        for distinct, hosted, split in itertools.product(
            self.is_distinct, self.is_hosted, self.is_split
        ):
            text = self.text(distinct=distinct) + (", or on the host" if hosted else "")
            text += ", T up to 8" if split else ""
            yield text, question(self, distinct=distinct, hosted=hosted, split=split)

    def text(self, *, distinct: bool) -> str:
        """The question in a few words."""
        into = f" into {self.num_stages} stages" if self.num_stages else ""
        offers = f", {self.num_offers} offers" if self.num_offers > 1 else ""
        return (
            f"{self.num_blocks + 2} {'different' if distinct else 'equal'} layers"
            f"{into}, batch {self.batch}{offers}, every G <= {self.max_gpus}, "
            f"{self.memory_mib} MiB"
        )


MANY_OFFERS = Size(
    num_blocks=32,
    memory_mib=2304,
    max_gpus=64,
    batch=256,
    bar_s=60.0,
    runs=1,
    is_distinct=(False,),
    num_offers=2000,
)
"""And batches with many divisors."""
MANY_TUPLES = Size(
    num_blocks=98,
    memory_mib=6144,
    max_gpus=512,
    batch=720_720,
    bar_s=60.0,
    runs=1,
    is_distinct=(False,),
)
"""173,094 of them; with 2,560 MiB no plan fits, and what would do is looked for."""
SMALL = Size(
    num_blocks=32,
    memory_mib=4096,
    max_gpus=16,
    batch=32,
    bar_s=1.0,
    runs=5,
    is_hosted=BOTH,
    is_split=BOTH,
)
LARGE = Size(
    num_blocks=98,
    memory_mib=6144,
    max_gpus=512,
    batch=1024,
    bar_s=10.0,
    runs=3,
    is_hosted=BOTH,
    is_split=BOTH,
)
SIZES = (
    SMALL,
    replace(SMALL, memory_mib=2304),
    LARGE,
    replace(LARGE, memory_mib=2560),
    replace(LARGE, num_blocks=94, memory_mib=2560, max_gpus=64, batch=128),
    Size(
        num_blocks=254,
        memory_mib=8192,
        max_gpus=64,
        batch=128,
        bar_s=60.0,
        runs=1,
        is_distinct=(True,),
    ),
    Size(
        num_blocks=998,
        memory_mib=6144,
        max_gpus=64,
        batch=128,
        bar_s=60.0,
        runs=1,
        is_distinct=(True,),
        num_stages=64,
    ),
    MANY_OFFERS,
    replace(MANY_OFFERS, num_offers=1, batch=720_720, memory_mib=6144),
    MANY_TUPLES,
    replace(MANY_TUPLES, memory_mib=2560),
    replace(MANY_OFFERS, num_offers=1, batch=10**6, memory_mib=6144),
)


def measured(size: Size) -> Iterator[Measurement]:
    """Yield one question in all its variants, timed in turn."""
    variants = list(size.variants())
    functions = [partial(solve, problem) for _, problem in variants]
    every = seconds_of(*functions, runs=size.runs, warm_up=0)
    for (text, problem), times in zip(variants, every, strict=True):
        yield Measurement(
            name=f"{text}: {answered(problem)}",
            runs=times,
            unit="s",
            goal=Goal(at_most=size.bar_s),
        )


if __name__ == "__main__":
    sys.exit(run("plan", measure))
