"""The ranks of a job and their groups, made one by one (docs/decisions/0022).

rank = stage * D + replica              P stages, D replicas, G = P * D ranks

replica 0   replica 1            "pp" group: a column, all stages of a replica
stage 0    0           1                "dp" group: a row, all replicas of a stage
stage 1    2           3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

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
    """The stages of this replica."""
    data_group: dist.ProcessGroup
    """The replicas of this stage."""
    timeout: timedelta
    """Of every group: how long the others wait for a rank that is silent."""

    @property
    def is_first(self) -> bool:
        """Whether the model's inputs come in here."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether the loss is computed here."""
        return self.stage == self.num_stages - 1

    def rank_of(self, stage: int, replica: int) -> int:
        """Global rank of a place."""
        return stage * self.num_replicas + replica


def join_world(
    num_stages: int,
    num_replicas: int,
    device: torch.device,
    timeout: timedelta = DEFAULT_TIMEOUT,
) -> World:
    """Build the groups; every rank calls this, after `init_process_group`."""
    rank = dist.get_rank()
    stage, replica = divmod(rank, num_replicas)
    ranks = range(num_stages * num_replicas)
    columns = [ranks[start::num_replicas] for start in range(num_replicas)]
    rows = [ranks[start : start + num_replicas] for start in ranks[::num_replicas]]
    return World(
        stage=stage,
        replica=replica,
        num_stages=num_stages,
        num_replicas=num_replicas,
        device=device,
        pipeline_group=group_of_this_rank(columns, timeout),
        data_group=group_of_this_rank(rows, timeout),
        timeout=timeout,
    )


def group_of_this_rank(members: Iterable[Sequence[int]], timeout: timedelta) -> Any:
    """The one of several new groups that this rank is in, None if it is in none.

    Every rank calls this. By default a group waits half an hour for a silent rank.
    """
    lists = [list(ranks) for ranks in members]
    return dist.new_subgroups_by_enumeration(lists, timeout=timeout)[0]


def group_of_stages(world: World, stages: Iterable[int]) -> dist.ProcessGroup | None:
    """A new group of some stages in this rank's replica, None without its stage.

    Every rank calls this.
    """
    members = [
        [world.rank_of(stage, replica) for stage in sorted(set(stages))]
        for replica in range(world.num_replicas)
    ]
    group: dist.ProcessGroup | None = group_of_this_rank(members, world.timeout)
    return group
