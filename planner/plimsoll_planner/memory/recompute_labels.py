"""All runs of layers with all useful choices of what recomputes, as arrays.

In: a chain's bytes and what recomputing each layer costs in seconds. Out: `Labels`, for
every run [A, B) the choices that no other choice beats. Called by `stage_peaks`, whose
queries (least peak, least seconds under a capacity) read them for all runs at once.

A choice of a run is summed up by a label (S, Q, T, N), letters as in `rank_peak`:

    S   what one micro-batch in flight holds, without the received input
    Q   peak of forward, exchange and backward above what the stage starts from
    T   seconds added to the backward pass     N   how many layers recompute

Its peak is start + (k-1) S + Q, so a label that is nowhere larger than another one
replaces it, whatever k is. Labels are built from the right: with layer a in front,

    S' = s_a + w_a + S
    Q' = max(ft_a + u_out, bt_a + u_out, s_a + w_a + Q, s_a + u_a + ft_{a+1} + u_out)

and for the run that is one layer Q = max(ft_a + u_out, et_a, exchange). The last term
of Q' is the forward pass of the layer that was first before: its input u_a is alive
while it runs, whether or not it stays. That and w_a depend on the choice of the first
layer, so only labels with the same first choice are compared.

Runs of equal layers. Let a, a+1 be alike, a kept and a+1 recomputed. Swapping the two
choices keeps T and N, and S where the boundaries' fate does not depend on the choice
(`swappable`). Q does not grow: with p what is alive before layer a, U its input, W the
part of it that stays, v the boundary between the two (letters of the unswapped order on
the right, each of which is a term of Q before the swap), and e either bt, where layers
follow, or et, where a+1 is the last:

    forward of a      p + U + ft_R            <= p + W + s_K + u + ft_R
                                                 if U <= W + s_K + u
    backward of a     p + W + bt_R + u_out    <= p + W + s_K + v + e_R [+ u_out]
                                                 if bt_R + u <= s_K + v + e_R
    forward of a+1    p + W + s_R + u + ft_K  <= p + W + s_K + u + ft_R
                                                 if s_R + ft_K <= s_K + ft_R
                      or                      <= p + W + s_K + v + e_R
                                                 if s_R + 2u + ft_K <= s_K + v + e_R
    backward of a+1   p + W + s_R + v + e_K   <= p + W + s_K + v + e_R
                                                 if s_R + e_K <= s_K + e_R

(the last layer's u_out, not sent yet in forward, is u) and the layers behind see the
same sums. So where these hold, some best choice lets the first layers of a run
recompute, and a label "kept, then recomputed" is never built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import (
    KEPT,
    LARGEST_BYTES,
    RECOMPUTED,
    ChainBytes,
    Flags,
    Ints,
)
from plimsoll_planner.memory.engine_holdings import Held
from plimsoll_planner.memory.pareto import undominated
from plimsoll_planner.memory.thinning import thinned

Floats = NDArray[np.float64]
MOST_LABELS = 160
"""For each run and first choice; blocks that repeat need about as many as layers."""
FIELDS = ("saved", "peak", "seconds", "num_recomputed", "first", "parent")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Labels:
    """Arrays [A, B, n]; B goes to L inclusive, unused places hold the impossible."""

    saved: Ints
    """S; 0 where unused."""
    peak: Ints
    """Q; `LARGEST_BYTES` where unused."""
    seconds: Floats
    """T; infinite where unused."""
    num_recomputed: Ints
    """N."""
    first: Ints
    """Choice of layer A."""
    parent: Ints
    """Place of the label of [A+1, B) that this one goes on with."""
    fastest: Ints
    """[A, B]: place of the label of the least T."""
    least_saved: Ints
    """[A, B]: least S of any label."""
    least_peak: Ints
    """[A, B]: least Q of any label."""
    is_exact: bool
    """Nothing was thinned."""

    def recomputed(self, first: int, end: int, place: int) -> tuple[int, ...]:
        """Return the layers that recompute in one label of the run [first, end)."""
        layers: list[int] = []
        for layer in range(first, end):
            if self.first[layer, end, place] == RECOMPUTED:
                layers.append(layer)
            place = int(self.parent[layer, end, place])
        return tuple(layers)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Row:
    """Labels of all runs that start at one layer, [B, n]; the fields of `Labels`."""

    saved: Ints
    peak: Ints
    seconds: Floats
    num_recomputed: Ints
    first: Ints
    parent: Ints

    def pick(self, keep: Flags) -> Row:
        """Return the labels that are kept, moved to the front of each run."""
        width = max(int(keep.sum(axis=1).max(initial=0)), 1)
        order = np.argsort(~keep, axis=1, kind="stable")[:, :width]
        kept = np.take_along_axis(keep, order, axis=1)
        taken = {
            name: np.take_along_axis(getattr(self, name), order, axis=1)
            for name in FIELDS
        }
        taken["saved"] = np.where(kept, taken["saved"], 0)
        taken["peak"] = np.where(kept, taken["peak"], LARGEST_BYTES)
        taken["seconds"] = np.where(kept, taken["seconds"], np.inf)
        return Row(**taken)


def build_labels(
    chain: ChainBytes,
    held: Held,
    recompute_s: Floats | None,
    *,
    is_lower: bool = False,
    most: int = MOST_LABELS,
) -> Labels:
    """Build the labels of every run.

    Args:
        chain: the bytes.
        held: what the engine holds.
        recompute_s: seconds that recomputing adds, for each layer; None where only the
            least memory is asked, which needs far fewer labels.
        is_lower: the labels serve to prove that something fails; see `thinning`.
        most: labels for each run and first choice.
    """
    added = np.zeros(chain.num_layers) if recompute_s is None else recompute_s
    counted = recompute_s is not None
    useful = useful_choices(chain)
    rows: list[Row] = []
    behind: Row | None = None
    is_exact = True
    for layer in range(chain.num_layers - 1, -1, -1):
        row = single(chain, held, layer, added, useful)
        if not counted:
            row = replace(row, num_recomputed=np.zeros_like(row.num_recomputed))
        if behind is not None:
            row = stacked(row, extended(chain, layer, behind, added, useful))
        row = row.pick(
            undominated(
                group=row.first,
                bytes_columns=(row.saved, row.peak),
                seconds=row.seconds if counted else None,
                count=row.num_recomputed,
            )
        )
        fields = {name: getattr(row, name) for name in FIELDS}
        if thinned(fields, most, merge=is_lower):
            is_exact = False
            row = row.pick(row.peak < LARGEST_BYTES)
        rows.append(row)
        behind = row
    return gathered(rows[::-1], chain.num_layers, is_exact=is_exact)


def useful_choices(chain: ChainBytes) -> Flags:
    """Return [c, l], without recomputing where it makes nothing smaller.

    Keeping such a layer instead makes no term of any label larger.
    """
    arrays = (
        *(chain.saved, chain.forward_transient, chain.backward_transient),
        *(chain.backward_transient_at_end, chain.keeps_input, chain.keeps_output),
    )
    smaller = np.zeros(chain.num_layers, dtype=np.bool_)
    for array in arrays:
        smaller |= array[RECOMPUTED] < array[KEPT]
    useful = chain.allowed.copy()
    useful[RECOMPUTED] &= smaller | ~chain.allowed[KEPT]
    return useful


def single(
    chain: ChainBytes, held: Held, layer: int, added: Floats, useful: Flags
) -> Row:
    """Return the labels of the run that is one layer, shape [1, 2]."""
    is_last = layer == chain.num_layers - 1
    u_out = 0 if is_last else int(chain.boundary[layer])
    keeps = chain.keeps_output[:, layer] | held.output_kept
    saved = chain.saved[:, layer] + np.where(keeps, u_out, 0)
    peak = np.maximum(
        chain.forward_transient[:, layer] + u_out,
        chain.backward_transient_at_end[:, layer],
    )
    if not is_last:
        exchanged = held.gradient_received + np.where(keeps, 0, 1)
        peak = np.maximum(peak, saved + exchanged * u_out)
    possible = useful[:, layer]
    return Row(
        saved=np.where(possible, saved, 0)[None],
        peak=np.where(possible, peak, LARGEST_BYTES)[None],
        seconds=np.where(possible, [0.0, float(added[layer])], np.inf)[None],
        num_recomputed=np.array([[0, 1]], dtype=np.int64),
        first=np.array([[KEPT, RECOMPUTED]], dtype=np.int64),
        parent=np.zeros((1, 2), dtype=np.int64),
    )


def extended(
    chain: ChainBytes, layer: int, behind: Row, added: Floats, useful: Flags
) -> Row:
    """Return the labels of all longer runs: `layer` in front of those behind it."""
    choices = [
        in_front(chain, layer, choice, behind, float(added[layer]))
        for choice in (KEPT, RECOMPUTED)
        if useful[choice, layer]
    ]
    joined = {
        name: np.concatenate([getattr(row, name) for row in choices], axis=1)
        for name in FIELDS
    }
    row = Row(**joined)
    if not (useful[:, layer].all() and useful[:, layer + 1].all()):
        return row
    inside, at_end = swappable(chain, layer)
    excluded = (row.first == KEPT) & (
        np.take_along_axis(behind.first, row.parent, axis=1) == RECOMPUTED
    )
    excluded[0] &= at_end
    excluded[1:] &= inside
    return replace(
        row,
        saved=np.where(excluded, 0, row.saved),
        peak=np.where(excluded, LARGEST_BYTES, row.peak),
        seconds=np.where(excluded, np.inf, row.seconds),
    )


def in_front(
    chain: ChainBytes, layer: int, choice: int, behind: Row, added_s: float
) -> Row:
    """Return the labels behind with one choice of one layer in front of them."""
    u = int(chain.boundary[layer])
    u_out = chain.boundary[layer + 1 :].copy()
    u_out[-1] = 0
    alive = chain.keeps_output[choice, layer] | chain.keeps_input[:, layer + 1]
    saved = int(chain.saved[choice, layer])
    base = saved + np.where(alive, u, 0)[behind.first]
    own = max(
        int(chain.forward_transient[choice, layer]),
        int(chain.backward_transient[choice, layer]),
    )
    next_forward = saved + u + chain.forward_transient[:, layer + 1][behind.first]
    peak = np.maximum(
        base + behind.peak, np.maximum(own, next_forward) + u_out[:, None]
    )
    possible = behind.peak < LARGEST_BYTES
    places = np.arange(behind.peak.shape[1], dtype=np.int64)
    return Row(
        saved=np.where(possible, base + behind.saved, 0),
        peak=np.where(possible, peak, LARGEST_BYTES),
        seconds=behind.seconds + (added_s if choice == RECOMPUTED else 0.0),
        num_recomputed=behind.num_recomputed + (choice == RECOMPUTED),
        first=np.full_like(behind.first, choice),
        parent=np.broadcast_to(places, behind.peak.shape).copy(),
    )


def swappable(chain: ChainBytes, layer: int) -> tuple[bool, bool]:
    """Tell whether `layer` may be the one of two equal layers that recomputes.

    Returns:
        Whether that is so where more layers follow in the stage, and where none does;
        see the module's text for the conditions.
    """
    after = layer + 1
    if chain.row[layer] != chain.row[after]:
        return False, False
    keeps_input, keeps_output = (
        chain.keeps_input[:, layer],
        chain.keeps_output[:, layer],
    )
    s_kept, s_again = (int(value) for value in chain.saved[:, layer])
    ft_kept, ft_again = (int(value) for value in chain.forward_transient[:, layer])
    u = int(chain.boundary[layer])
    before = int(chain.boundary[layer - 1]) if layer > 0 else 0
    v = u if keeps_input[KEPT] or keeps_output.all() else 0
    w = before if keeps_input[KEPT] else 0
    settles = (
        keeps_input[KEPT] == keeps_input[RECOMPUTED]
        and before <= w + s_kept + u
        and s_again <= s_kept
    )

    def moves(behind: Ints) -> bool:
        """Tell it for e, the transients of backward of the layer behind."""
        e_kept, e_again = (int(value) for value in behind[:, layer])
        bt_again = int(chain.backward_transient[RECOMPUTED, layer])
        return bool(
            bt_again + u <= s_kept + v + e_again
            and s_again + e_kept <= s_kept + e_again
            and (
                s_again + ft_kept <= s_kept + ft_again
                or s_again + 2 * u + ft_kept <= s_kept + v + e_again
            )
        )

    same_output = keeps_output[KEPT] == keeps_output[RECOMPUTED]
    follower = after + 1
    settled = keeps_input[KEPT] and (
        follower >= chain.num_layers or bool(chain.keeps_input[:, follower].all())
    )
    inside = settles and moves(chain.backward_transient) and (same_output or settled)
    at_end = settles and moves(chain.backward_transient_at_end) and same_output
    return bool(inside), bool(at_end)


def stacked(short: Row, longer: Row) -> Row:
    """Return the one-layer run above the longer ones, padded to one width."""
    width = max(short.peak.shape[1], longer.peak.shape[1])
    arrays: dict[str, NDArray[Any]] = {
        name: np.concatenate(
            [widened(getattr(row, name), width, name) for row in (short, longer)]
        )
        for name in FIELDS
    }
    return Row(**arrays)


UNUSED: dict[str, float] = {"peak": LARGEST_BYTES, "seconds": np.inf}
"""What unused places hold; 0 in the other arrays."""


def widened(array: NDArray[Any], width: int, name: str) -> NDArray[Any]:
    """Return the array with unused places at the end of each run."""
    wide = np.full((len(array), width), UNUSED.get(name, 0), dtype=array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


def gathered(rows: list[Row], num_layers: int, *, is_exact: bool) -> Labels:
    """Return the rows as arrays [A, B, n]."""
    width = max(row.peak.shape[1] for row in rows)

    def gather(name: str, kind: type[np.generic]) -> NDArray[Any]:
        shape = (num_layers, num_layers + 1, width)
        array = np.full(shape, UNUSED.get(name, 0), dtype=kind)
        for first, row in enumerate(rows):
            found = getattr(row, name)
            array[first, first + 1 :, : found.shape[1]] = found
        return array

    saved, peak = gather("saved", np.int64), gather("peak", np.int64)
    seconds = gather("seconds", np.float64)
    used = peak < LARGEST_BYTES
    return Labels(
        saved=saved,
        peak=peak,
        seconds=seconds,
        num_recomputed=gather("num_recomputed", np.int32),
        first=gather("first", np.int8),
        parent=gather("parent", np.int32),
        fastest=seconds.argmin(axis=2),
        least_saved=np.where(used, saved, LARGEST_BYTES).min(axis=2),
        least_peak=peak.min(axis=2),
        is_exact=is_exact,
    )
