"""The process that measures operators: captures steps of a workload, one by one.

In: an entry point, its arguments, a kind of device, micro-batches. Out: a line for each
micro-batch that can be captured, the smallest first. Holds the tensors of one operator
at a time. Started by `profiling.graphs`; it may die on any operator.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import torch

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.graph_profile import ProfiledGraph
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_profiler.probing.messages import GraphMessage
from plimsoll_trainer.devices.device import Device, open_device
from plimsoll_trainer.errors import (
    THEIR_ERRORS,
    DeviceFullError,
    TrainerError,
    WorkloadError,
    causes,
    exit_code_of,
)
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.costs import UNKNOWN, measured
from plimsoll_trainer.placed.profile import profile_of
from plimsoll_trainer.placed.workload import of_chain
from plimsoll_trainer.process.failures import explain
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.user_code.fingerprint import fingerprint_of
from plimsoll_trainer.workload import Workload


def main() -> int:
    """Write a line for each graph."""
    entrypoint, arguments, kind, sizes = sys.argv[1:]
    out = sys.stdout
    sys.stdout = sys.stderr  # what the workload prints must not mix with graphs
    torch.set_num_threads(1)
    faulthandler.enable()
    try:
        # Before the code runs, as ranks do: it may change what Python finds.
        fingerprint = fingerprint_of(entrypoint, arguments)
        workload = load_workload(entrypoint, parse_arguments(arguments))
        device = open_device(DeviceKind(kind), 0)
        for one in profiled_graphs(workload, json.loads(sizes), device):
            out.write(
                to_text(GraphMessage(fingerprint=fingerprint, profiled=one)) + "\n"
            )
            out.flush()
    except THEIR_ERRORS as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        reason = explain(error, Phase.BUILD, None)
        print(reason, file=sys.stderr)
        return exit_code_of(reason)
    return ExitCode.DONE


def profiled_graphs(
    workload: Workload, micro_batches: Sequence[int], device: Device
) -> Iterator[ProfiledGraph]:
    """Yield graphs with their costs, the smallest micro-batch first.

    A micro-batch that the model does not take is left out, as BatchNorm1d takes no
    single sample; so are all from one on of which an operator alone fills the device,
    since no placement has it.

    Raises:
        WorkloadError: no micro-batch can be captured; about the largest.
        DeviceFullError: an operator does not fit the device at any micro-batch.
        IncompatibleError: an operator returns something else than was captured.
    """
    placed, costs = of_chain(workload), UNKNOWN
    num_graphs = 0
    refusal: TrainerError | None = None
    for micro_batch in sorted(micro_batches):
        try:
            graph = capture(placed, micro_batch)
            costs = measured(graph, placed, device, costs)
        except (WorkloadError, DeviceFullError) as error:
            let_go(error)
            refusal = error
            if isinstance(error, DeviceFullError):
                break
            continue
        num_graphs += 1
        profile = profile_of(graph, costs)
        yield ProfiledGraph(micro_batch=micro_batch, graph=profile)
    if refusal is not None and not num_graphs:
        raise refusal


def let_go(error: TrainerError) -> None:
    """Free the tensors that a traceback keeps; they would take up the device."""
    for one in causes(error):
        traceback.clear_frames(one.__traceback__)
