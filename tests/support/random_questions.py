"""Random questions with few enough plans that all of them can be listed.

Made of a seed, so that a property test and a benchmark ask the same ones. Seconds have
intervals; `drawn` is the same question with exact seconds from inside them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.carried import NOTHING_CARRIED, CarriedColumns
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import (
    NUMBER_BYTES,
    DeviceKind,
    Precision,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.problem import Problem
from tests.support.builders import a_recipe, an_offer
from tests.support.chains import Activation, Layer, Messages, chain_profile

SECONDS = ("forward_s", "backward_s", "recompute_s")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Parts of a question."""

    layers: list[Layer]
    split: Mapping[Variant, list[Layer]] = field(default_factory=dict)
    """The same layers as tensor groups have them; none: the engine has no groups."""
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
    carried: CarriedColumns = NOTHING_CARRIED

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
            split=self.split,
            carried=self.carried,
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
        """Tensors that the first and the last layer have in common, in each variant."""
        if not self.is_tied:
            return ()
        every = [self.layers, *self.split.values()]
        return tuple(
            self.tie((0, len(layers) - 1), (layers[0], layers[-1]), place)
            for place, layers in enumerate(every)
        )

    def tie(
        self, places: tuple[int, int], ends: tuple[Layer, Layer], variant: int
    ) -> TiedLayers:
        """As much of two layers in a variant as either has."""
        least = min(ends, key=lambda layer: layer.numbers)
        return TiedLayers(
            layers=places,
            variant=variant,
            parameter_bytes=min(layer.parameters for layer in ends),
            gradient_bytes=min(layer.gradients for layer in ends),
            optimizer_bytes=min(layer.optimizer for layer in ends),
            num_numbers=least.numbers,
            optimizer_bytes_per_number=min(layer.optimizer_of_number for layer in ends),
        )

    def changed(self, change: Callable[[Layer], Layer], **fields: Any) -> Asked:
        """The same with other layers, in each variant, and other parts."""
        split = {one: list(map(change, mine)) for one, mine in self.split.items()}
        layers = list(map(change, self.layers))
        return replace(self, layers=layers, split=split, **fields)

    def drawn(self, dice: random.Random) -> Asked:
        """The same with exact seconds from inside their intervals, mostly ends."""

        def exact(layer: Layer) -> Layer:
            return replace(
                layer,
                **{
                    name: getattr(layer, name) * (1 + self.time_error * part(dice))
                    for name in SECONDS
                },
            )

        return self.changed(exact, time_error=0.0)


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
    return of_some_kind(asked(seed), dice, seed)


def of_some_kind(question: Asked, dice: random.Random, seed: int) -> Asked:
    """The same with divided state, shared cores or state on hosts, each or none."""
    if dice.random() < 1 / 2:
        question = divisible(question)
    if dice.random() < 1 / 3:
        question = crowded(question, dice)
    if dice.random() < 1 / 3:
        question = hosted(question, seed)
        if dice.random() < 1 / 2:
            question = offloading(question, dice)
    return question


def offloading(question: Asked, dice: random.Random) -> Asked:
    """The same with layers that can be offloaded, perhaps beyond what hosts hold.

    What they hold on the device meanwhile is at random, mostly less.
    """

    def away(found: Activation, *, again: bool) -> Activation:
        return replace(
            found,
            saved=dice.choice((0, 0, found.saved // 2)),
            keeps_input=found.keeps_input and dice.random() < 0.2,
            keeps_output=found.keeps_output and dice.random() < 0.2,
            backward=found.backward + dice.choice((0, 1)),
            on_host=dice.randint(0, 4) if again else found.saved + dice.randint(0, 4),
        )

    def both(layer: Layer) -> Layer:
        return replace(
            layer,
            away=away(layer.kept, again=False),
            again_away=away(layer.again, again=True),
        )

    every = sum(one.kept.saved + 4 for one in question.layers)
    more = dice.choice((every, 100 * every, 2**31)) * question.devices_per_node
    return question.changed(
        both,
        capacity_bytes=question.capacity_bytes // dice.choice((1, 2)),
        host_memory_bytes=(question.host_memory_bytes or 0) + more,
        link_to_host=faster(question.link_to_host, dice.choice((1, 30))),
    )


def split(question: Asked, seed: int) -> Asked:
    """The same with layers that tensor groups of 2, or of 2 and 4, can split.

    Rows of variants differ at random. Where what lies between layers is split as well
    it may be no worse than where it is not, or better here and worse there.
    """
    dice = random.Random(f"split {seed}")  # noqa: S311 - no secret
    found: dict[Variant, list[Layer]] = {}
    for degree in dice.choice(((2,), (2,), (2, 4))):
        pairs = {one: random_parts(one, dice) for one in question.layers}
        plain = [pairs[one] for one in question.layers]
        found[Variant(tensor_degree=degree)] = plain
        if dice.random() < 1 / 2:
            is_better = dice.random() < 1 / 2
            both = Variant(tensor_degree=degree, sequence_parallel=True)
            others = {
                one: lighter(mine, dice) if is_better else random_parts(one, dice)
                for one, mine in pairs.items()
            }
            found[both] = [others[one] for one in question.layers]
    return replace(question, split=found)


def random_parts(layer: Layer, dice: random.Random) -> Layer:
    """Part of a layer on a rank of a tensor group: some of its bytes and seconds."""

    def part_of(amount: int) -> int:
        return dice.randint(amount // 2, amount)

    def activation(found: Activation) -> Activation:
        amounts = ("saved", "forward", "backward", "held", "held_input")
        less: dict[str, Any] = {name: part_of(getattr(found, name)) for name in amounts}
        return replace(found, **less)

    def messages() -> Messages:
        return Messages(
            constant=dice.choice((0, 0, 1)),
            of_sample=dice.choice((0, 0, 1, 2)),
            latencies=dice.choice((0, 1, 2)),
        )

    state = ("parameters", "gradients", "optimizer", "optimizer_transient", "boundary")
    less: dict[str, Any] = {name: part_of(getattr(layer, name)) for name in state}
    less |= {name: getattr(layer, name) * dice.uniform(0.4, 1.0) for name in SECONDS}
    return replace(
        layer,
        **less,
        kept=activation(layer.kept),
        again=activation(layer.again),
        forward_messages=messages(),
        backward_messages=messages(),
        step_messages=replace(messages(), of_sample=0),
        held_messages=dice.choice((0, 0, 1, 3)),
    )


def lighter(layer: Layer, dice: random.Random) -> Layer:
    """The same with fewer activations, perhaps faster."""

    def activation(found: Activation) -> Activation:
        return replace(found, saved=dice.randint(0, found.saved), held=0)

    return replace(
        layer,
        boundary=dice.randint(0, layer.boundary),
        kept=activation(layer.kept),
        again=activation(layer.again),
        forward_s=layer.forward_s * dice.choice((0.5, 1.0)),
        held_messages=layer.held_messages + dice.choice((0, 0, 2)),
    )


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

    def longer(sent: Messages) -> Messages:
        sizes = by * sent.constant, by * sent.of_sample
        return replace(sent, constant=sizes[0], of_sample=sizes[1])

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
            forward_messages=longer(layer.forward_messages),
            backward_messages=longer(layer.backward_messages),
            step_messages=longer(layer.step_messages),
            held_messages=by * layer.held_messages,
            kept=larger(layer.kept),
            again=larger(layer.again),
            numbers=numbers,
            optimizer_of_number=of_number,
            transient_of_number=-(-transient // numbers) if numbers else 0,
        )

    return question.changed(
        divided,
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

    def timed(layer: Layer) -> Layer:
        return replace(layer, host_step_s=float(dice.randint(0, 4)))

    return replace(
        question.changed(timed),
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
