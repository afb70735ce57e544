"""Torch's stage and schedule of one rank, with what a stage module has to know.

In: the module of a stage, shapes of what passes, M. Out: a schedule that runs a step's
micro-batches. Called by `training`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    get_schedule_class,
)

from plimsoll_planner.records.engine import Schedule
from plimsoll_trainer.engine.boundaries import Boundaries
from plimsoll_trainer.engine.pass_timing import PassTimer
from plimsoll_trainer.engine.stage import StageModule, StageSlice
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.torch_internals.pipeline import cap_in_flight, takes_any_strides


class CountingStage(PipelineStage):
    """Lets the module know which samples its next forward pass is of, and times passes.

    `register_forward_context`, which is made for that, is new in torch 2.15.
    """

    def __init__(
        self,
        module: StageModule,
        *,
        timer: PassTimer,
        first_micro_batch: int,
        micro_batch: int,
        **of_torch: Any,
    ) -> None:
        """Take what torch's stage takes, whose order of arguments has changed.

        The first micro-batch of this replica is counted in the step's global batch;
        each has `micro_batch` samples.
        """
        super().__init__(module, **of_torch)
        self._module, self._timer = module, timer
        self._first_micro_batch = first_micro_batch
        self._micro_batch = micro_batch

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run one micro-batch forward."""
        index = self._first_micro_batch + fwd_chunk_id
        self._module.first_sample = index * self._micro_batch
        with self._timer.measured():
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run one micro-batch backward."""
        with self._timer.measured():
            found = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
            self._module.end_backward()
        return found


def build_schedule(
    module: StageModule,
    part: StageSlice,
    boundaries: Boundaries,
    num_micro_batches: int,
    world: World,
    schedule: Schedule,
    timer: PassTimer,
) -> PipelineScheduleSingle:
    """Torch's schedule of the stage, with all shapes known beforehand."""
    outgoing = boundaries.specs_of(part.end_layer)
    if world.is_last:
        outgoing = (torch.empty((), device="meta", requires_grad=True),)
    stage = CountingStage(
        module,
        timer=timer,
        stage_index=world.stage,
        num_stages=world.num_stages,
        device=world.device,
        input_args=boundaries.specs_of(part.first_layer),
        output_args=outgoing,
        group=world.pipeline_group,
        first_micro_batch=world.replica * num_micro_batches,
        micro_batch=boundaries.targets.shape[0],
    )
    takes_any_strides(stage)
    made: PipelineScheduleSingle = get_schedule_class(schedule)(
        stage, num_micro_batches, loss_fn=lambda loss, _: loss, scale_grads=False
    )
    if part.in_flight_cap is not None:
        cap_in_flight(made, world.stage, part.in_flight_cap)
    return made
