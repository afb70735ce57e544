"""Lists of what each rank does, in the one order: the engine carries them out.

In: a placed graph and its parameters. Out: for each rank its `Action`s. Called by the
engine of graphs.

Place p of the order has two moments (`curve`). A rank does, of what concerns it, in
this order:

    2p        RUN      the node at p, if it is the rank's
              ADD      its result to the gradient of a parameter that stands here
              FREE     values whose last moment this is, then FREE_COPY
    2p + 1    SEND, RECEIVE                 begin; neither waits
              SENT, RECEIVED                wait for the end
              ADD      what was received to the gradient of a parameter
              FREE, FREE_COPY
    2n        STEP     parameter by parameter
              FREE     what was kept

Sends of one moment come by node and destination on every rank, and a rank waits only
for what has begun at an earlier action of both sides: no circle of waits is possible.
A value is not written in place, nor freed, before its sends are over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from plimsoll_planner.graph.arrays import Ints, integers
from plimsoll_planner.graph.curve import last_moments
from plimsoll_planner.graph.transfers import Placed, Sends, all_sends
from plimsoll_planner.records.graph_profile import GraphProfile


class Step(IntEnum):
    """Kind of an action."""

    RUN = 0
    SEND = 1
    RECEIVE = 2
    SENT = 3
    RECEIVED = 4
    ADD = 5
    FREE = 6
    FREE_COPY = 7
    STEP = 8


PHASES = {
    Step.RUN: 0,
    Step.SEND: 1,
    Step.RECEIVE: 1,
    Step.SENT: 2,
    Step.RECEIVED: 2,
    Step.ADD: 3,
    Step.STEP: 3,
    Step.FREE: 4,
    Step.FREE_COPY: 5,
}
"""Order within a moment; of equal phases by node and destination."""


class Action(NamedTuple):
    """One thing that a rank does."""

    moment: int
    step: Step
    node: int
    """Whose value is run, sent, received, freed or added; of STEP the parameter."""
    peer: int
    """The other rank of a send; of ADD and STEP the parameter; else -1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Actions of one kind, of all ranks."""

    step: Step
    rank: Ints
    moment: Ints
    node: Ints
    peer: Ints
    tie: Ints
    """Destination of a send, by which both sides order it."""


def actions_of(placed: Placed, profile: GraphProfile) -> list[list[Action]]:
    """Actions of each rank."""
    sends = all_sends(placed)
    parts = [
        *own_parts(placed, sends),
        *send_parts(placed, sends),
        *parameter_parts(placed, profile, sends),
    ]
    phases = [np.full(len(part.rank), PHASES[part.step]) for part in parts]
    steps = np.concatenate([np.full(len(part.rank), part.step) for part in parts])
    rank, moment, node, peer, tie = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rank", "moment", "node", "peer", "tie")
    )
    order = np.lexsort((tie, node, np.concatenate(phases), moment, rank))
    lists = [list[Action]() for _ in range(placed.num_devices)]
    columns = np.stack((rank, moment, steps, node, peer))
    rows: list[list[int]] = columns[:, order].T.tolist()
    for its_rank, its_moment, step, its_node, its_peer in rows:
        lists[its_rank].append(Action(its_moment, Step(step), its_node, its_peer))
    return lists


def own_parts(placed: Placed, sends: Sends) -> Iterable[Columns]:
    """Runs of nodes, and the end of what they return."""
    nodes, nothing = np.arange(placed.graph.num_nodes), -np.ones_like(placed.place)
    uses = np.arange(len(placed.graph.uses.source))
    last = last_moments(placed, nodes, uses, sends)
    for step, moment in ((Step.RUN, 2 * placed.place), (Step.FREE, last)):
        yield Columns(
            step=step,
            rank=placed.device,
            moment=moment,
            node=nodes,
            peer=nothing,
            tie=nothing,
        )


def send_parts(placed: Placed, sends: Sends) -> Iterable[Columns]:
    """Both sides of sends, and the end of copies."""
    source, begin, end = placed.device[sends.node], 2 * sends.begin + 1, sends.end
    ends = 2 * end + 1
    for step, rank, moment in (
        (Step.SEND, source, begin),
        (Step.RECEIVE, sends.destination, begin),
        (Step.SENT, source, ends),
        (Step.RECEIVED, sends.destination, ends),
        (Step.FREE_COPY, sends.destination, np.maximum(sends.last, ends)),
    ):
        is_source = step in (Step.SEND, Step.SENT)
        yield Columns(
            step=step,
            rank=rank,
            moment=moment,
            node=sends.node,
            peer=sends.destination if is_source else source,
            tie=sends.destination,
        )


def parameter_parts(
    placed: Placed, profile: GraphProfile, sends: Sends
) -> Iterable[Columns]:
    """Additions to gradients, and the optimizer's steps."""
    parameters = profile.parameters
    trained = [i for i, node in enumerate(parameters.gradient) if node is not None]
    index = integers(trained)
    owner = placed.device[integers(parameters.node)[index]]
    gradient = integers([node for node in parameters.gradient if node is not None])
    key = sends.node * placed.num_devices + sends.destination
    found = np.searchsorted(key, gradient * placed.num_devices + owner)
    ends = np.append(2 * sends.end + 1, -1)[found]
    is_here = placed.device[gradient] == owner
    yield Columns(
        step=Step.ADD,
        rank=owner,
        moment=np.where(is_here, 2 * placed.place[gradient], ends),
        node=gradient,
        peer=index,
        tie=index,
    )
    yield Columns(
        step=Step.STEP,
        rank=owner,
        moment=np.full(len(index), 2 * placed.graph.num_nodes),
        node=index,
        peer=index,
        tie=index,
    )
