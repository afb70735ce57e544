"""GPipe: all micro-batches forward, then all of them backward, everything recomputed.

In: a plan of 1F1B whose layers all recompute, as the search found it. Out: seconds of
its step under GPipe, and the bytes of its fullest device. Called by `baseline_plans`.

**Order.** GPipe is 1F1B with M micro-batches in flight on every stage; P = 3, M = 4:

    s = 0   F0 F1 F2 F3 B0 B1 B2 B3

so it is walked as any schedule is. It has no module of its own among those that the
search covers.

**Bytes.** As published (Huang et al., NeurIPS 2019, section 2.3) a stage keeps of each
micro-batch its input alone, and recomputes all of its layers at once: the formula of a
rank with k = 1 whose layers are all kept, and M - 1 inputs more. Torch's ScheduleGPipe
under Plimsoll's trainer holds two things more:

    outputs    until all forward passes are over, M - 1 more than are being sent
    the loss   what it saves on the last stage for each micro-batch, as it is computed
               behind the checkpoint
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import RECOMPUTED, ChainBytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.rank_peak import StageLoad, ends_of, phase_peaks
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology


class GPipe(OneFOneB):
    """See the module's text."""

    name: ClassVar[Schedule] = Schedule.GPIPE

    def in_flight(self, num_left: int, num_micro_batches: int) -> int:
        """M."""
        del num_left
        return num_micro_batches

    def caps(self, num_left: int, num_micro_batches: int) -> range:
        """M alone."""
        k = self.in_flight(num_left, num_micro_batches)
        return range(k, k + 1)

    def is_saturated(self, num_stages: int, num_micro_batches: int) -> bool:
        """Never."""
        del num_stages, num_micro_batches
        return False

    def last_backwards(
        self, stages: list[StageTimes], num_micro_batches: int, placed: Topology
    ) -> list[float] | None:
        """No shortcut."""
        del stages, num_micro_batches, placed
        return None


class Form(StrEnum):
    """Whose GPipe it is."""

    PUBLISHED = "published"
    IN_TORCH = "in torch"


GPIPE = GPipe()


def step_s(search: TupleSearch, found: Found) -> float:
    """Seconds of a step with expected seconds of passes."""
    candidate = found.candidate
    return step_walk.walk(
        GPIPE,
        search.stage_times(found, Bound.EXPECTED),
        candidate.num_micro_batches,
        search.placed(candidate),
    )


def device_bytes(
    search: TupleSearch, found: Found, form: Form, bound: Bound = Bound.UPPER
) -> int:
    """Bytes of the fullest device, for one bound of all bytes."""
    allowed = search.allowance(found.candidate)
    tensors = stage_bytes(search, found, form, bound)
    return allowed.device(bound, max(tensors))


def stage_bytes(
    search: TupleSearch, found: Found, form: Form, bound: Bound
) -> list[int]:
    """Peak of the tensors of a rank, stage by stage."""
    candidate = found.candidate
    flow = Flow(
        in_flight=1,
        num_micro_batches=candidate.num_micro_batches,
        micro_batch=candidate.micro_batch,
        data_degree=1,
    )
    chain = search.costs(candidate).bytes(bound, candidate.micro_batch)
    return [
        peak_bytes(
            chain,
            StageLoad(first=first, end=end, recomputed=frozenset(), flow=flow),
            search.tables.holdings,
            form,
        )
        for first, end in search.tables.layers(found.cuts)
    ]


def peak_bytes(
    chain: ChainBytes, load: StageLoad, holdings: HoldingFactors, form: Form
) -> int:
    """Peak of the tensors of one rank.

    [1] One micro-batch; its forward pass counts the inputs of all layers, which is more
    than it keeps. [2] Inputs of the others. [3] In torch, their outputs and losses.
    """
    u_in, u_out = ends_of(chain, load)
    others = load.flow.num_micro_batches - 1
    # [1] one micro-batch
    kept = phase_peaks(chain, load, holdings)
    again = replace(load, recomputed=frozenset(load.layers))
    forward = phase_peaks(chain, again, holdings)[Phase.FORWARD].total()
    backward = kept[Phase.BACKWARD].total()
    # [2] inputs
    passes = max(forward, backward) + others * u_in
    # [3] what torch holds
    if form is Form.IN_TORCH:
        is_last = load.end == chain.num_layers
        loss = int(chain.saved[RECOMPUTED, load.end - 1]) if is_last else 0
        passes = others * (u_in + loss) + max(forward + others * u_out, backward)
    return max(passes, kept[Phase.OPTIMIZER_STEP].total())
