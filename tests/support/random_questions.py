"""Random questions with few enough plans that all of them can be listed.

Made of a seed, so that a property test and a benchmark ask the same ones. Seconds have
intervals; `drawn` is the same question with exact seconds from inside them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.model_profile import (
    NUMBER_BYTES,
    DeviceKind,
    Precision,
    TiedLayers,
)
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.problem import Limits, Objective, Problem
from tests.support.builders import a_recipe, an_offer
from tests.support.chains import Activation, Layer, chain_profile

SECONDS = ("forward_s", "backward_s", "recompute_s")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Parts of a question."""

    layers: list[Layer]
    byte_error: float
    time_error: float
    capacity_bytes: int
    links: tuple[Link | None, Link | None]
    global_batch_size: int
    limits: Limits
    objective: Objective
    devices_per_node: int
    input_bytes_per_sample: int = 0
    target_bytes_per_sample: int = 0
    is_tied: bool = False
    """The last layer has its parameters in common with the first one."""
    cores_per_node: int | None = None
    """Devices of a node that compute at the same time; None: all."""
    crowded_slowdown: float = 1.0
    host_memory_bytes: int | None = None
    """Of a node; None: nothing can be on the host."""
    link_to_host: Link | None = None
    host_link_shared: bool = False

    def problem(self) -> Problem:
        """Build the question."""
        profile = chain_profile(
            self.layers,
            byte_error=self.byte_error,
            time_error=self.time_error,
            device_kind=DeviceKind.EMULATED,
            recipe=a_recipe(precision=Precision.FP32),
            input_bytes_per_sample=self.input_bytes_per_sample,
            target_bytes_per_sample=self.target_bytes_per_sample,
            tied=self.tied(),
        )
        offer = an_offer(
            device_kind=DeviceKind.EMULATED,
            device_memory_bytes=self.capacity_bytes,
            devices_per_node=self.devices_per_node,
            concurrent_devices_per_node=self.cores_per_node,
            crowded_slowdown=self.crowded_slowdown,
            nodes_available=None,
            link_in_node=self.links[0],
            link_between_nodes=self.links[1],
            host_memory_bytes=self.host_memory_bytes,
            link_to_host=self.link_to_host,
            host_link_shared=self.host_link_shared,
        )
        return Problem(
            profile=profile,
            offers=(offer,),
            engine=PLIMSOLL,
            global_batch_size=self.global_batch_size,
            limits=self.limits,
            objective=self.objective,
        )

    def tied(self) -> tuple[TiedLayers, ...]:
        """Tensors that the first and the last layer have in common."""
        if not self.is_tied:
            return ()
        ends = self.layers[0], self.layers[-1]
        least = min(ends, key=lambda layer: layer.numbers)
        return (
            TiedLayers(
                layers=(0, len(self.layers) - 1),
                parameter_bytes=min(layer.parameters for layer in ends),
                gradient_bytes=min(layer.gradients for layer in ends),
                optimizer_bytes=min(layer.optimizer for layer in ends),
                num_numbers=least.numbers,
                optimizer_bytes_per_number=min(
                    layer.optimizer_of_number for layer in ends
                ),
            ),
        )

    def drawn(self, dice: random.Random) -> Asked:
        """The same with exact seconds from inside their intervals, mostly ends."""
        layers = [
            replace(
                layer,
                **{
                    name: getattr(layer, name) * (1 + self.time_error * part(dice))
                    for name in SECONDS
                },
            )
            for layer in self.layers
        ]
        return replace(self, layers=layers, time_error=0.0)


def part(dice: random.Random) -> float:
    """Draw a place in an interval, -1 to 1: mostly one of its ends."""
    return dice.choice((-1.0, -1.0, 1.0, 1.0, dice.uniform(-1, 1)))


def asked(seed: int) -> Asked:
    """Draw a question of 3 to 6 layers, each with own seconds, and up to 4 devices."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    kinds = [random_layer(dice) for _ in range(dice.randint(1, 4))]
    layers = [
        # A tick of difference makes each layer a kind of its own, with its own error.
        replace(dice.choice(kinds), forward_s=1 + dice.random())
        for _ in range(dice.randint(3, 6))
    ]
    is_relative = dice.random() < 0.7
    made = Asked(
        layers=layers,
        byte_error=dice.choice((0.0, 0.0, 0.1)),
        time_error=dice.choice((0.0, 0.1, 0.1, 0.3)),
        capacity_bytes=dice.randint(30, 150),
        links=(random_link(dice), random_link(dice)),
        global_batch_size=dice.choice((4, 6, 8)),
        limits=Limits(max_gpus=dice.randint(2, 4)),
        objective=Objective(
            rate_floor=dice.uniform(0.3, 1.0),
            min_samples_per_s=None if is_relative else dice.uniform(0.02, 0.3),
            throughput_tolerance=dice.choice((0.0, 0.05, 0.05, 0.2)),
        ),
        devices_per_node=dice.randint(1, 4),
    )
    return replace(
        made,
        layers=[with_held_input(layer, dice) for layer in layers],
        input_bytes_per_sample=dice.choice((0, 0, 1, 2)),
        target_bytes_per_sample=dice.choice((0, 0, 1)),
        is_tied=dice.random() < 0.3,
    )


def mixed(seed: int) -> Asked:
    """Draw a question as `asked` does, of every kind that there is.

    Of half of them replicas may divide the optimizer state, of a third it may be on the
    host; of a third the ranks of a node share its cores.
    """
    dice = random.Random(f"mixed {seed}")  # noqa: S311 - no secret
    question = asked(seed)
    if dice.random() < 1 / 2:
        question = divisible(question)
    if dice.random() < 1 / 3:
        question = crowded(question, dice)
    if dice.random() < 1 / 3:
        question = hosted(question, seed)
    return question


def crowded(question: Asked, dice: random.Random) -> Asked:
    """The same on nodes of at least two devices with fewer cores than devices."""
    devices = max(question.devices_per_node, 2)
    return replace(
        question,
        devices_per_node=devices,
        cores_per_node=dice.randint(1, devices - 1),
        crowded_slowdown=dice.choice((1.0, 1.0, 1.25)),
    )


def divisible(question: Asked) -> Asked:
    """The same with layers of enough numbers that replicas may divide their state.

    All bytes are 64 times as many; each trained number has 4 bytes, and as many of its
    gradient.
    """
    by = 16 * NUMBER_BYTES[Precision.FP32]

    def larger(found: Activation) -> Activation:
        amounts = ("saved", "forward", "backward", "held", "held_input")
        return replace(found, **{name: by * getattr(found, name) for name in amounts})

    def divided(layer: Layer) -> Layer:
        numbers, of_number = 16 * layer.parameters, layer.optimizer
        transient = by * layer.optimizer_transient
        return replace(
            layer,
            parameters=by * layer.parameters,
            gradients=by * layer.parameters,
            optimizer=(numbers * of_number + 4) if numbers else 0,
            optimizer_transient=transient,
            boundary=by * layer.boundary,
            kept=larger(layer.kept),
            again=larger(layer.again),
            numbers=numbers,
            optimizer_of_number=of_number,
            transient_of_number=-(-transient // numbers) if numbers else 0,
        )

    return replace(
        question,
        layers=[divided(layer) for layer in question.layers],
        capacity_bytes=by * question.capacity_bytes,
        input_bytes_per_sample=by * question.input_bytes_per_sample,
        target_bytes_per_sample=by * question.target_bytes_per_sample,
        links=(faster(question.links[0], by), faster(question.links[1], by)),
    )


def hosted(question: Asked, seed: int) -> Asked:
    """The same on machines whose memory may be too small for optimizer state.

    Some have just enough by the lower bound of what a process takes, some by the upper.
    """
    dice = random.Random(seed)  # noqa: S311 - no secret
    every = sum(one.optimizer + 2 * one.gradients for one in question.layers)
    room = dice.choice((2**28, 2**30)) + dice.choice((every, dice.randint(0, every)))
    layers = [
        replace(layer, host_step_s=float(dice.randint(0, 4)))
        for layer in question.layers
    ]
    return replace(
        question,
        layers=layers,
        capacity_bytes=question.capacity_bytes // dice.choice((1, 2)),
        host_memory_bytes=(room + question.capacity_bytes) * question.devices_per_node,
        link_to_host=Link(
            bandwidth_bytes_per_s=dice.choice((100.0, 1000.0)),
            latency_s=dice.choice((0.0, 0.1)),
        ),
        host_link_shared=dice.random() < 0.3,
    )


def faster(link: Link | None, times: int) -> Link | None:
    """A link of so many times the bandwidth."""
    if link is None:
        return None
    return replace(link, bandwidth_bytes_per_s=times * link.bandwidth_bytes_per_s)


def with_held_input(layer: Layer, dice: random.Random) -> Layer:
    """The layer, which may hold more where its input outlives it."""
    more = [dice.choice((0, 0, 0, 1, 4)) for _ in range(2)]
    return replace(
        layer,
        kept=replace(layer.kept, held_input=more[0]),
        again=replace(layer.again, held_input=more[1]),
    )


def random_layer(dice: random.Random) -> Layer:
    """Draw a layer of small numbers, so that ties are common."""

    def activation() -> Activation:
        return Activation(
            saved=dice.randint(0, 9),
            keeps_input=dice.random() < 0.6,
            keeps_output=dice.random() < 0.3,
            forward=dice.randint(0, 9),
            backward=dice.randint(0, 19),
            held=dice.randint(0, 4),
        )

    return Layer(
        parameters=dice.randint(0, 9),
        gradients=dice.randint(0, 9),
        optimizer=dice.randint(0, 9),
        optimizer_transient=dice.randint(0, 9),
        boundary=dice.randint(0, 4),
        kept=activation(),
        again=activation(),
        recomputable=dice.random() < 0.7,
        backward_s=dice.uniform(0.5, 4),
        recompute_s=dice.uniform(0, 3),
        step_s=float(dice.randint(0, 2)),
    )


def random_link(dice: random.Random) -> Link | None:
    """Draw a link that is slow beside the layers, or none."""
    bandwidth = dice.choice((None, 0.5, 2.0))
    return None if bandwidth is None else Link(bandwidth_bytes_per_s=bandwidth)
