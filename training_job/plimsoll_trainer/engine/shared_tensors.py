"""Parameters that layers on different ranks share: a tied embedding, mostly.

Every rank has a copy. At the start the values of the first layer's rank go to all;
after each backward pass the gradients of the copies are added up, so that all copies
take the same step. Where some take it on the host and others on their device, roundings
may differ, so the first one's values go to all after each step as well. In the gradient
norm the tensor counts once, on the first layer's rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_trainer.engine.gradients import gradient_of
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.engine.stage import StageModule, StageSlice
from plimsoll_trainer.engine.tied_tensors import tensor_in
from plimsoll_trainer.engine.world import World, group_of_stages
from plimsoll_trainer.workload import Tie, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedTensor:
    """A tensor of this rank with copies on other ranks."""

    tensor: Tensor
    group: dist.ProcessGroup
    owner_rank: int
    """Global rank whose values and whose share of the norm count."""
    homes_differ: bool
    """Whether some copies are stepped on in the host's memory, and others are not."""


def shared_tensors(
    workload: Workload, slices: Sequence[StageSlice], stage: StageModule, world: World
) -> list[SharedTensor]:
    """Tensors that this rank shares; every rank calls this, to build the groups."""
    groups = {
        stages: group_of_stages(world, stages)
        for stages in stages_that_share(workload, slices)
    }
    groups[tuple(range(world.num_stages))] = world.pipeline_group
    found: list[SharedTensor] = []
    for tie in workload.ties:
        holders = stages_of(tie, workload, slices)
        stages = tuple(sorted(set(holders)))
        if tie.constant or len(stages) == 1 or world.stage not in stages:
            continue
        layer, name = tie.places[holders.index(world.stage)]
        tensor = here(tensor_in(stage.layers[str(workload.index_of(layer))], name))
        group = groups[stages]
        if isinstance(tensor, nn.Parameter) and group is not None:
            owner = world.rank_of(holders[0], world.replica, world.part)
            homes = {slices[stage].optimizer_home for stage in stages}
            found.append(
                SharedTensor(
                    tensor=tensor,
                    group=group,
                    owner_rank=owner,
                    homes_differ=len(homes) > 1,
                )
            )
    return found


def stages_that_share(
    workload: Workload, slices: Sequence[StageSlice]
) -> list[tuple[int, ...]]:
    """Sets of stages that need a group of their own for a tie.

    A tie over all stages uses the group of the pipeline. One of constants needs none.
    """
    sets = {
        tuple(sorted(set(stages_of(tie, workload, slices))))
        for tie in workload.ties
        if not tie.constant
    }
    return sorted(stages for stages in sets if 1 < len(stages) < len(slices))


def stages_of(tie: Tie, workload: Workload, slices: Sequence[StageSlice]) -> list[int]:
    """Stage of each place of a tie."""
    return [
        next(s for s, part in enumerate(slices) if part.holds(workload.index_of(layer)))
        for layer, _ in tie.places
    ]


def first_places(workload: Workload) -> dict[tuple[str, str], tuple[str, str]]:
    """Place that each tied tensor goes by, by each of its places."""
    return {place: tie.places[0] for tie in workload.ties for place in tie.places}


def counted_here(
    workload: Workload, slices: Sequence[StageSlice], stage: StageModule, world: World
) -> dict[int, int]:
    """Place among all ties of each tensor that counts in this stage's norm, by id.

    That is the stage of the tie's first place.
    """
    return {
        id(here(tensor_in(stage.layers[str(workload.index_of(layer))], path))): place
        for place, tie in enumerate(workload.ties)
        for layer, path in tie.places[:1]
        if stages_of(tie, workload, slices)[0] == world.stage
    }


@torch.no_grad()
def spread_values(shared: Sequence[SharedTensor]) -> None:
    """Give every copy the values of the first layer's rank."""
    for one in shared:
        dist.broadcast(one.tensor, src=one.owner_rank, group=one.group)


@torch.no_grad()
def add_gradients(shared: Sequence[SharedTensor]) -> None:
    """Add up the gradients of all copies, in place."""
    for one in shared:
        gradient = gradient_of(one.tensor)
        if gradient is not None:
            dist.all_reduce(gradient, group=one.group)
