"""Origin of the numbers: versions, digests, attempts, and how to repeat it.

In: a record. Out: pairs of texts and rows. Called by `page`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from plimsoll_cli.output.plan_page import saves_text, weights_text
from plimsoll_cli.output.scales import seconds_text, time_text
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.model_profile import Fingerprint
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.revision import Cause
from plimsoll_planner.text.counts import counted, device_noun
from plimsoll_planner.text.explain import offer_text
from plimsoll_planner.units import at_most, number_text
from plimsoll_planner.version import __version__

SHORT_DIGEST = 19
"""`sha256:` and twelve digits, which tell plans apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRow:
    """One attempt and what became of it."""

    number: int
    plan: str
    digest: str
    ending: str
    ended: str
    what: str


def attempt_rows(record: RunRecord) -> Iterator[AttemptRow]:
    """Yield all attempts, the oldest first."""
    before = ""
    for attempt in record.attempts:
        digest = digest_of(attempt.plan)
        kept = "the same plan" if digest == before else "planned anew"
        devices = counted(attempt.plan.num_gpus, "device")
        yield AttemptRow(
            number=attempt.number,
            plan=f"{devices}, {kept}" if before else devices,
            digest=digest[:SHORT_DIGEST],
            ending="under way" if attempt.ending is None else str(attempt.ending),
            ended=ended_text(attempt),
            what=": ".join(filter(None, (where_text(attempt), attempt.message))),
        )
        before = digest


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionRow:
    """One revision and what ranks made of it."""

    attempt: int
    number: int
    cause: str
    state: str
    step: str
    moved: str
    gain: str
    waited: str
    why: str


CAUSES = {
    Cause.PACE: "a stage computes at another pace than planned",
    Cause.PEAK: "a rank held more than its bound",
    Cause.CAPACITY: "a device is smaller than planned",
}


def revision_rows(record: RunRecord) -> Iterator[RevisionRow]:
    """Yield all revisions, the oldest first."""
    for one in record.revisions:
        recorded, revision = one.recorded, one.recorded.revision
        is_settled = recorded.settled_s > 0
        change = 100 * (revision.step_after_s / revision.step_before_s - 1)
        paces = ", ".join(f"{pace:.3g}" for pace in revision.paces)
        is_pace = revision.cause is Cause.PACE
        yield RevisionRow(
            attempt=one.attempt,
            number=recorded.number,
            cause=CAUSES[revision.cause] + (f": {paces}" if is_pace else ""),
            state=recorded.state,
            step=str(recorded.num_steps) if is_settled else "",
            moved=", ".join(
                f"{move.layer}: {move.source} to {move.destination}"
                for move in revision.moves
            )
            or "none",
            gain=f"{change:+.1f} %",
            waited=seconds_text(recorded.moved_s) if recorded.moved_s else "",
            why=recorded.message,
        )


def where_text(attempt: StoredAttempt) -> str:
    """The rank that ended an attempt, and its phase."""
    parts = [] if attempt.rank is None else [f"rank {attempt.rank}"]
    return ", ".join(parts + ([str(attempt.phase)] if attempt.phase else []))


def ended_text(attempt: StoredAttempt) -> str:
    """When an attempt ended; nothing where it has not."""
    if attempt.ending is None:
        return ""
    return f"{datetime.fromtimestamp(attempt.ended_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def provenance(record: RunRecord, plan: HybridPlan | None) -> Iterator[tuple[str, str]]:
    """Yield what the numbers rest on: name and value."""
    if record.uid:
        yield "TrainingPlan", f"{record.name}, uid {record.uid}"
    yield "Plimsoll", __version__
    if saves := saves_text(record.status):
        yield "Checkpoints", saves
    if weights := weights_text(record.status):
        yield "Trained weights", weights
    if record.status.start_time:
        yield "Started", time_text(record.status.start_time)
    if record.status.completion_time:
        yield "Ended", time_text(record.status.completion_time)
    for part in record.unknown:
        yield "Not known here", part
    if record.problem is not None:
        yield from question_facts(record.problem)
    if plan is not None:
        yield from plan_facts(record, plan)
    elif record.problem is not None:
        yield from code_facts(record.problem.profile.fingerprint)


def plan_facts(record: RunRecord, plan: HybridPlan) -> Iterator[tuple[str, str]]:
    """Yield which plan it is, and what of it was run."""
    yield "Plan", f"{digest_of(plan)}, revision {plan.revision}"
    yield "Engine", f"{plan.engine} {plan.engine_version}"
    yield from code_facts(plan.fingerprint)
    yield "Same code on every rank", same_code_text(record, plan)
    profile = record.status.profile
    if profile is not None:
        kept = ", from the store" if profile.is_cached else ", made for this plan"
        yield "Profile", f"{profile.source}{kept}; request {profile.request_key}"


def question_facts(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield the machines and the question that were asked about."""
    memory = (
        f"{offer_text(one)}, "
        f"{at_most(problem.limits.usable_bytes(one.device_memory_bytes))} a device"
        for one in problem.offers
    )
    yield "Machines", "; ".join(memory)
    objective, num_steps = problem.objective, problem.num_steps
    parts = [str(objective.goal), f"batch of {problem.global_batch_size:,}"]
    parts += [f"{num_steps:,} steps"] if num_steps else []
    if objective.deadline_s is not None:
        parts.append(f"deadline {seconds_text(objective.deadline_s)}")
    elif objective.min_samples_per_s is not None:
        parts.append(f"{number_text(objective.min_samples_per_s)} samples/s or more")
    elif floor := problem.relative_floor:
        noun = device_noun(problem.offers)
        parts.append(f"{floor:.0%} of the best rate per {noun}, or more")
    yield "Question", "; ".join(parts)


def code_facts(fingerprint: Fingerprint) -> Iterator[tuple[str, str]]:
    """Yield the code that was profiled, its arguments and versions."""
    yield "Source of the workload", fingerprint.source_digest
    yield "Arguments", fingerprint.arguments
    versions = [f"Python {fingerprint.python_version}"]
    versions += [f"torch {fingerprint.torch_version}"]
    versions += [f"{one.name} {one.version}" for one in fingerprint.libraries]
    yield "Versions", ", ".join(versions)
    if fingerprint.image:
        yield "Image", fingerprint.image


def same_code_text(record: RunRecord, plan: HybridPlan) -> str:
    """Whether the ranks ran what was profiled."""
    matches = [one.fingerprint == plan.fingerprint for one in record.observations]
    if not matches:
        return "no rank has reported"
    if all(matches):
        return (
            f"yes, {len(matches)} of {plan.num_gpus} reported the profile's fingerprint"
        )
    return f"no, {matches.count(False)} of {len(matches)} reported another fingerprint"
