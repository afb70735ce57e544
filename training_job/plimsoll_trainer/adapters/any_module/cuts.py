"""Where a graph is cut into layers.

In: lives of values. Out: positions. The work of a graph is done by few of its operators
(`weight_of`); between each two of these the place is a candidate where the fewest bytes
are alive, and of equal ones one in front of views, then one where a member of a list of
modules ends, then the last.
Then what lies inside of a block is left out: a candidate with more bytes than others on
both sides, not far away. Both limits are chosen so that blocks of transformers, ResNets
and U-Nets come out as people would cut them: a heuristic, which costs balance at worst,
never correctness.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from torch import Tensor, fx

from plimsoll_trainer.adapters.any_module.crossings import Alive, allowed
from plimsoll_trainer.torch_internals.graphs import aten

PRODUCTS = {
    aten.matmul.default,
    aten.bmm.default,
    aten.mm.default,
    aten.baddbmm.default,
    aten.addmm.default,
    aten.einsum.default,
    aten.scaled_dot_product_attention.default,
}
FEW, MUCH_HIGHER = 12, 1.75
"""Within so many operators with work, a candidate of so many times the bytes of others
on both sides is left out: inside of attention and between two matrices it is twice."""
SMALL_SHARE, MANY, HIGHER = 1 / 8, 24, 1.2
"""Within such a share of all work, and so many operators on each side, likewise:
inside of a bottleneck it is 1.25 times, while what a U-Net carries around half of its
work is far from both of its ends."""


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A place for a cut."""

    position: int
    alive: Mapping[fx.Node, int]
    """Bytes of each value there, for the samples of the example."""
    work: float = 0.0
    """Done in front of it, as a share of all."""

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.alive.values())


def cuts_of(alive: Alive) -> list[Candidate]:
    """Cuts in order."""
    return without_peaks(candidates(alive))


def candidates(alive: Alive) -> list[Candidate]:
    """The best place between each two operators with work."""
    order = alive.flow.order
    works = [work_of(alive, node) for node in order]
    total = sum(works) or 1.0
    done = [each / total for each in accumulate(works)]
    heavy = [at for at, work in enumerate(works) if work]
    best: dict[int, tuple[tuple[int, bool, bool, int], Candidate]] = {}
    for at, living in places(alive):
        between = bisect_left(heavy, at + 1)
        if not 0 < between < len(heavy):
            continue
        cost = sum(living.values())
        is_inside = not ends_member(order[at], order[at + 1])
        rank = (cost, alive.flow.is_view(order[at]), is_inside, -at)
        if between not in best or rank < best[between][0]:
            best[between] = (rank, Candidate(at, living, done[at]))
    return [best[between][1] for between in sorted(best)]


def places(alive: Alive) -> Iterator[tuple[int, dict[fx.Node, int]]]:
    """Yield each place where a cut is possible, and the bytes that are alive there."""
    positions = set(allowed(alive))
    for at, living in enumerate(alive.swept()):
        if at in positions and any(alive.can_pass(one, living) for one in living):
            yield at, {one: alive.nbytes(one) for one in living}


def work_of(alive: Alive, node: fx.Node) -> float:
    """Work of an operator, about: multiplications; 0 of one that is cheap."""
    value = node.meta.get("val")
    if node in alive.flow.weights or not isinstance(value, Tensor):
        return 0.0
    numbers = alive.nbytes(node) / value.element_size()
    given = [one for one in node.all_input_nodes if shape_of(one)]
    if node.target in PRODUCTS:
        inner = shape_of(given[0])[-1] if given else 1
        return numbers * alive.number(inner)
    owned = alive.flow.capture.owned
    matrices = [one for one in given if one in owned and len(shape_of(one)) > 1]
    if not matrices:
        return 0.0
    if node.target is aten.embedding.default:
        return numbers
    rows, *rest = matrices[0].meta["val"].shape
    return float(numbers * prod(rest)) if rows else 0.0


def shape_of(node: fx.Node) -> Sequence[object]:
    """Shape of a value; empty, if it is no tensor."""
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def ends_member(node: fx.Node, behind: fx.Node) -> bool:
    """Whether a member of a list of modules ends or begins between two operators."""
    return member_of(node) != member_of(behind)


def member_of(node: fx.Node) -> str:
    """Path of the innermost member of a list that an operator is in; or empty."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    paths = [str(path) for path, _ in stack.values()]
    names = paths[-1].split(".") if paths else []
    numbers = [at for at, name in enumerate(names) if name.isdecimal()]
    return ".".join(names[: numbers[-1] + 1]) if numbers else ""


def without_peaks(found: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that no others with fewer bytes lie around, close by."""
    return [
        one
        for at, one in enumerate(found)
        if not (
            is_peak(found, at, MUCH_HIGHER, FEW, 1.0)
            or is_peak(found, at, HIGHER, MANY, SMALL_SHARE)
        )
    ]


def is_peak(
    found: Sequence[Candidate], at: int, times: float, few: int, share: float
) -> bool:
    """Whether there are lower candidates on both sides, within both limits.

    What goes by on both sides, such as the output of an encoder, does not count.
    """
    here = found[at]
    sides = (range(at - 1, at - few, -1), range(at + 1, at + few))
    before, behind = (
        [
            found[i]
            for i in side
            if 0 <= i < len(found)
            and found[i].nbytes < here.nbytes
            and abs(found[i].work - here.work) <= share
        ]
        for side in sides
    )
    for one in before:
        for other in behind:
            if other.work - one.work > share:
                break
            past = sum(one.alive[node] for node in one.alive.keys() & other.alive)
            limit = (here.nbytes - past) / times
            if max(one.nbytes, other.nbytes) - past <= limit:
                return True
    return False
