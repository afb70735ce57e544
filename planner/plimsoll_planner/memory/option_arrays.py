"""All runs of layers with all useful choices of what recomputes, as arrays.

In: a chain's bytes and what recomputing each layer costs in seconds. Out:
`OptionArrays`, for every run [A, B) the choices that no other choice beats. Called by
`stage_peaks`, whose queries (least peak, least seconds under a capacity) read them for
all runs at once.

A choice of a run is summed up by an option (S, Q, T, N), letters as in `rank_peak`:

    S   what one micro-batch in flight holds, without the received input
    Q   peak of forward, exchange and backward above what the stage starts from
    T   seconds added to the backward pass     N   how many layers recompute

Its peak is start + (k-1) S + Q, so an option that is nowhere larger than another one
replaces it, whatever k is. Options are built from the right: with layer a in front,

    S' = s_a + w_a + S
    Q' = max(ft_a + u_out, bt_a + u_out, s_a + w_a + Q, s_a + u_a + ft_{a+1} + u_out)

and for the run that is one layer Q = max(ft_a + u_out, et_a, exchange). The last term
of Q' is the forward pass of the layer that was first before: its input u_a is alive
while it runs, whether or not it stays. That and w_a depend on the choice of the first
layer, so only options with the same first choice are compared.

What the received input adds to backward (ht in `rank_peak`) depends on the run and the
choice of its first layer alone. So it is added to Q at the end, and while options are
built only where a layer in front keeps its output.

Runs of equal layers. Let a, a+1 be alike, a kept and a+1 recomputed. Swapping the two
choices keeps T and N, and S where the boundaries' fate does not depend on the choice
(`swappable`). Q does not grow: with p what is alive before layer a, U its input, W the
part of it that stays, v the boundary between the two (letters of the unswapped order on
the right, each of which is a term of Q before the swap), and e either bt, where layers
follow, or et, where a+1 is the last:

    forward of a      p + U + ft_R            <= p + W + s_K + u + ft_R
                                                 if U <= W + s_K + u
    backward of a     p + W + bt_R [+ ht_R] + u_out
                                              <= p + W + s_K + v + e_R [+ u_out]
                                                 if bt_R + ht_R + u <= s_K + v + e_R
    forward of a+1    p + W + s_R + u + ft_K  <= p + W + s_K + u + ft_R
                                                 if s_R + ft_K <= s_K + ft_R
                      or                      <= p + W + s_K + v + e_R
                                                 if s_R + 2u + ft_K <= s_K + v + e_R
    backward of a+1   p + W + s_R + v + e_K [+ ht_K]
                                              <= p + W + s_K + v + e_R
                                                 if s_R + e_K [+ ht_K] <= s_K + e_R

(with ht_K where a keeps its output when it recomputes; the last layer's u_out, not sent
yet in forward, is u) and the layers behind see the same sums. So where these hold, some
best choice lets the first layers of a run recompute, and an option "kept, then
recomputed" is never built.

Where a layer keeps its input only if it is kept, as with offloading, let a, a+1 be
alike again, a kept and a+1 not, neither they nor the layer in front keep outputs, and u
equal U. Then S does not change if a layer stands in front of a: U stays before the
swap, and u after it. Nor does Q grow:

    forward of a      p + U + ft_R            <= p + U + s_K + u + ft_R
    backward of a     p + bt_R + u_out        <= p + U + s_K + e_R [+ u_out]
                                                 if bt_R <= s_K + e_R
    forward of a+1    p + s_R + u + ft_K      <= p + U + s_K + u + ft_R
                                                 if s_R + ft_K <= u + s_K + ft_R
    backward of a+1   p + s_R + u + e_K       <= p + U + s_K + e_R
                                                 if s_R + e_K <= s_K + e_R

Where values are carried, s counts those that a layer gives, u those that a stage sends
or receives as it is in `rank_peak`, and backward peaks the gradients that are alive
(`carried_bytes`). These depend on the layer and on B, whatever recomputes, so the swaps
hold for layers that give nothing, if no more is alive before a than before a+1. The
end of the backward pass depends on A and B alone; it is added last.

At the front of a stage the received input is there anyway, so "kept, then not" may be
better there. Such an option is built and stays, but nothing is put in front of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, RECOMPUTED, ChainBytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.ladders import Ladders, quickest_first
from plimsoll_planner.memory.pareto import groups_of
from plimsoll_planner.memory.pruning import (
    crowded_options,
    least_memory,
    thinned,
    undominated,
)
from plimsoll_planner.memory.run_options import (
    Ground,
    Options,
    ended,
    extended,
    ground,
    joined,
    outlived,
    single,
)

MOST_OPTIONS = ((20, 160), (128, 64))
"""For each run and first choice, where a stage may begin with so many layers."""
FEWEST_OPTIONS = 32
"""At least so many there; chosen so that arrays and time stay within bounds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OptionArrays:
    """Arrays over the options, of one run after the other: by A, then B.

    A counts the layers that a stage may begin with, N of them; B goes to N inclusive.
    """

    saved: Ints
    """S."""
    peak: Ints
    """Q."""
    seconds: Floats
    """T."""
    num_recomputed: NDArray[np.int32]
    """N."""
    node: NDArray[np.int32]
    """Place in `way` and `behind`."""
    way: NDArray[np.int8]
    """[node]: way of the first layer."""
    behind: NDArray[np.int32]
    """[node]: node of the layers behind the first one."""
    bounds: Ints
    """[A]: the first layer of a run; L comes last."""
    begin: Ints
    """[A, B]: place of the first option of a run."""
    count: Ints
    """[A, B]: how many it has."""
    pruned: Flags
    """[A, B]: whether options of the run were left out; see `pruning`."""

    def of(self, first: int, end: int) -> slice:
        """Places of the options of the run [first, end)."""
        begin = int(self.begin[first, end])
        return slice(begin, begin + int(self.count[first, end]))

    def of_runs(self, runs: tuple[Ints, ...]) -> tuple[Ints, Ints, Ints]:
        """Options of some runs, each an A and a B, that have any.

        Returns:
            Their places; the run of each one; the number of the first one of each run.
        """
        count = self.count[runs]
        begins = np.cumsum(count) - count
        run = np.repeat(np.arange(len(count)), count)
        return (self.begin[runs] - begins)[run] + np.arange(len(run)), run, begins

    @cached_property
    def runs(self) -> tuple[Ints, ...]:
        """Runs that have options, each an A and a B."""
        return np.nonzero(self.count)

    def least(self, values: NDArray[Any], unused: float) -> NDArray[Any]:
        """[A, B]: least value of the options of each run."""
        found = np.full(self.count.shape, unused, dtype=values.dtype)
        found[self.runs] = np.minimum.reduceat(values, self.begin[self.runs])
        return found

    @cached_property
    def least_saved(self) -> Ints:
        """[A, B]: least S of any option; 0 where there is none."""
        return self.least(self.saved, 0)

    @cached_property
    def least_peak(self) -> Ints:
        """[A, B]: least Q of any option; `LARGEST_BYTES` where there is none."""
        return self.least(self.peak, LARGEST_BYTES)

    @property
    def run(self) -> Ints:
        """[option]: place of its run in `runs`."""
        return np.repeat(np.arange(len(self.runs[0])), self.count[self.runs])

    @cached_property
    def fastest(self) -> tuple[Ints, Ints, Floats]:
        """[A, B]: S, Q and T of the first option of the least T."""
        least_s = self.least(self.seconds, np.inf)
        least = np.flatnonzero(self.seconds == least_s[self.runs][self.run])
        places = least[groups_of(self.run[least])[0]]
        saved = np.zeros_like(self.least_saved)
        peak = np.full_like(self.least_peak, LARGEST_BYTES)
        saved[self.runs], peak[self.runs] = self.saved[places], self.peak[places]
        return saved, peak, least_s

    @cached_property
    def _ladders(self) -> Ladders:
        """Those that were asked for lately."""
        columns = self.saved, self.peak, self.seconds
        return Ladders(quickest_first(self.run, *columns))

    def seconds_within(self, in_flight: int, runs: Ints, room: Ints) -> Floats:
        """Least T of some of `runs` with so many in flight within a room each.

        It is infinite where nothing fits.
        """
        return self._ladders.once(in_flight).seconds_within(runs, room)

    @property
    def num_bytes(self) -> int:
        """Room that all of it takes."""
        arrays = self.saved, self.peak, self.seconds, self.num_recomputed, self.node
        nodes = self.way.nbytes + self.behind.nbytes
        ladders = self._ladders.num_bytes if "_ladders" in self.__dict__ else 0
        return sum(each.nbytes for each in arrays) + nodes + ladders

    def recomputed(self, first: int, end: int, place: int) -> tuple[int, ...]:
        """Layers that recompute in one option of the run [first, end)."""
        node = int(self.node[self.of(first, end)][place])
        layers: list[int] = []
        for layer in range(int(self.bounds[first]), int(self.bounds[end])):
            if self.way[node] == RECOMPUTED:
                layers.append(layer)
            node = int(self.behind[node])
        return tuple(layers)


def most_options(num_starts: int) -> int:
    """Options that a run and first choice may have."""
    fitting = (most for size, most in MOST_OPTIONS if num_starts <= size)
    return next(fitting, FEWEST_OPTIONS)


def build_options(
    chain: ChainBytes,
    holdings: HoldingFactors,
    recompute_s: Floats | None,
    *,
    starts: Ints | None = None,
    is_lower: bool = False,
    at_any_speed: bool = False,
    most: int | None = None,
) -> OptionArrays:
    """Options of every run.

    For each layer from the last on: [1] the run that is the layer alone, and the layer
    in front of all runs behind it; [2] of these the options that no other one beats;
    [3] fewer where there are too many.

    Args:
        chain: the bytes.
        holdings: what the engine holds.
        recompute_s: seconds that recomputing adds, by layer; None: `at_any_speed`.
        starts: the layers that a stage may begin with, 0 first; None: all.
        is_lower: the options serve to prove that something fails; see `pruning`.
        at_any_speed: only the least memory is asked, which needs far fewer options.
        most: options for each run and first choice; None: `most_options`, and as many
            as runs of equal layers need if a stage may begin with any layer.
    """
    if starts is None:
        starts = np.arange(chain.num_layers)
    at_any_speed = at_any_speed or recompute_s is None
    on = ground(chain, holdings, recompute_s, starts)
    limit = most_options(len(starts)) if most is None else most
    spares = most is None and len(starts) == chain.num_layers
    pruned = np.zeros(len(on.ends), dtype=np.bool_)
    rows: list[Row] = []
    num_nodes = 0
    for layer in range(chain.num_layers - 1, -1, -1):
        # [1] runs
        parts = [single(on, layer)]
        if rows:
            behind = rows[-1].options
            parts += extended(on, layer, behind, num_nodes - len(behind.end))
        options = joined(parts)
        # [2] best
        by: NDArray[Any] = options.saved if at_any_speed else options.seconds
        places = least_memory(options) if at_any_speed else undominated(options, pruned)
        # [3] fewer
        length = on.ends - layer if spares else np.zeros_like(on.ends)
        ends = options.end[places]
        crowded = crowded_options(options.group[places], ends, pruned, limit, length)
        if crowded.any():
            pruned = pruned.copy()
            pruned[ends[crowded]] = True
            options = thinned(options, places, by, crowded, limit, merge=is_lower)
        else:
            options = options.at(places)
        rows.append(Row(layer=layer, options=options, pruned=pruned))
        num_nodes += len(options.end)
    return gathered(rows, on)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Row:
    """The options of all runs that begin at one layer."""

    layer: int
    options: Options
    """Sorted by run, first choice and seconds."""
    pruned: Flags
    """[B]"""


def received(on: Ground, row: Row) -> Options:
    """Options of a row with what the engine holds in front of its stages."""
    peak = np.maximum(row.options.peak, outlived(on, row.layer, row.options))
    peak = np.maximum(peak, ended(on, row.layer)[row.options.end])
    return replace(row.options, peak=peak)


def gathered(rows: list[Row], on: Ground) -> OptionArrays:
    """Options as arrays; rows come from the last layer on.

    [1] Rows of the layers that a stage may begin with, from the first on, each with the
    number of its first node. [2] Their options in one list, by A, B and the place among
    those of the run. [3] The place of each run in it.
    """
    place_of = {int(layer): place for place, layer in enumerate(on.ends[:-1])}
    sizes = [len(row.options.end) for row in rows]
    first_nodes = np.cumsum([0, *sizes])
    # [1] rows
    kept = [
        (place_of[row.layer], row, int(node))
        for row, node in zip(rows, first_nodes, strict=False)
        if row.layer in place_of
    ][::-1]
    # [2] one list
    options = joined([received(on, row) for _, row, _ in kept])
    start = np.repeat([a for a, _, _ in kept], [len(r.options.end) for _, r, _ in kept])
    node = np.concatenate([n + np.arange(len(r.options.end)) for _, r, n in kept])
    # [3] places
    shape = len(kept), len(on.ends)
    run = start * len(on.ends) + options.end
    count = np.bincount(run, minlength=shape[0] * shape[1])
    pruned = np.zeros(shape, dtype=np.bool_)
    for first, row, _ in kept:
        pruned[first] = row.pruned & (on.ends > row.layer)
    return OptionArrays(
        saved=options.saved,
        peak=options.peak,
        seconds=options.seconds,
        num_recomputed=options.num_recomputed.astype(np.int32),
        node=node.astype(np.int32),
        way=np.concatenate([row.options.first for row in rows]).astype(np.int8),
        behind=np.concatenate([row.options.behind for row in rows]).astype(np.int32),
        bounds=on.ends,
        begin=(np.cumsum(count) - count).reshape(shape),
        count=count.reshape(shape),
        pruned=pruned,
    )
