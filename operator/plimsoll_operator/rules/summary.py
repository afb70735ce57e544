"""An answer of the search in the few words of a status.

In: a `Solution`. Out: the parts of a `Status` that people look at first. Called by
`decide`; the whole answer lies in the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median

from plimsoll_operator.api.status import (
    MOST_ALTERNATIVES,
    CertificateStatus,
    ObservedStatus,
    PlanStatus,
    ProfileStatus,
    RevisionStatus,
)
from plimsoll_operator.rules.observed_state import (
    ObservedRehearsal,
    ObservedState,
    RecordedRevision,
    RevisionState,
)
from plimsoll_planner.records.certificate import Certificate, CountVerdict
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.text.explain import infeasible_lines, paid_text, reason_text
from plimsoll_planner.text.headline import headline_text
from plimsoll_planner.text.plans import each_of
from plimsoll_planner.text.space import space_text
from plimsoll_planner.units import at_least, at_most, number_text
from plimsoll_planner.vocabulary import IN_SPEC

SHORT_STEP_S = 0.01
"""Below it the time between layers counts as much as that in them."""


def profile_status(state: ObservedState) -> ProfileStatus | None:
    """Profile that is planned with, None before there is one."""
    if state.profile is None:
        return None
    return ProfileStatus(
        request_key=state.profile_key,
        source=state.profile.source,
        is_cached=state.profile.was_cached,
    )


def observed_status(
    plan: HybridPlan, observations: Iterable[Observation]
) -> ObservedStatus | None:
    """Peaks and steps of the ranks of a plan, None before one has finished a step.

    Until then no rank has come to its peak.
    """
    found = [one for one in observations if one.peaks and one.num_steps]
    if not found:
        return None
    peaks = {one.rank: observed_peak_bytes(one) for one in found}
    errors = [
        abs(peaks[rank] - predicted) / predicted
        for rank, predicted in predicted_peaks(plan).items()
        if rank in peaks and predicted
    ]
    step_s = [s for one in found for s in one.step_s]
    return ObservedStatus(
        peak_bytes=max(peaks.values()),
        peak=at_least(max(peaks.values())),
        error_percent=rounded(100 * max(errors, default=0.0)),
        step_seconds=rounded(median(step_s)) if step_s else None,
    )


def observed_rehearsal(plan: HybridPlan, found: Rehearsal) -> ObservedRehearsal:
    """Result of the rehearsal of a plan's fullest rank, as a decision reads it."""
    state, full = found.observation, found.full_device
    stage = plan.stage_of(state.rank)
    peak = stage.peak()
    predicted = "" if peak is None else f", predicted {bytes_range(peak.device)}"
    capacity = plan.offers[stage.offer].device_memory_bytes
    device = at_most(found.capacity_bytes or capacity)
    if full is None:
        text = (
            f"rank {state.rank} held {at_least(found.device_bytes)} of {device} alone "
            f"on a device{predicted}"
        )
    else:
        asked = f", {at_least(full.asked_bytes)} more asked for" * bool(
            full.asked_bytes
        )
        text = (
            f"rank {state.rank} ran out of memory in {full.phase}, alone on a device: "
            f"{at_least(found.device_bytes)} in use of {device}{asked}{predicted}"
        )
    return ObservedRehearsal(fits=found.fits, message=text + others_text(found))


def others_text(found: Rehearsal) -> str:
    """Bytes of other processes on the device, as the end of a sentence."""
    if found.other_bytes is None:
        return "; what other processes use of it is unknown"
    if found.other_bytes == 0:
        return ""
    return f"; {at_least(found.other_bytes)} of what is in use are of other processes"


def bytes_range(interval: ByteInterval) -> str:
    """An interval of bytes in words; one number where it is narrow."""
    low, high = at_most(interval.lower_bytes), at_least(interval.upper_bytes)
    return low if low == high else f"{low} to {high}"


def step_fault(plan: HybridPlan, observed: ObservedStatus | None) -> str:
    """Warning that a step did not take the predicted time; empty if it did."""
    predicted, measured = plan.step_time, observed and observed.step_seconds
    if predicted is None or not measured:
        return ""
    if predicted.lower_s <= float(measured) <= predicted.upper_s:
        return ""
    seconds = (float(measured), predicted.lower_s, predicted.upper_s)
    took, lower, upper = (number_text(each, 3) for each in seconds)
    return (
        f"a step takes {took} s, outside of what was predicted, {lower} to {upper} s: "
        "rates, costs and the choice by them are off as much; "
        f"{step_advice(plan, float(measured))}"
    )


def step_advice(plan: HybridPlan, measured_s: float) -> str:
    """Advice about a step that did not take the predicted time."""
    if plan.placement is not None:
        return (
            "seconds of placed operators are without the optimizer, and without what a "
            "send takes of both sides: steps of small operators take much longer"
        )
    if measured_s < SHORT_STEP_S:
        return (
            f"a step below {SHORT_STEP_S * 1000:g} ms is mostly overhead, which no "
            "profile of layers holds, or other work ran on the machine"
        )
    return (
        "profile the model again, measured on the device while nothing else runs there"
    )


def observed_peak_bytes(observation: Observation) -> int:
    """Largest use of a device by a rank, bytes."""
    return max(peak.device_bytes for peak in observation.peaks)


def predicted_peaks(plan: HybridPlan) -> dict[int, int]:
    """Expected peak of every rank's device, bytes."""
    return {
        rank: max((peak.device.expected_bytes for peak in stage.peaks), default=0)
        for stage in plan.stages
        for rank in stage.ranks
    }


def time_text(at_s: float) -> str:
    """A time as a status has it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rounded(value: float) -> Decimal:
    """Number with four significant digits, as in a status."""
    return Decimal(f"{value:.4g}")


def headline_of(problem: Problem, answer: Solution | Infeasible) -> str:
    """Answer in one line."""
    if isinstance(answer, Solution):
        return headline_text(problem, answer)
    return IN_SPEC.text("; ".join(infeasible_lines(answer)))


def plan_status(plan: HybridPlan, limits: Limits) -> PlanStatus:
    """Plan in short."""
    mesh = plan.mesh or Mesh(pipeline=len(plan.stages))
    offer = plan.offers[0]
    return PlanStatus(
        digest=digest_of(plan),
        revision=plan.revision,
        product=offer.device_product,
        gpus=plan.num_gpus,
        nodes=plan.num_nodes,
        pipeline=mesh.pipeline,
        data=mesh.data,
        tensor=mesh.tensor,
        sequences=plan.stages[0].variant.sequences,
        sharding=each_of(stage.sharding for stage in plan.stages),
        optimizer_home=each_of(stage.optimizer_home for stage in plan.stages),
        offloaded_layers=sum(len(stage.offloaded_layers) for stage in plan.stages),
        micro_batch=plan.micro_batch,
        schedule=plan.schedule,
        predicted_peak_bytes=plan.peak_bytes or 0,
        predicted_peak=at_least(plan.peak_bytes) if plan.peak_bytes else "",
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        hourly_cost=plan.price_per_hour,
        currency=plan.currency or "",
    )


def revision_status(recorded: RecordedRevision) -> RevisionStatus:
    """A revision in short."""
    revision = recorded.revision
    part = revision.step_after_s / revision.step_before_s
    is_settled = recorded.settled_s > 0
    return RevisionStatus(
        revision=recorded.number,
        state=recorded.state,
        cause=revision.cause,
        moved_layers=len(revision.moves),
        step_percent=rounded(100 * part),
        step=recorded.num_steps,
        seconds=rounded(recorded.moved_s) if is_settled else None,
        message=recorded.message[:1024],
        time=time_text(recorded.made_s),
    )


def revision_text(one: RevisionStatus) -> str:
    """A revision in one line."""
    number = f"revision {one.revision} ({one.cause})"
    if one.state == RevisionState.REFUSED:
        return f"{number} refused after step {one.step}: {one.message}"
    count, gain = one.moved_layers, 100 - float(one.step_percent)
    layers = f"{count} layer{'s' * (count > 1)} moved" if count else "no layer moved"
    change = f"{number_text(abs(gain), 3)} % {'shorter' if gain >= 0 else 'longer'}"
    expected = f"a step is expected to be {change}"
    if one.state == RevisionState.OFFERED:
        return f"{number} offered: {expected}"
    waited = (
        "" if one.seconds is None else f" in {number_text(float(one.seconds), 3)} s"
    )
    return f"{number} followed after step {one.step}: {layers}{waited}, {expected}"


def alternatives_of(answer: Solution) -> tuple[PlanStatus, ...]:
    """First few of the other plans that fit."""
    limits = answer.certificate.space.limits
    return tuple(
        plan_status(plan, limits) for plan in answer.alternatives[:MOST_ALTERNATIVES]
    )


def certificate_status(answer: Solution) -> CertificateStatus:
    """Why no smaller choice will do: the count just below, or what is paid for."""
    certificate = answer.certificate
    smaller = answer.plan.num_gpus - 1
    below = next((c for c in certificate.counts if c.num_gpus == smaller), None)
    return CertificateStatus(
        smaller_gpus=smaller if below is not None else 0,
        verdict=None if below is None else below.verdict,
        reason=reason_of(certificate, below)[:1024],
        paid_gpus=certificate.paid_gpus,
        fewest_at_any_speed=certificate.fewest_at_any_speed,
        fewest_unfixed=answer.fewest_unfixed,
        space=space_text(certificate.space)[:1024],
    )


def reason_of(certificate: Certificate, below: CountVerdict | None) -> str:
    """Reason of a certificate in short.

    `below` is the verdict on the count just below the plan's, None if there is none.
    """
    if certificate.paid_gpus is not None:
        return paid_text(certificate, certificate.paid_gpus)
    return "" if below is None else reason_text(below, certificate.space)
