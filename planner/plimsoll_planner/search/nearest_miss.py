"""The plan of a tuple that comes nearest to fitting, and which rank it fails on.

In: a tuple whose least lower peak exceeds the capacity. Out: rank, phase and bytes.
Called by `certify` for every count that fails on memory.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.memory.option_arrays import OptionArrays
from plimsoll_planner.memory.rank_peak import StageLoad, phase_peaks
from plimsoll_planner.memory.stage_peaks import peaks_of_run
from plimsoll_planner.records.certificate import Binding, NearestMiss
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.search.host_need import needed_host_bytes
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.techniques.technique import StageChoice


def memory_miss(search: TupleSearch, candidate: Candidate) -> NearestMiss:
    """The fullest rank of the plan of the least lower peak.

    Only a bound over all plans is known of a chain that is cut between groups alone,
    and if no plan is within the memory of the machine.
    """
    allowed = search.allowance(candidate)
    too_large = search.layer_too_large(candidate)
    is_known = search.least_peak(candidate, Bound.LOWER) < LARGEST_BYTES
    if search.tables.is_grouped or not is_known:
        relaxed = search.family_bounds.relaxed(candidate, Bound.LOWER)
        least = max(*search.simple_bounds(candidate, Bound.LOWER), relaxed)
        return NearestMiss(
            binding=Binding.MEMORY,
            offer=candidate.offer,
            layer=too_large,
            needed_bytes=allowed.device(Bound.LOWER, least),
            capacity_bytes=allowed.capacity_bytes,
        )
    stage, phase, tensor_bytes = fullest(search, candidate, Bound.LOWER)
    return NearestMiss(
        binding=Binding.MEMORY,
        offer=candidate.offer,
        rank=candidate.mesh.ranks(stage)[0],
        phase=phase,
        layer=too_large,
        needed_bytes=allowed.device(Bound.LOWER, tensor_bytes),
        capacity_bytes=allowed.capacity_bytes,
    )


def host_miss(search: TupleSearch, candidate: Candidate) -> NearestMiss:
    """The rank that takes most of its machine's memory, in the plan that takes least.

    The tuple lacks that memory.
    """
    return NearestMiss(
        binding=Binding.HOST_MEMORY,
        offer=candidate.offer,
        needed_bytes=needed_host_bytes(search, candidate) or 0,
        capacity_bytes=search.host_share(candidate),
    )


def fullest(
    search: TupleSearch, candidate: Candidate, bound: Bound
) -> tuple[int, Phase, int]:
    """Stage, phase and tensor bytes of the fullest rank at the least peak."""
    merge = bound is Bound.LOWER
    least = search.least_peaks(candidate, bound, merge)[candidate.num_stages]
    stages = candidate.num_stages
    matrices = [
        search.stage_peaks(candidate, bound, stages - s, merge=merge).astype(np.float64)
        for s in range(stages)
    ]
    cuts = search.placement(stages).first_cuts(matrices, float(least))
    costs, b = search.costs(candidate), candidate.micro_batch

    def options_of(choice: StageChoice) -> OptionArrays:
        return costs.least_peak_options(bound, b, choice.at_work, merge=merge)

    found: list[tuple[int, int, Phase]] = []
    layers = search.tables.layers(cuts)
    for place, run in enumerate(search.tables.runs_of(cuts)):
        leanest = search.leanest(candidate, place)
        flows = [search.stage_flow(candidate, place, choice) for choice in leanest]
        peaks = [
            peaks_of_run(
                search.stage_bytes(candidate, bound, choice, flow.in_flight),
                options_of(choice),
                flow,
                *run,
            )
            for choice, flow in zip(leanest, flows, strict=True)
        ]
        best = int(np.argmin([of_choice.min() for of_choice in peaks]))
        choice = leanest[best]
        option = int(peaks[best].argmin())
        load = StageLoad(
            first=layers[place][0],
            end=layers[place][1],
            recomputed=frozenset(options_of(choice).recomputed(*run, option)),
            flow=flows[best],
        )
        chain = costs.bytes(bound, candidate.micro_batch, choice.capped(None))
        for phase, peak in phase_peaks(chain, load, search.tables.holdings).items():
            found.append((peak.total(), -place, phase))
    num_bytes, place, phase = max(found, key=lambda entry: entry[:2])
    return -place, phase, num_bytes
