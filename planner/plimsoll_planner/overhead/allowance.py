"""From allocated to reserved to device bytes, and from a capacity back to tensors.

In: an offer, the calibrated overheads, the engine, b and how many communicators a rank
has. Out: `Allowance`. Called by the search (backwards: how many bytes of tensors a rank
may have) and for the plan that was chosen (forwards).

    reserved = allocated + share * shared part + allocator line
    device   = reserved + line of what sits outside the allocator

Both lines come from the `DeviceOverhead` of the offer's product and the profile's torch
version. Where there is none an emulated device has no overhead, for it counts tensors;
for CUDA an assumption stands in (`assumed`), and the answer says so: all
allocated bytes are shared. Traits of an engine that no replay verified widen the
allocated bytes by `UNVERIFIED_PERMILLE` on both sides.

What ranks held bounds what others hold, because more samples, communicators or tensors
never take less. No more is sure, so a line is believed only where ranks were seen:

    upper bound   the least of where ranks had as many of both or more; of tensors
                  beyond the most that were seen the largest assumed share as well
    beyond them   what is assumed (of the communicators alone, where ranks had as many
                  samples), or what the line or fewer of either needs, where that is
                  more
    lower bound   the largest of where ranks had as few of both or fewer, and never
                  more than what is assumed: a neighbour's memory counts as outside,
                  and so does what one workload's formula was too low by
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from plimsoll_planner.memory.bounds import Bound, bytes_at
from plimsoll_planner.overhead import assumed
from plimsoll_planner.records.bounds import LARGEST_INTEGER
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.engine import EngineTraits
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.units import at_least

PERMILLE = 1000
UNVERIFIED_PERMILLE = 50
"""5 % on both sides; the largest error that a formula of another version had."""
NO_LINE = OverheadLine()
NO_SHARE = (0, 0, 0)

Place = tuple[int, int]
"""A micro-batch and a number of communicators."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """Bytes of a rank besides tensors, in three bounds: lower, expected, upper."""

    capacity_bytes: int
    """Of the device, less the headroom."""
    widening_permille: tuple[int, int, int]
    """Of the allocated bytes, where the engine's traits are not verified."""
    share_permille: tuple[int, int, int]
    unshared_bytes: int
    """Allocated bytes that have no share: the allocator line allows for them."""
    allocator: ByteInterval
    outside: ByteInterval
    is_assumed: bool
    """No calibration stands behind its upper bound."""

    def allocated(self, bound: Bound, tensor_bytes: int) -> int:
        """Formula's bytes, widened where the engine is not verified."""
        widening = self.widening_permille[PLACE[bound]]
        widened = tensor_bytes * (PERMILLE + widening) // PERMILLE
        return min(widened, LARGEST_INTEGER)

    def reserved(self, bound: Bound, tensor_bytes: int) -> int:
        """Bytes that the allocator takes from the device."""
        allocated = self.allocated(bound, tensor_bytes)
        shared = max(0, allocated - self.unshared_bytes)
        share = shared * self.share_permille[PLACE[bound]] // PERMILLE
        reserved = allocated + share + bytes_at(self.allocator, bound)
        return min(reserved, LARGEST_INTEGER)

    def device(self, bound: Bound, tensor_bytes: int) -> int:
        """All of it; the largest number that is written, where it is more."""
        device = self.reserved(bound, tensor_bytes) + bytes_at(self.outside, bound)
        return min(device, LARGEST_INTEGER)

    def tensor_capacity(self, bound: Bound) -> int:
        """Most tensor bytes whose device bytes are within the capacity.

        Negative where not even none are.
        """
        sizes = range(self.capacity_bytes * 2 + 2)
        device = partial(self.device, bound)
        return bisect_right(sizes, self.capacity_bytes, key=device) - 1


def observed_interval(
    overhead: DeviceOverhead,
    line: OverheadLine,
    assumed: OverheadLine,
    micro_batch: int,
    communicators: tuple[int, int],
) -> ByteInterval:
    """Value of a line of an overhead; beyond its ranks the assumption counts."""
    least, most = communicators
    lower_bytes = line.at(micro_batch, least).lower_bytes
    upper_bytes = line.at(micro_batch, most).upper_bytes
    if overhead.seen:
        places = [(at.micro_batch, at.num_communicators) for at in overhead.seen]
        seen = [(place, line.at(*place)) for place in places]
        lower_bytes = min(
            assumed.at(micro_batch, least).lower_bytes,
            highest_below(seen, (micro_batch, least), lower_bytes),
        )
        beyond_bytes = with_more_groups(seen, (micro_batch, most), assumed)
        upper_bytes = lowest_above(
            seen, (micro_batch, most), max(upper_bytes, beyond_bytes)
        )
    return ByteInterval(
        lower_bytes=lower_bytes,
        expected_bytes=line.at(micro_batch, most).expected_bytes,
        upper_bytes=upper_bytes,
    )


def with_more_groups(
    seen: Sequence[tuple[Place, ByteInterval]], place: Place, assumed: OverheadLine
) -> int:
    """Assumption beyond the ranks that were measured: none had as many of both.

    Where ranks had as many samples and fewer communicators, each one more takes no more
    than one is assumed to take.
    """
    most_bytes = assumed.at(*place).upper_bytes
    stretched = (
        held.upper_bytes + most_bytes - assumed.at(*at).upper_bytes
        for at, held in seen
        if at[0] >= place[0] and at[1] < place[1]
    )
    return min([most_bytes, *stretched])


def highest_below(
    seen: Sequence[tuple[Place, ByteInterval]], place: Place, otherwise_bytes: int
) -> int:
    """Largest lower bound of where ranks had no more of either."""
    found = (
        held.lower_bytes for at, held in seen if at[0] <= place[0] and at[1] <= place[1]
    )
    return max(found, default=otherwise_bytes)


def lowest_above(
    seen: Sequence[tuple[Place, ByteInterval]], place: Place, otherwise_bytes: int
) -> int:
    """Least upper bound of where ranks had no less of either.

    Where none had, it is at least that of every place with fewer which some were seen
    above, so that it grows with both.
    """
    found = [
        held.upper_bytes for at, held in seen if at[0] >= place[0] and at[1] >= place[1]
    ]
    if found:
        return min(found)
    within = ((min(at[0], place[0]), min(at[1], place[1])) for at, _ in seen)
    return max(otherwise_bytes, *(lowest_above(seen, at, 0) for at in within))


PLACE = {Bound.LOWER: 0, Bound.EXPECTED: 1, Bound.UPPER: 2}


def num_communicators(mesh: Mesh, num_ties: int) -> tuple[int, int]:
    """Groups of several ranks in which a rank communicates, at least and at most.

    The world, the stages of its replica, the replicas of its stage, its tensor group;
    and for each tie of trained tensors the stages that hold it, unless those are all or
    one. The trainer reports as many (`plimsoll_trainer.process.run`).
    """
    least = (mesh.num_gpus > 1) + sum(degree > 1 for degree in mesh.degrees)
    return least, least + (num_ties if mesh.pipeline > 2 else 0)  # noqa: PLR2004


def mesh_around(plan: HybridPlan, stage: Stage) -> Mesh:
    """Degrees of the groups that the ranks of a stage are in."""
    return Mesh(
        pipeline=len(plan.stages),
        data=stage.data_degree,
        tensor=stage.variant.tensor_degree,
    )


def overhead_for(
    offer: Offer, overheads: tuple[DeviceOverhead, ...], fingerprint: Fingerprint
) -> DeviceOverhead | None:
    """Overhead that counts for what runs on an offer, if any does.

    It is of the offer's product, and of the same torch version as far as its key states
    it (2.15 is that of 2.15.0+cu132). Of several the one of the same image is nearest,
    then the one that states the version most closely, then that of most observations,
    then that of most shortages.
    """

    def nearness(overhead: DeviceOverhead) -> tuple[bool, int, int, int]:
        key = overhead.key
        return (
            key.image == fingerprint.image,
            len(key.torch_version),
            overhead.num_observations,
            overhead.num_shortages,
        )

    alike = (one for one in overheads if runs_like(one.key, offer, fingerprint))
    return max(alike, key=nearness, default=None)


def key_of(offer: Offer, fingerprint: Fingerprint) -> OverheadKey:
    """Key of what is observed there; the version of NCCL is left open."""
    return OverheadKey(
        device_product=offer.device_product,
        image=fingerprint.image,
        torch_version=fingerprint.torch_version,
    )


def runs_like(key: OverheadKey, offer: Offer, fingerprint: Fingerprint) -> bool:
    """Whether a key is of an offer's product and of a fingerprint's torch."""
    version = fingerprint.torch_version
    return key.device_product == offer.device_product and any(
        f"{one}.".startswith(f"{key.torch_version}.")
        for one in (version, version.partition("+")[0])
    )


def assumption_text(allowed: Allowance) -> str:
    """Assumptions besides tensors, as part of a sentence."""
    most_bytes = allowed.outside.upper_bytes + allowed.allocator.upper_bytes
    share = allowed.share_permille[-1] / 10
    return f"between nothing and {at_least(most_bytes)} + {share:g} % of the tensors"


def share_permille(overhead: DeviceOverhead | None) -> tuple[int, int, int]:
    """Part of its tensors that the allocator of a GPU is assumed to take.

    Where ranks were observed that is in the line, as far as they had as many.
    """
    if overhead is None or overhead.num_observations == 0:
        return assumed.SHARE_PERMILLE
    if overhead.most_allocated_bytes == 0:
        return NO_SHARE
    return (0, 0, assumed.SHARE_PERMILLE[-1])


def allowance(
    offer: Offer,
    limits: Limits,
    overhead: DeviceOverhead | None,
    engine: EngineTraits,
    *,
    micro_batch: int,
    communicators: tuple[int, int],
) -> Allowance:
    """Bytes of a rank of a plan besides tensors.

    `communicators` are the fewest, for the lower bound, and the most.
    """
    is_cuda = offer.device_kind is DeviceKind.CUDA
    fragments = assumed.ALLOCATOR if is_cuda else NO_LINE
    beside = assumed.OUTSIDE if is_cuda else NO_LINE
    unshared_bytes, is_calibrated = 0, False
    allocator = fragments.at(micro_batch, communicators[-1])
    outside = beside.at(micro_batch, communicators[-1])
    if overhead is not None:
        at = micro_batch, communicators
        allocator = observed_interval(overhead, overhead.allocator, fragments, *at)
        outside = observed_interval(overhead, overhead.outside, beside, *at)
        unshared_bytes = overhead.most_allocated_bytes
        is_calibrated = overhead.num_observations > 0 and overhead.seen_above(
            micro_batch, communicators[-1]
        )
    widening = 0 if engine.verified else UNVERIFIED_PERMILLE
    return Allowance(
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        widening_permille=(-widening, 0, widening),
        share_permille=share_permille(overhead) if is_cuda else NO_SHARE,
        unshared_bytes=unshared_bytes,
        allocator=allocator,
        outside=outside,
        is_assumed=is_cuda and not is_calibrated,
    )
