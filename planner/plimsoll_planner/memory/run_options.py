"""Options of all runs of layers that begin at one layer, from those one layer later.

In: a chain's bytes, what recomputing each layer costs, where stages may end. Out: an
`Options`. Called by `option_arrays`, whose text has the formula and the argument for
runs of equal layers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import KEPT, RECOMPUTED, WAYS, ChainBytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors

NO_NODE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """Inputs that the options of every run are built from."""

    chain: ChainBytes
    holdings: HoldingFactors
    added_s: Floats
    """[c, l]: seconds that a way adds to the backward pass."""
    useful: Flags
    """[c, l]: ways worth trying; see `useful_ways`."""
    alike: Flags
    """[l]: whether a layer and the next one equal each other; False for the last."""
    ends: Ints
    """[B]: the layer behind the last one of a run; L comes last."""
    sent: Ints
    """[B]: boundary behind a run, 0 behind the last layer."""

    @cached_property
    def returned(self) -> Ints:
        """[B]: gradient of `sent`, where something of the run is trained."""
        trains = self.ends > self.chain.num_untrained
        return np.asarray(np.where(trains, self.sent, 0))

    @cached_property
    def returning(self) -> Ints:
        """[B]: gradients of carried values that come back."""
        return np.append(0, self.chain.carried.returning)[self.ends]

    def carried_behind(self, layer: int) -> Ints:
        """[B]: carried part of what stays till the end; see `rank_peak`."""
        carried = self.chain.carried
        if not self.holdings.gradient_received:
            return carried.given_behind(layer)[self.ends]
        if self.chain.bound is Bound.LOWER:
            return carried.surely_held(layer)[self.ends]
        return self.returning

    @property
    def output_unsent(self) -> int:
        """1: in forward the output of the micro-batch before counts."""
        return self.holdings.output_unsent * (self.chain.bound is not Bound.LOWER)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Options:
    """Options of the runs that begin at one layer; each array is over the options."""

    end: Ints
    """B."""
    first: Ints
    """Way of the first layer."""
    saved: Ints
    """S."""
    peak: Ints
    """Q."""
    seconds: Floats
    """T."""
    num_recomputed: Ints
    """N: layers that are not kept."""
    behind: Ints
    """Node of the option that this one goes on with; `NO_NODE` for a single layer."""
    starts_only: Flags
    """With a layer in front, its first two would be no worse the other way round."""

    def at(self, places: Ints | Flags) -> Options:
        """Some of the options."""
        return Options(**{name: getattr(self, name)[places] for name in COLUMNS})

    @property
    def group(self) -> Ints:
        """Run and first way: only options of one group are compared."""
        return len(WAYS) * self.end + self.first


COLUMNS = tuple(field.name for field in fields(Options))


def ground(
    chain: ChainBytes,
    holdings: HoldingFactors,
    recompute_s: Floats | None,
    starts: Ints,
) -> Ground:
    """Prepare what all runs share; the arguments are those of `build_options`."""
    size = chain.num_layers
    ends = np.append(starts, size)
    sent = np.append(0, chain.boundary * chain.own_output)[ends]
    sent[-1] = 0
    added_s = np.zeros((len(WAYS), size))
    if recompute_s is not None:
        added_s[RECOMPUTED] = recompute_s
    return Ground(
        chain=chain,
        holdings=holdings,
        added_s=added_s,
        useful=useful_ways(chain),
        alike=equal_neighbours(chain),
        ends=ends,
        sent=sent,
    )


AT_WORK = (
    *("saved", "forward_transient", "backward_transient"),
    *("backward_transient_at_end", "keeps_input", "keeps_output", "held_input"),
)
"""Arrays [c, l] of all that options are built from."""


def useful_ways(chain: ChainBytes) -> Flags:
    """[c, l]: ways of a layer, without those that make nothing smaller.

    Keeping such a layer instead makes no term of any option larger.
    """
    smaller = np.zeros_like(chain.allowed)
    for name in AT_WORK:
        array = getattr(chain, name)
        smaller |= array < array[KEPT]
    useful = chain.allowed & (smaller | ~chain.allowed[KEPT])
    useful[KEPT] = chain.allowed[KEPT]
    return np.asarray(useful)


def equal_neighbours(chain: ChainBytes) -> Flags:
    """[l]: whether a layer and the next one are of one row, also as they are here.

    A technique may leave one of them whole, as it is tied, and divide the other.
    """
    equal = chain.row[:-1] == chain.row[1:]
    for name in ("allowed", *AT_WORK):
        array = getattr(chain, name)
        equal &= (array[:, :-1] == array[:, 1:]).all(axis=0)
    if not chain.carried.is_empty:
        equal &= have_equal_values(chain)
    return np.append(equal, False)


def have_equal_values(chain: ChainBytes) -> Flags:
    """[l]: whether carried values leave it open which of a layer and the next one runs.

    Neither gives any, and with both in a stage there are no more gradients alive before
    the first one's backward pass than before the second one's.
    """
    carried, size = chain.carried, chain.num_layers
    gives = carried.given > 0
    found = ~(gives[:-1] | gives[1:])
    for layer in np.flatnonzero(found):
        here, behind = carried.alive(int(layer)), carried.alive(int(layer) + 1)
        found[layer] = (here <= behind)[layer + 2 : size + 1].all()
    return np.asarray(found)


def turned(on: Ground, layer: int) -> Ints:
    """[c, B]: peak of a layer's backward pass, above what is alive in front of it.

    That is with all gradients that the engine holds; see `carried_bytes`.
    """
    chain, ends = on.chain, on.ends
    inside = chain.backward_transient[:, layer, None]
    at_end = chain.backward_transient_at_end[:, layer, None]
    gradients = on.returned
    if not chain.carried.is_empty:
        straight = chain.carried.straight(layer)[ends]
        if chain.bound is not Bound.LOWER:
            held = np.minimum(inside + straight, np.maximum(inside, at_end))
            inside = np.where(straight > 0, held, inside)
        carried = on.carried_behind(layer) - straight
        gradients = gradients + chain.carried.alive(layer)[ends] + carried
        at_end = at_end + carried
    return np.where(ends == layer + 1, at_end, inside + gradients)


def single(on: Ground, layer: int) -> Options:
    """Options of the run that is one layer; none where it may not end."""
    chain, holdings = on.chain, on.holdings
    end = int(np.searchsorted(on.ends, layer + 1))
    is_last = layer == chain.num_layers - 1
    u_out = int(on.sent[end])
    keeps = chain.keeps_output[:, layer] | holdings.output_kept
    saved = chain.saved[:, layer] + np.where(keeps, u_out, 0)
    peak = np.maximum(
        chain.forward_transient[:, layer] + u_out * on.output_unsent,
        turned(on, layer)[:, end],
    )
    if not is_last:
        exchanged = np.where(keeps, 0, u_out)
        gradients = int(on.returned[end] + on.returning[end])
        exchanged += holdings.gradient_received * gradients
        peak = np.maximum(peak, saved + exchanged)
    ways = np.array(WAYS)
    built = Options(
        end=np.full_like(ways, end),
        first=ways,
        saved=saved,
        peak=peak,
        seconds=on.added_s[:, layer],
        num_recomputed=(ways != KEPT).astype(np.int64),
        behind=np.full_like(ways, NO_NODE),
        starts_only=np.zeros(len(ways), dtype=np.bool_),
    )
    return built.at(on.useful[:, layer] & (on.ends[end] == layer + 1))


def extended(on: Ground, layer: int, behind: Options, first_node: int) -> list[Options]:
    """Options of all longer runs, by way: `layer` in front of those behind it.

    `first_node` is the node of the first one of those.
    """
    fronts = {
        way: in_front(on, layer, way, behind, first_node)
        for way in WAYS
        if on.useful[way, layer]
    }
    if on.alike[layer] and on.useful[[KEPT, RECOMPUTED], layer].all():
        is_short = on.ends[behind.end] == layer + 2
        is_pair = behind.first == RECOMPUTED
        inside, at_end = movable(on, layer)
        starts_only = is_pair & np.where(is_short, at_end, inside)
        fronts[KEPT] = replace(fronts[KEPT], starts_only=starts_only)
        inside, at_end = swappable(on.chain, layer)
        excluded = is_pair & np.where(is_short, at_end, inside)
        fronts[KEPT] = fronts[KEPT].at(~(excluded | behind.starts_only))
        fronts[RECOMPUTED] = fronts[RECOMPUTED].at(~behind.starts_only)
        return list(fronts.values())
    return [front.at(~behind.starts_only) for front in fronts.values()]


def joined(parts: list[Options]) -> Options:
    """Options of all parts."""
    return Options(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in COLUMNS
        }
    )


def in_front(
    on: Ground, layer: int, way: int, behind: Options, first_node: int
) -> Options:
    """The options behind with one way of one layer in front of them."""
    chain = on.chain
    u, u_out = int(chain.boundary[layer]), on.sent[behind.end]
    alive = chain.keeps_output[way, layer] | chain.keeps_input[:, layer + 1]
    saved = int(chain.saved[way, layer])
    base = saved + np.where(alive, u, 0)[behind.first]
    own_forward = int(chain.forward_transient[way, layer])
    next_forward = saved + u + chain.forward_transient[:, layer + 1][behind.first]
    forward = np.maximum(own_forward, next_forward) + u_out * on.output_unsent
    backward = turned(on, layer)[way, behind.end]
    peak = np.maximum(base + behind.peak, np.maximum(forward, backward))
    if chain.keeps_output[way, layer]:
        peak = np.maximum(peak, base + outlived(on, layer + 1, behind))
    return replace(
        behind,
        first=np.full_like(behind.first, way),
        saved=base + behind.saved,
        peak=peak,
        seconds=behind.seconds + float(on.added_s[way, layer]),
        num_recomputed=behind.num_recomputed + int(way != KEPT),
        behind=first_node + np.arange(len(behind.end)),
        starts_only=np.zeros(len(behind.end), dtype=np.bool_),
    )


def outlived(on: Ground, layer: int, options: Options) -> Ints:
    """Backward peak of `layer`, the first of runs, if its input outlives it.

    That is above what is alive in front of it, over the options.
    """
    of_each = turned(on, layer)[options.first, options.end]
    return np.asarray(of_each + on.chain.held_input[:, layer][options.first])


def ended(on: Ground, layer: int) -> Ints:
    """[B]: gradients at the end of a backward pass of stages that begin at `layer`.

    They are 0 where no gradient of a carried value goes on from there.
    """
    chain, cut = on.chain, layer - 1
    nothing = np.zeros_like(on.ends)
    if layer == 0 or chain.bound is Bound.LOWER or not chain.carried.returning[cut]:
        return nothing
    passed = int(chain.boundary[cut]) if layer > chain.num_untrained else 0
    held = on.returned + on.carried_behind(layer)
    held = held + passed + chain.carried.returning[cut]
    return np.where(on.ends > layer, held, nothing)


def swappable(chain: ChainBytes, layer: int) -> tuple[bool, bool]:
    """Whether of a layer and its equal behind it the first may be what recomputes.

    Returns:
        Whether that is so where more layers follow in the stage, and where none does;
        see the text of `option_arrays` for the conditions.
    """
    keeps_input, keeps_output = (
        chain.keeps_input[:, layer],
        chain.keeps_output[:, layer],
    )
    pair = [KEPT, RECOMPUTED]
    s_kept, s_again = map(int, chain.saved[pair, layer])
    ft_kept, ft_again = map(int, chain.forward_transient[pair, layer])
    ht_kept, ht_again = map(int, chain.held_input[pair, layer])
    ht_behind = ht_kept if keeps_output[RECOMPUTED] else 0
    u = int(chain.boundary[layer])
    before = int(chain.boundary[layer - 1]) if layer > 0 else 0
    v = u if keeps_input[KEPT] or keeps_output[pair].all() else 0
    w = before if keeps_input[KEPT] else 0
    settles = (
        keeps_input[KEPT] == keeps_input[RECOMPUTED]
        and before <= w + s_kept + u
        and s_again <= s_kept
    )

    def moves(behind: Ints) -> bool:
        """Whether that is so for e, the transients of backward of the layer behind."""
        e_kept, e_again = map(int, behind[pair, layer])
        bt_again = int(chain.backward_transient[RECOMPUTED, layer])
        return bool(
            bt_again + ht_again + u <= s_kept + v + e_again
            and s_again + e_kept + ht_behind <= s_kept + e_again
            and (
                s_again + ft_kept <= s_kept + ft_again
                or s_again + 2 * u + ft_kept <= s_kept + v + e_again
            )
        )

    same_output = keeps_output[KEPT] == keeps_output[RECOMPUTED]
    follower = layer + 2
    settled = keeps_input[KEPT] and (
        follower >= chain.num_layers
        or bool(
            chain.keeps_input[:, follower].all()
            and not chain.held_input[:, follower].any()
        )
    )
    inside = settles and moves(chain.backward_transient) and (same_output or settled)
    at_end = settles and moves(chain.backward_transient_at_end) and same_output
    return bool(inside), bool(at_end)


def movable(on: Ground, layer: int) -> tuple[bool, bool]:
    """Whether of a layer and its equal behind it the first may be what is not kept.

    That is of layers that keep their input only if they are kept, with a layer in front
    in the same stage.

    Returns:
        Whether that is so where more layers follow in the stage, and where none does;
        see the text of `option_arrays` for the conditions.
    """
    chain = on.chain
    if layer == 0:
        return False, False
    pair = [KEPT, RECOMPUTED]
    u = int(chain.boundary[layer])
    settles = (
        chain.keeps_input[pair, layer].tolist() == [True, False]
        and not chain.keeps_output[:, layer - 1 : layer + 1].any()
        and not on.holdings.output_kept
        and u == int(chain.boundary[layer - 1])
    )
    s_kept, s_again = map(int, chain.saved[pair, layer])
    ft_kept, ft_again = map(int, chain.forward_transient[pair, layer])
    bt_again = int(chain.backward_transient[RECOMPUTED, layer])

    def moves(behind: Ints) -> bool:
        """Whether that is so for e, the transients of backward of the layer behind."""
        e_kept, e_again = map(int, behind[pair, layer])
        return (
            s_again + e_kept <= s_kept + e_again
            and s_again + ft_kept <= u + s_kept + ft_again
            and bt_again <= s_kept + e_again
        )

    inside = settles and moves(chain.backward_transient)
    at_end = settles and moves(chain.backward_transient_at_end)
    return inside, at_end
