"""Numbers of a small problem for one bound, as the enumerator reads them.

In: a problem, a bound of its bytes and one of its seconds. Out: amounts by layer. The
base of `enumerated_time` and `enumerator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import ByteColumns, MessageColumns
from plimsoll_planner.records.model_profile import TiedLayers
from plimsoll_planner.records.problem import Problem
from tests.support.enumerated_carried import Carried, values_of


@dataclass(frozen=True, order=True)
class Mesh:
    """One tuple: G, offer, P, D, b, M (0 where the batch does not divide) and T."""

    gpus: int
    offer: int
    stages: int
    replicas: int
    samples: int
    count: int
    tensor: int = 1
    is_sequence: bool = False
    """Activations between layers are split as well."""

    @property
    def width(self) -> int:
        """Ranks that hold a stage: D * T."""
        return self.replicas * self.tensor

    def rank(self, stage: int, replica: int) -> int:
        """First rank of the group that is a replica of a stage."""
        return (stage * self.replicas + replica) * self.tensor


class Costs:
    """Numbers of one problem, for one bound of bytes and seconds."""

    def __init__(self, problem: Problem, which: str, seconds: str = "") -> None:
        """Take a bound: lower, expected or upper; of the seconds, if another."""
        self.problem, self.which = problem, which
        self.which_s = seconds or which
        self.costs = problem.profile.costs
        self.kinds = problem.profile.layers.kind
        self.size = len(self.kinds)
        places = zip(self.costs.kind, self.costs.variant, strict=True)
        self._rows = {place: row for row, place in enumerate(places)}
        self._variants = {
            (one.tensor_degree, one.sequence_parallel): place
            for place, one in enumerate(problem.profile.variants)
        }
        self._lines: dict[tuple[int, int, int], ByteInterval] = {}

    def row(self, mesh: Mesh, layer: int) -> int:
        """Row of a layer as a rank of the mesh has it."""
        variant = self._variants[mesh.tensor, mesh.is_sequence]
        return self._rows[self.kinds[layer], variant]

    def amount(
        self, mesh: Mesh, columns: ByteColumns, layer: int, which: str = ""
    ) -> int:
        """Read one line of bytes, each point of it once."""
        row = self.row(mesh, layer)
        place = id(columns), row, mesh.samples  # the costs live as long as this
        found = self._lines.get(place)
        if found is None:
            found = self._lines[place] = columns.at(row, mesh.samples)
        return int(getattr(found, f"{which or self.which}_bytes"))

    @lru_cache(maxsize=2**10)  # noqa: B019 - of few micro-batches
    def values_at(self, samples: int, which: str) -> list[Carried]:
        """Carried values of so many samples."""
        return values_of(self.problem.profile, which, samples)

    def values(self, mesh: Mesh) -> list[Carried]:
        """Carried values of a micro-batch."""
        return self.values_at(mesh.samples, self.which)

    def pass_s(self, mesh: Mesh, name: str, layer: int) -> float:
        """Read one line of seconds; messages of the tensor group are on top."""
        found = getattr(self.costs, name).at(self.row(mesh, layer), mesh.samples)
        repeated = {"recompute": "forward"}.get(name, name)
        own_s = float(getattr(found, f"{self.which_s}_s"))
        return own_s + self.messages_s(mesh, repeated, layer)

    def messages_s(self, mesh: Mesh, name: str, layer: int) -> float:
        """Seconds of a tensor group's messages: of a pass, or of the end of a step."""
        columns: MessageColumns | None = getattr(self.costs, f"{name}_messages")
        link = self.problem.offers[mesh.offer].link_in_node
        if columns is None or link is None or mesh.tensor == 1:
            return 0.0
        row = self.row(mesh, layer)
        sent = (
            columns.bytes_per_sample[row] * mesh.samples + columns.constant_bytes[row]
        )
        waits = columns.num_latencies[row] * link.latency_s
        return waits + sent / link.bandwidth_bytes_per_s

    def step_s(self, mesh: Mesh, layer: int) -> float:
        """Read the seconds of an optimizer step."""
        assert self.costs.optimizer_step_s is not None
        return self.costs.optimizer_step_s[self.row(mesh, layer)]

    def host_step_s(self, mesh: Mesh, layer: int) -> float:
        """Read the seconds of an optimizer step on the host."""
        assert self.costs.host_step_s is not None
        return self.costs.host_step_s[self.row(mesh, layer)]

    def column(self, mesh: Mesh, name: str, layer: int) -> int:
        """Read one column of bytes."""
        return int(getattr(self.costs, name)[self.row(mesh, layer)])

    def ties(self, mesh: Mesh) -> list[TiedLayers]:
        """Layers that share state on a rank of the mesh."""
        variants = self.problem.profile.variants
        return [
            tie
            for tie in self.problem.profile.tied
            if variants[tie.variant].tensor_degree == mesh.tensor
            and variants[tie.variant].sequence_parallel == mesh.is_sequence
        ]
