"""Checks of reports: by whom, about which subject; without effects.

In: a document, a reporter, the plan of record. Out: nothing, or an error whose text is
the answer. Called by `server`.

    what           by        must match                           else
    ---------------------------------------------------------------------------
    ModelProfile   profile   request key = subject                403
    Replay         replay    plan digest = subject                403
    Rehearsal      rehearsal plan digest = subject                403
                             rank, fingerprint, device kind       422
                             no more bytes than a device has      422
    Observation    train     attempt, plan digest                 409
                             rank = one of the pod's              403
                             fingerprint, device kind             422
                             no more bytes than a device has      422
    End            train     at most the pod's ranks, no others   422
"""

from __future__ import annotations

import math
from http import HTTPStatus

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.assignments import refuse
from plimsoll_operator.ingest.identity import Reporter
from plimsoll_operator.ingest.recorded_attempts import Recorded
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint, ModelProfile
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.task import End

MOST_DEVICE_BYTES = 2**42
MOST_TEXT = f"at most {MOST_DEVICE_BYTES} bytes: no device has more"


def check_kind(reporter: Reporter, wanted: TaskKind) -> None:
    """Refuse a report that is the business of another kind of task.

    Raises:
        RefusedReportError: it is another one.
    """
    if reporter.kind is not wanted:
        refuse(
            f"the Job {reporter.job_name} is of the kind {reporter.kind}, and this is "
            f"reported by {wanted}"
        )


def check_profile(profile: ModelProfile, reporter: Reporter) -> None:
    """Refuse a profile that answers another request."""
    check_subject("ModelProfile.request_key", profile.request_key, reporter)


def check_replay(replay: Replay, reporter: Reporter) -> None:
    """Refuse a replay of another plan."""
    check_subject("Replay.plan_digest", replay.plan_digest, reporter)


def check_subject(path: str, found: str, reporter: Reporter) -> None:
    """Refuse a report on something else than the Job was made for.

    Raises:
        RefusedReportError: it is.
    """
    if found != reporter.subject:
        refuse(f"{path}: the Job was asked for {reporter.subject}")


def check_rehearsal(
    rehearsal: Rehearsal, reporter: Reporter, asked: HybridPlan
) -> None:
    """Refuse a rehearsal that was not asked for; `asked` is the plan of the request.

    Raises:
        RefusedReportError: it is of another plan.
        InvalidFieldError: of another rank, other code or devices.
    """
    seen = rehearsal.observation
    check_subject("Rehearsal.observation.plan_digest", seen.plan_digest, reporter)
    if seen.rank != asked.fullest_rank:
        rule = f"{asked.fullest_rank}, the fullest rank of the plan"
        raise InvalidFieldError("Rehearsal.observation.rank", seen.rank, rule)
    kind = asked.offers[0].device_kind
    check_origin(seen, "Rehearsal.observation", asked.fingerprint, kind)


def check_origin(
    seen: Observation, path: str, fingerprint: Fingerprint, kind: DeviceKind
) -> None:
    """Refuse what was observed of other code or devices than a plan is for.

    Raises:
        InvalidFieldError: it is, or says more bytes than any device has.
    """
    if seen.fingerprint != fingerprint:
        raise InvalidFieldError(
            f"{path}.fingerprint", seen.fingerprint, "that of the plan"
        )
    if seen.device_kind is not kind:
        raise InvalidFieldError(f"{path}.device_kind", seen.device_kind, kind)
    for peak in seen.peaks:
        most = max(peak.allocated_bytes, peak.reserved_bytes, peak.device_bytes)
        if most > MOST_DEVICE_BYTES:
            raise InvalidFieldError(f"{path}.peaks", most, MOST_TEXT)


def check_observation(
    observation: Observation, reporter: Reporter, recorded: Recorded
) -> None:
    """Refuse what a pod cannot have observed.

    Raises:
        RefusedReportError: it is of another attempt, plan or pod.
        InvalidFieldError: of other code or devices than the plan is for; a rank that
            finds such does not train.
    """
    if observation.attempt != reporter.attempt:
        raise RefusedReportError(
            HTTPStatus.CONFLICT,
            f"Observation.attempt: the pod belongs to attempt {reporter.attempt}",
        )
    if observation.plan_digest != recorded.digest:
        raise RefusedReportError(
            HTTPStatus.CONFLICT,
            f"Observation.plan_digest: the plan of record is {recorded.digest}",
        )
    ranks = ranks_of(reporter, recorded)
    if observation.rank not in ranks:
        refuse(
            f"Observation.rank: those of the pod are {ranks.start} to {ranks.stop - 1}"
        )
    check_origin(observation, "Observation", recorded.fingerprint, recorded.device_kind)


def check_end(end: End, reporter: Reporter, recorded: Recorded) -> None:
    """Refuse the end of processes that a pod cannot have had.

    Raises:
        InvalidFieldError: more of them than ranks, the first is none of them, or the
            full device is that of another pod's rank.
    """
    ranks = ranks_of(reporter, recorded)
    if len(end.exits) > len(ranks):
        rule = f"at most {len(ranks)}, the ranks of the pod"
        raise InvalidFieldError("End.exits", len(end.exits), rule)
    if end.first is not None and end.first >= len(end.exits):
        raise InvalidFieldError("End.first", end.first, "one of the processes")
    full = end.full_device
    if full is not None and full.rank not in ranks:
        raise InvalidFieldError(
            "End.full_device.rank", full.rank, "one of the pod's ranks"
        )


def ranks_of(reporter: Reporter, recorded: Recorded) -> range:
    """The ranks of a pod.

    Raises:
        RefusedReportError: the plan has no such pod.
    """
    first = reporter.pod_index * recorded.gpus_per_pod
    if first >= len(recorded.peaks):
        refuse(f"the plan has no pod {reporter.pod_index}")
    return range(first, first + recorded.gpus_per_pod)


def made_s(reporter: Reporter, now_s: float) -> float:
    """Time at which a profile counts as made, seconds since 1970: after its cause."""
    return max(now_s, math.nextafter(reporter.after_s, math.inf))
