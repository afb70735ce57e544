"""A process that trains small models whenever it is asked to, and times itself.

Each line on stdin names a model and a number of steps; the answer is their seconds. The
process is started with and without the emulated device's library, and does the same.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist

from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import Workload
from tests.support.workloads import a_gpt

MICRO_BATCH = 2
NUM_MICRO_BATCHES = 4


def main() -> None:
    """Build the models that the command line describes, then answer."""
    folder, models = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}", rank=0, world_size=1
    )
    trainers = {name: trainer_of(a_gpt(**fields)) for name, fields in models.items()}
    for line in sys.stdin:
        name, num_steps = line.split()
        begin_s = time.perf_counter()
        for step in range(int(num_steps)):
            trainers[name].run_step(step)
        print(time.perf_counter() - begin_s, flush=True)


def trainer_of(workload: Workload) -> Trainer:
    """Build a model on this one rank."""
    return Trainer(
        workload,
        slices=[StageSlice(first_layer=0, end_layer=len(workload.layers))],
        boundaries=boundaries_of(workload, MICRO_BATCH),
        num_micro_batches=NUM_MICRO_BATCHES,
        world=join_world(1, 1, torch.device("cpu")),
    )


if __name__ == "__main__":
    main()
