"""Numbers of a small problem for one bound, as the enumerator reads them.

In: a problem, a bound of its bytes and one of its seconds. Out: amounts by layer. The
base of `enumerated_time` and `enumerator`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.problem import Problem


@dataclass(frozen=True, order=True)
class Mesh:
    """One tuple: G, offer, P, D, b and M (0 where the batch does not divide)."""

    gpus: int
    offer: int
    stages: int
    replicas: int
    samples: int
    count: int


class Costs:
    """Numbers of one problem, for one bound of bytes and seconds."""

    def __init__(self, problem: Problem, which: str, seconds: str = "") -> None:
        """Take a bound: lower, expected or upper; of the seconds, if another."""
        self.problem, self.which = problem, which
        self.which_s = seconds or which
        self.costs = problem.profile.costs
        self.kinds = problem.profile.layers.kind
        self.size = len(self.kinds)

    def amount(self, columns: object, layer: int, samples: int, which: str = "") -> int:
        """Read one line of bytes."""
        row = self.costs.kind.index(self.kinds[layer])
        found = columns.at(row, samples)  # type: ignore[attr-defined]
        return int(getattr(found, f"{which or self.which}_bytes"))

    def pass_s(self, name: str, layer: int, samples: int) -> float:
        """Read one line of seconds."""
        row = self.costs.kind.index(self.kinds[layer])
        found = getattr(self.costs, name).at(row, samples)
        return float(getattr(found, f"{self.which_s}_s"))

    def step_s(self, layer: int) -> float:
        """Read the seconds of an optimizer step."""
        assert self.costs.optimizer_step_s is not None
        return self.costs.optimizer_step_s[self.costs.kind.index(self.kinds[layer])]

    def host_step_s(self, layer: int) -> float:
        """Read the seconds of an optimizer step on the host."""
        assert self.costs.host_step_s is not None
        return self.costs.host_step_s[self.costs.kind.index(self.kinds[layer])]

    def column(self, name: str, layer: int) -> int:
        """Read one column of bytes."""
        return int(getattr(self.costs, name)[self.costs.kind.index(self.kinds[layer])])
