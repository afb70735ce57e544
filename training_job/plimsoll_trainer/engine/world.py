"""The ranks of a job and their groups, made one by one (docs/decisions/0022).

rank = (stage * D + replica) * T + part      P stages, D replicas, T parts of a layer

                replica 0       replica 1
                part 0  part 1  part 0  part 1
    stage 0       0       1       2       3     pipeline group   0 4, 1 5, 2 6, 3 7
    stage 1       4       5       6       7     data group       0 2, 1 3, 4 6, 5 7
                                                tensor group     0 1, 2 3, 4 5, 6 7
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_trainer.torch_internals.late_threads import wait_for_threads

DEFAULT_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class World:
    """Place of this rank."""

    stage: int
    replica: int
    num_stages: int
    num_replicas: int
    device: torch.device
    pipeline_group: dist.ProcessGroup
    """The stages of this replica and part."""
    data_group: dist.ProcessGroup
    """The replicas of this stage and part."""
    timeout: timedelta
    """Of every group: how long the others wait for a rank that is silent."""
    part: int = 0
    num_parts: int = 1
    """T, ranks that share each layer: a tensor group."""
    tensor_mesh: DeviceMesh | None = None
    """The parts of this stage and replica; None where layers are not split."""

    @property
    def is_first(self) -> bool:
        """Whether the model's inputs come in here."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether the loss is computed here."""
        return self.stage == self.num_stages - 1

    @property
    def tensor_group(self) -> dist.ProcessGroup | None:
        """The parts of this stage and replica; None where layers are not split."""
        return None if self.tensor_mesh is None else self.tensor_mesh.get_group()

    def rank_of(self, stage: int, replica: int, part: int) -> int:
        """Global rank of a place."""
        return (stage * self.num_replicas + replica) * self.num_parts + part


def join_world(
    num_stages: int,
    num_replicas: int,
    device: torch.device,
    timeout: timedelta = DEFAULT_TIMEOUT,
    num_parts: int = 1,
) -> World:
    """Build the groups; every rank calls this, after `init_process_group`."""
    place, part = divmod(dist.get_rank(), num_parts)
    stage, replica = divmod(place, num_replicas)
    ranks = range(num_stages * num_replicas * num_parts)
    of_stage = num_replicas * num_parts
    columns = [ranks[start::of_stage] for start in range(of_stage)]
    rows = [
        ranks[start + first : start + of_stage : num_parts]
        for start in ranks[::of_stage]
        for first in range(num_parts)
    ]
    pipeline_group = group_of_this_rank(columns, timeout)
    data_group = group_of_this_rank(rows, timeout)
    tensor_mesh: DeviceMesh | None = None
    if num_parts > 1:
        parts = [ranks[start : start + num_parts] for start in ranks[::num_parts]]
        group = group_of_this_rank(parts, timeout)
        tensor_mesh = DeviceMesh.from_group(
            group, device.type, mesh_dim_names=("tensor",)
        )
        if dist.get_backend() == "gloo":
            wait_for_threads()
    return World(
        stage=stage,
        replica=replica,
        part=part,
        num_stages=num_stages,
        num_replicas=num_replicas,
        num_parts=num_parts,
        device=device,
        pipeline_group=pipeline_group,
        data_group=data_group,
        tensor_mesh=tensor_mesh,
        timeout=timeout,
    )


def group_of_this_rank(members: Iterable[Sequence[int]], timeout: timedelta) -> Any:
    """The one of several new groups that this rank is in, None if it is in none.

    Every rank calls this. By default a group waits half an hour for a silent rank.
    """
    lists = [list(ranks) for ranks in members]
    return dist.new_subgroups_by_enumeration(lists, timeout=timeout)[0]


def group_of_stages(world: World, stages: Iterable[int]) -> dist.ProcessGroup | None:
    """A new group of some stages in this rank's replica and part.

    None without its stage. Every rank calls this.
    """
    members = [
        [world.rank_of(stage, replica, part) for stage in sorted(set(stages))]
        for replica in range(world.num_replicas)
        for part in range(world.num_parts)
    ]
    group: dist.ProcessGroup | None = group_of_this_rank(members, world.timeout)
    return group
