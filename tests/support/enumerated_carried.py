"""What one stage holds, event by event, if layers carry values past their neighbours.

In: a profile, a bound, b, a stage, its recomputed layers, k, M. Out: the most bytes of
a forward and of a backward pass. Written from the rules of the engine alone (torch
2.15, docs/decisions/0038), for every micro-batch of a step in the order of 1F1B: a
ledger has an entry for each tensor that lives between two events, and every event adds
its transient. Slow and plain on purpose; state, ties and replicas are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from plimsoll_planner.records.layer_costs import ActivationColumns, ByteColumns
from plimsoll_planner.records.model_profile import ModelProfile

Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Carried:
    """One carried value."""

    giver: int
    takers: tuple[int, ...]
    num_bytes: int
    has_gradient: bool

    def crosses(self, cut: int) -> bool:
        """Whether it crosses the cut in front of a layer."""
        return self.giver < cut <= self.takers[-1]


@dataclass(frozen=True)
class Held:
    """Gradients of carried values during the backward pass of one layer."""

    layer: int
    others: int
    own: int
    """Of what the layer itself gives, which were received: its probe counts them."""


@dataclass
class Ledger:
    """Bytes that are alive, by what they are; and the most there were, by pass."""

    alive: dict[Key, int] = field(default_factory=dict[Key, int])
    most: dict[str, int] = field(default_factory=lambda: {"F": 0, "B": 0})

    def hold(self, key: Key, num_bytes: int) -> None:
        """Note a tensor that stays; nothing is there twice."""
        assert key not in self.alive
        self.alive[key] = num_bytes

    def free(self, *keys: Key) -> None:
        """Let go of what may be there."""
        for key in keys:
            self.alive.pop(key, None)

    def event(self, kind: str, transient: int) -> None:
        """Note that so much is needed on top for a moment."""
        total = sum(self.alive.values()) + transient
        self.most[kind] = max(self.most[kind], total)


class Stage:
    """One stage of a profile at work, for a bound of its bytes."""

    def __init__(
        self,
        profile: ModelProfile,
        which: str,
        samples: int,
        run: tuple[int, int],
        again: Set[int],
    ) -> None:
        """Take the layers from run[0] up to run[1]; `again` are recomputed."""
        self.profile, self.which, self.samples = profile, which, samples
        self.run, self.again = run, again
        self.size = len(profile.layers.name)
        self.values = values_of(profile, which, samples)
        self.is_first, self.is_last = run[0] == 0, run[1] == self.size

    # What a layer costs.

    def amount(self, columns: ByteColumns | None, layer: int) -> int:
        """Bytes of one layer."""
        if columns is None:
            return 0
        row = self.profile.layers.kind[layer]
        found = columns.at(row, self.samples)
        return int(getattr(found, f"{self.which}_bytes"))

    def way(self, layer: int) -> ActivationColumns:
        """Activations of one layer."""
        costs = self.profile.costs
        return costs.recomputed if layer in self.again else costs.kept

    def of(self, layer: int, name: str) -> int:
        """Bytes of one layer in its way."""
        return self.amount(getattr(self.way(layer), name), layer)

    def keeps(self, layer: int, name: str) -> bool:
        """Whether a layer in its way keeps its input, or its output."""
        row = self.profile.layers.kind[layer]
        return bool(getattr(self.way(layer), name)[row])

    def passed(self, layer: int) -> int:
        """Bytes that a layer passes on."""
        return self.amount(self.profile.costs.boundary, layer)

    def stays(self, layer: int) -> bool:
        """Whether what a layer passes on lives on behind its forward pass."""
        if self.keeps(layer, "keeps_output"):
            return True
        return layer + 1 < self.run[1] and self.keeps(layer + 1, "keeps_input")

    # A step.

    def step(self, in_flight: int, num_micro_batches: int) -> Ledger:
        """The ledger of all passes: as many forward first as are in flight."""
        ledger = Ledger()
        for micro_batch in range(in_flight):
            self.forward(ledger, micro_batch, is_warm_up=True)
            if micro_batch < in_flight - 1 and self.which == "expected":
                # The send of the warm-up holds the output till the next one is made.
                self.send(ledger, micro_batch)
        for micro_batch in range(num_micro_batches):
            self.exchange(ledger, micro_batch)
            self.backward(ledger, micro_batch)
            if micro_batch + in_flight < num_micro_batches:
                self.forward(ledger, micro_batch + in_flight, is_warm_up=False)
        return ledger

    def send(self, ledger: Ledger, micro_batch: int) -> None:
        """An output goes on its way; it may be held as an activation as well.

        A received value that goes on is the very tensor, and a given one is held.
        """
        if not self.is_last:
            ledger.hold(("unsent", micro_batch), self.passed(self.run[1] - 1))

    def receive(self, ledger: Ledger, micro_batch: int) -> None:
        """What comes from the stage in front, or is in its place."""
        first = self.run[0]
        if self.is_first:
            return
        ledger.hold(("received", micro_batch), self.passed(first - 1))
        for place, value in enumerate(self.values):
            if value.crosses(first):
                ledger.hold(("received", micro_batch, place), value.num_bytes)

    def forward(self, ledger: Ledger, micro_batch: int, *, is_warm_up: bool) -> None:
        """One forward pass, layer by layer."""
        self.receive(ledger, micro_batch)
        u_out = 0 if self.is_last else self.passed(self.run[1] - 1)
        both = u_out if self.which == "upper" else 0
        for layer in range(*self.run):
            before: Key = ("passed", micro_batch, layer - 1)
            inside = layer > self.run[0]
            if inside:
                ledger.hold(before, self.passed(layer - 1))
            ledger.event("F", both + self.of(layer, "forward_transient"))
            if inside and not self.stays(layer - 1):
                ledger.free(before)
            ledger.hold(("saved", micro_batch, layer), self.of(layer, "saved"))
            for place, value in enumerate(self.values):
                if value.giver == layer:
                    ledger.hold(("given", micro_batch, place), value.num_bytes)
        last = self.run[1] - 1
        if not self.is_last and self.keeps(last, "keeps_output"):
            ledger.hold(("passed", micro_batch, last), u_out)
        if is_warm_up:
            ledger.free(("unsent", micro_batch - 1))

    def exchange(self, ledger: Ledger, micro_batch: int) -> None:
        """The newest output is sent while gradients of the oldest one are received."""
        if self.is_last:
            return
        last = self.run[1] - 1
        trained = last >= self.profile.num_untrained
        gradients = self.passed(last) * trained
        gradients += sum(
            value.num_bytes
            for value in self.values
            if value.crosses(last + 1) and value.has_gradient
        )
        output = 0 if self.keeps(last, "keeps_output") else self.passed(last)
        # Past the last forward pass nothing is sent, and less is in flight.
        ledger.event("F", output + gradients)
        ledger.hold(("gradient", micro_batch), self.passed(last) * trained)
        for place, value in enumerate(self.values):
            if value.crosses(last + 1) and value.has_gradient:
                ledger.hold(("gradient", micro_batch, place), value.num_bytes)

    def backward(self, ledger: Ledger, micro_batch: int) -> None:
        """One backward pass, from the last layer to the first."""
        for layer in reversed(range(*self.run)):
            ledger.free(("saved", micro_batch, layer))
            ledger.free(("passed", micro_batch, layer))
            for place, value in enumerate(self.values):
                if value.giver == layer:
                    ledger.free(("given", micro_batch, place))
                    ledger.free(("made", micro_batch, place))
            ledger.event("B", self.turned(micro_batch, layer, ledger))
            for place, value in enumerate(self.values):
                if value.giver == layer and self.which == "lower":
                    # It may be what comes to the layer in front from now on.
                    ledger.free(("gradient", micro_batch, place))
                if layer not in value.takers or not value.has_gradient:
                    continue
                # It is added to what was received, or to what others have made.
                here = ("made", micro_batch, place), ("gradient", micro_batch, place)
                if not any(key in ledger.alive for key in here):
                    ledger.hold(here[0], value.num_bytes)
        self.end(ledger, micro_batch)

    def turned(self, micro_batch: int, layer: int, ledger: Ledger) -> int:
        """Transient of a layer's backward pass, above what the ledger has.

        A probe of the layer has counted gradients of all that the layer gives out,
        until they are used. The engine holds those that were received for longer, and
        the ledger has them.
        """
        is_last = layer == self.run[1] - 1
        own = [
            ledger.alive.get(("gradient", micro_batch, place), 0)
            for place, value in enumerate(self.values)
            if value.giver == layer
        ]
        inside = self.of(layer, "backward_transient")
        at_end = max(inside, self.of(layer, "backward_transient_at_end"))
        if is_last:
            passed = ledger.alive.get(("gradient", micro_batch), 0)
            turned = at_end - sum(own) - passed
        elif self.which == "lower":
            turned = inside - sum(own)
        else:
            turned = min(inside + sum(own), at_end) if sum(own) else inside
            turned -= sum(own)
        is_outlived = layer == self.run[0] or self.keeps(layer - 1, "keeps_output")
        return turned + (self.of(layer, "held_input") if is_outlived else 0)

    def end(self, ledger: Ledger, micro_batch: int) -> None:
        """Received gradients are let go, and those for the stage in front are sent."""
        first = self.run[0]
        back = [
            value
            for value in self.values
            if value.has_gradient and value.crosses(first) and not self.is_first
        ]
        sent = sum(value.num_bytes for value in back)
        for place in range(len(self.values)):
            ledger.free(("made", micro_batch, place))
        if first > self.profile.num_untrained:
            sent += self.passed(first - 1)
        if sum(value.num_bytes for value in back) and self.which != "lower":
            ledger.event("B", sent)
        ledger.free(("sent", micro_batch - 1), ("received", micro_batch))
        ledger.free(("gradient", micro_batch))
        for place in range(len(self.values)):
            ledger.free(("received", micro_batch, place))
            ledger.free(("gradient", micro_batch, place))
        ledger.hold(("sent", micro_batch), sent)


def gradients_held(
    values: list[Carried], run: tuple[int, int], which: str
) -> list[Held]:
    """Gradients that live during each layer's backward pass, last layer first.

    Walked from the last layer: what is received stays, and takers add to it; what they
    make otherwise lives till the giver has it. Lower bytes do not count what is
    received once the giver is done: it may be what comes to the layer in front.
    """
    received = [
        value for value in values if value.crosses(run[1]) and value.has_gradient
    ]
    made: list[Carried] = []
    found: list[Held] = []
    for layer in reversed(range(*run)):
        made = [value for value in made if value.giver != layer]
        if which == "lower":
            received = [value for value in received if value.giver <= layer]
        own = sum(value.num_bytes for value in received if value.giver == layer)
        every = sum(value.num_bytes for value in (*received, *made))
        found.append(Held(layer=layer, others=every - own, own=own))
        made += [
            value
            for value in values
            if layer in value.takers
            and value.has_gradient
            and value not in (*made, *received)
        ]
    return found


def crossing(values: list[Carried], cut: int, *, gradients: bool = False) -> int:
    """Bytes that cross a cut, or those of them that come back as gradients."""
    return sum(
        value.num_bytes
        for value in values
        if value.crosses(cut) and (value.has_gradient or not gradients)
    )


def end_of_pass(values: list[Carried], run: tuple[int, int], which: str) -> int:
    """Gradients of carried values at the end of a backward pass, if any go on.

    Lower bytes have no such moment.
    """
    sent = crossing(values, run[0], gradients=True)
    if which == "lower" or not sent:
        return 0
    return sent + crossing(values, run[1], gradients=True)


def values_of(profile: ModelProfile, which: str, samples: int) -> list[Carried]:
    """Carried values of a profile, for a bound of their bytes."""
    carried = profile.carried
    return [
        Carried(
            giver=carried.source[row],
            takers=carried.takers[row],
            num_bytes=int(
                getattr(carried.value.at(row, samples), f"{which}_bytes"),
            ),
            has_gradient=carried.needs_gradient[row],
        )
        for row in range(len(carried.name))
    ]


def stage_runs(size: int) -> Iterator[tuple[int, int]]:
    """Yield every stage that a chain of so many layers could have."""
    for first in range(size):
        for end in range(first + 1, size + 1):
            yield first, end
