"""Writes a plan that the search found down as a `HybridPlan`, with peaks and price.

In: a `Found`. Out: the record that is launched. Called by `answer` for the plan and its
alternatives. The peaks of every phase come from `rank_peak`, the formula as it is read,
in all three bounds; the search used the same formula in another form.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import RECOMPUTED
from plimsoll_planner.memory.rank_peak import StageLoad, phase_peaks
from plimsoll_planner.overhead.allowance import Allowance
from plimsoll_planner.records.bounds import LARGEST_INTEGER
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval
from plimsoll_planner.records.plan import (
    Chunk,
    HybridPlan,
    Phase,
    PhasePeak,
    PodShape,
    Stage,
)
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.walk_bounds import step_interval

BOUNDS = (Bound.LOWER, Bound.EXPECTED, Bound.UPPER)


def build_plan(search: TupleSearch, found: Found) -> HybridPlan:
    """Plan with everything that a launch needs."""
    problem, candidate = search.problem, found.candidate
    offer = problem.offers[candidate.offer]
    placed = search.placed(candidate)
    times = [search.stage_times(found, bound) for bound in BOUNDS]
    stages = tuple(
        replace(
            build_stage(search, found, place, first, end),
            passes=passes(candidate, [of_bound[place] for of_bound in times]),
        )
        for place, (first, end) in enumerate(search.tables.layers(found.cuts))
    )
    return HybridPlan(
        fingerprint=problem.profile.fingerprint,
        global_batch_size=problem.global_batch_size,
        micro_batch=candidate.micro_batch,
        num_micro_batches=candidate.num_micro_batches,
        schedule=candidate.strategy.schedule,
        engine=problem.engine.engine,
        engine_version=problem.engine.version,
        optimizer_mode=problem.profile.recipe.optimizer_mode,
        offers=(offer,),
        stages=stages,
        pods=PodShape(
            num_pods=placed.num_pods,
            gpus_per_pod=placed.gpus_per_pod,
            host_memory_bytes_per_pod=host_bytes(search, found, placed.gpus_per_pod),
        ),
        step_time=step_interval(
            candidate.schedule, times, candidate.num_micro_batches, placed
        ),
        price_per_hour=search.price_per_hour(found.candidate),
        currency=offer.currency,
    )


def passes(candidate: Candidate, times: list[StageTimes]) -> SecondsInterval:
    """Seconds of all passes of a step on one stage, of which `times` are the bounds."""
    lower, expected, upper = (
        one.passes_s(candidate.num_micro_batches) for one in times
    )
    return SecondsInterval(lower_s=lower, expected_s=expected, upper_s=upper)


def build_stage(
    search: TupleSearch, found: Found, place: int, first: int, end: int
) -> Stage:
    """One stage with its peaks."""
    candidate, other = found.candidate, found.choices[place].other_way
    layers = found.recomputed[place]
    return Stage(
        chunks=(Chunk(first_layer=first, end_layer=end),),
        ranks=tuple(candidate.mesh.ranks(place)),
        offer=0,
        variant=candidate.strategy.variant,
        data_degree=candidate.mesh.data,
        recomputed_layers=layers if other.recomputes else (),
        offloaded_layers=layers if other.offloads else (),
        offloaded_bytes=offloaded_bytes(search, found, place),
        in_flight_cap=search.stage_flow(
            candidate, place, found.choices[place]
        ).in_flight,
        peaks=stage_peaks(search, found, place, first, end),
        host_bytes=host_tensors(search, found, place),
        **found.choices[place].stated,
    )


def stage_peaks(
    search: TupleSearch, found: Found, place: int, first: int, end: int
) -> tuple[PhasePeak, ...]:
    """Peaks of every phase of one stage."""
    candidate = found.candidate
    load = StageLoad(
        first=first,
        end=end,
        recomputed=frozenset(found.recomputed[place]),
        flow=search.stage_flow(candidate, place, found.choices[place]),
    )
    by_bound = {
        bound: phase_peaks(
            search.costs(candidate).bytes(
                bound, candidate.micro_batch, found.choices[place].capped(None)
            ),
            load,
            search.tables.holdings,
        )
        for bound in BOUNDS
    }
    allowed = search.allowance(candidate)
    return tuple(
        phase_peak(
            allowed,
            phase,
            {bound: peaks[phase].total() for bound, peaks in by_bound.items()},
        )
        for phase in by_bound[Bound.EXPECTED]
    )


def phase_peak(
    allowed: Allowance, phase: Phase, tensor_bytes: dict[Bound, int]
) -> PhasePeak:
    """Allocated, reserved and device bytes of one phase."""

    def interval(measure: str) -> ByteInterval:
        convert = getattr(allowed, measure)
        low, middle, high = (convert(bound, tensor_bytes[bound]) for bound in BOUNDS)
        return ByteInterval(lower_bytes=low, expected_bytes=middle, upper_bytes=high)

    return PhasePeak(
        phase=phase,
        allocated=interval("allocated"),
        reserved=interval("reserved"),
        device=interval("device"),
    )


def host_tensors(search: TupleSearch, found: Found, place: int) -> int:
    """Bytes of tensors that a rank of a stage holds in its machine's memory."""
    candidate, choice = found.candidate, found.choices[place].capped(None)
    run = search.tables.runs_of(found.cuts)[place]
    stages = search.costs(candidate).stages
    state = int(stages(Bound.UPPER, candidate.micro_batch, choice).host[run])
    return state + offloaded_bytes(search, found, place)


def offloaded_bytes(search: TupleSearch, found: Found, place: int) -> int:
    """Bytes of activations that a rank of a stage holds in its machine's memory."""
    candidate, choice = found.candidate, found.choices[place]
    asked = Bound.UPPER, candidate.micro_batch, choice.other_way
    chain = search.costs(candidate).bytes_in_way(*asked)
    each = int(chain.on_host[RECOMPUTED][list(found.recomputed[place])].sum())
    return each * search.stage_flow(candidate, place, choice).in_flight


def host_bytes(search: TupleSearch, found: Found, gpus_per_pod: int) -> int:
    """Memory of the machine that each pod asks for: all that its ranks may take."""
    candidate = found.candidate
    of_ranks = [
        int(search.state_on_host(candidate, Bound.UPPER, choice)[run])
        + offloaded_bytes(search, found, place)
        for place, (choice, run) in enumerate(
            zip(found.choices, search.tables.runs_of(found.cuts), strict=True)
        )
        for _ in range(candidate.mesh.ranks_per_stage)
    ]
    pods = [
        of_ranks[first : first + gpus_per_pod]
        for first in range(0, len(of_ranks), gpus_per_pod)
    ]
    return min(max(map(sum, pods)), LARGEST_INTEGER)
