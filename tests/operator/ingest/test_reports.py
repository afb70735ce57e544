"""What may be told, by whom, about what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest import reports
from plimsoll_operator.ingest.recorded_attempts import Recorded, recorded_in
from plimsoll_operator.objects.bounded import bounded_document
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import digest_of, to_text
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.plan import Phase, PodShape
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.task import End, Exit, FullDevice
from tests.support.builders import (
    DIGEST,
    a_failed_rehearsal,
    a_fingerprint,
    a_plan,
    a_profile,
    a_rehearsal,
    a_replay,
    an_observation,
)
from tests.support.reporting_pods import a_plan_of_record, a_reporter

OTHER = f"sha256:{1:064}"
HUGE = ObservedPeak(
    phase=Phase.BACKWARD, allocated_bytes=1, reserved_bytes=1, device_bytes=2**42 + 1
)
TWO_PODS = PodShape(num_pods=2, gpus_per_pod=2, host_memory_bytes_per_pod=2**30)


def a_record(**fields: Any) -> Recorded:
    """Build what counts of a plan of two pods with two ranks each."""
    found = recorded_in(a_plan_of_record(a_plan(pods=TWO_PODS)))
    return replace(found, **fields)


def proper(**fields: Any) -> Observation:
    """Build what rank 0 of that plan observes."""
    return an_observation(**({"plan_digest": a_record().digest} | fields))


def status_of(refused: pytest.ExceptionInfo[RefusedReportError]) -> int:
    """Status of an answer."""
    return refused.value.status


def test_a_report_is_read_as_it_was_written() -> None:
    """Whatever document it is."""
    assert bounded_document(to_text(a_profile()).encode(), ModelProfile) == (
        a_profile()
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attempt": 1.5}, "Observation.attempt: got 1.5, allowed is a whole number"),
        ({"step_s": [float("nan")]}, r"Observation.step_s\[0\]: got nan, allowed is"),
        ({"step_s": [float("inf")]}, r"Observation.step_s\[0\]: got inf, allowed is"),
        ({"sail": 1}, "Observation.sail: no such field"),
        ({"kind": "Replay"}, "Observation.kind: got 'Replay', allowed is Observation"),
        ({"schema_version": 99}, "schema_version: got 99"),
        ({"peaks": [[]]}, r"Observation.peaks\[0\]: got \[\], allowed is a mapping"),
    ],
)
def test_a_report_that_is_no_document_is_refused_by_name(
    change: dict[str, Any], said: str
) -> None:
    """The text names the field, the value and the bound."""
    body = json.dumps(an_observation().to_json() | change).encode()
    with pytest.raises(InvalidInputError, match=said):
        bounded_document(body, Observation)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"kind": "Observation", "kind": "Observation"}',
        b'{"rank": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    """Empty, cut off, binary, nested too deeply, ambiguous, or endless."""
    with pytest.raises(InvalidInputError, match=r"^Observation: "):
        bounded_document(body, Observation)


@pytest.mark.parametrize("part", [b"[],", b"{},", b'"a":1,', b"0,"])
def test_what_would_fill_the_memory_is_not_read(part: bytes) -> None:
    """Lists of nothing take twenty times the memory of their text."""
    body = b"[" + part * (12 * 2**20 // len(part))
    with pytest.raises(InvalidInputError, match="more than 400000 lists"):
        bounded_document(body, ModelProfile)


def test_a_profile_of_many_layers_is_within_the_bounds() -> None:
    """1e5 layers."""
    number = 100_000
    profile = a_profile()
    names = tuple(f"block.{place}" for place in range(number))
    layers = replace(profile.layers, name=names, kind=(0, *(1,) * (number - 1)))
    large = replace(profile, layers=layers, tied=())
    body = to_text(large).encode()
    assert bounded_document(body, ModelProfile) == large


@pytest.mark.parametrize("wanted", list(TaskKind))
def test_each_kind_of_task_reports_its_own(wanted: TaskKind) -> None:
    """And nothing else."""
    for kind in TaskKind:
        reporter = a_reporter(kind=kind)
        if kind is wanted:
            reports.check_kind(reporter, wanted)
            continue
        with pytest.raises(RefusedReportError, match=f"is reported by {wanted}") as no:
            reports.check_kind(reporter, wanted)
        assert status_of(no) == 403


def test_a_task_reports_what_it_was_asked_for() -> None:
    """The subject of its Job says what that is."""
    reporter = a_reporter(subject=DIGEST)
    reports.check_profile(a_profile(), reporter)
    reports.check_replay(a_replay(), reporter)
    with pytest.raises(RefusedReportError, match="request_key") as no:
        reports.check_profile(a_profile(request_key=OTHER), reporter)
    assert status_of(no) == 403
    with pytest.raises(RefusedReportError, match="plan_digest") as no:
        reports.check_replay(a_replay(plan_digest=OTHER), reporter)
    assert status_of(no) == 403


def test_a_pod_tells_of_its_own_ranks() -> None:
    """By its index, and the GPUs of a pod."""
    recorded = a_record()
    told = {0: (0, 1), 1: (2, 3)}
    for index, ranks in told.items():
        reporter = a_reporter(pod_index=index)
        for rank in range(5):
            observation = proper(rank=rank)
            if rank in ranks:
                reports.check_observation(observation, reporter, recorded)
                continue
            with pytest.raises(RefusedReportError, match="rank") as no:
                reports.check_observation(observation, reporter, recorded)
            assert status_of(no) == 403


def test_a_pod_beyond_the_plan_has_no_ranks() -> None:
    """Whatever index it shows."""
    with pytest.raises(RefusedReportError, match="the plan has no pod 2") as no:
        reports.check_observation(proper(), a_reporter(pod_index=2), a_record())
    assert status_of(no) == 403


def test_an_observation_of_another_attempt_comes_too_late() -> None:
    """So does one of a plan that is not on record."""
    for change, said in (
        ({"attempt": 2}, "the pod belongs to attempt 1"),
        ({"plan_digest": OTHER}, "the plan of record is sha256:"),
    ):
        with pytest.raises(RefusedReportError, match=said) as no:
            reports.check_observation(proper(**change), a_reporter(), a_record())
        assert status_of(no) == 409


def test_a_run_of_something_else_is_forged() -> None:
    """Other code and other devices than planned for do not train at all."""
    for change, said in (
        ({"fingerprint": a_fingerprint(torch_version="1.0")}, "fingerprint: got a"),
        ({"device_kind": DeviceKind.EMULATED}, "device_kind: got .*, allowed is cuda"),
        ({"peaks": (HUGE,)}, "peaks: got 4398046511105, .*: no device has more"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            reports.check_observation(proper(**change), a_reporter(), a_record())


def rehearsed(**fields: Any) -> Rehearsal:
    """Build what the pod of a rehearsal tells of the plan's fullest rank."""
    given = {"plan_digest": digest_of(a_plan()), "num_communicators": 0} | fields
    return a_rehearsal(observation=an_observation(**given))


OF_REHEARSAL = a_reporter(kind=TaskKind.REHEARSAL, subject=digest_of(a_plan()))


def test_a_rehearsal_is_of_the_rank_that_was_asked_for() -> None:
    """Whether it fits or not."""
    reports.check_rehearsal(rehearsed(), OF_REHEARSAL, a_plan())
    seen = replace(a_failed_rehearsal().observation, plan_digest=OF_REHEARSAL.subject)
    failed = a_failed_rehearsal(observation=seen)
    reports.check_rehearsal(failed, OF_REHEARSAL, a_plan())
    with pytest.raises(RefusedReportError, match="the Job was asked for") as no:
        reports.check_rehearsal(rehearsed(plan_digest=OTHER), OF_REHEARSAL, a_plan())
    assert status_of(no) == 403


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": 1}, "Rehearsal.observation.rank: got 1, allowed is 0, the fullest"),
        (
            {"fingerprint": a_fingerprint(torch_version="1.0")},
            "Rehearsal.observation.fingerprint: got a",
        ),
        (
            {"device_kind": DeviceKind.EMULATED},
            "Rehearsal.observation.device_kind: got .*, allowed is cuda",
        ),
        ({"peaks": (HUGE,)}, "peaks: got 4398046511105, .*: no device has more"),
    ],
)
def test_a_rehearsal_of_something_else_is_forged(
    change: dict[str, Any], said: str
) -> None:
    """What it says would widen or narrow the bound of others."""
    with pytest.raises(InvalidInputError, match=said):
        reports.check_rehearsal(rehearsed(**change), OF_REHEARSAL, a_plan())


def test_an_end_is_of_the_pods_processes() -> None:
    """None where they could not be started; never more than ranks."""
    for number in range(4):
        end = End(at_s=1.0, exits=(Exit(status=0),) * number)
        if number <= 2:
            reports.check_end(end, a_reporter(), a_record())
            continue
        with pytest.raises(InvalidInputError, match=r"End.exits: got 3, allowed is"):
            reports.check_end(end, a_reporter(), a_record())
    end = End(at_s=1.0, exits=(Exit(status=1),), first=1)
    with pytest.raises(InvalidInputError, match=r"End.first: got 1, allowed is"):
        reports.check_end(end, a_reporter(), a_record())


def test_the_full_device_is_one_of_the_pods() -> None:
    """What is looked up by its rank later is there."""
    for rank in range(5):
        full = FullDevice(rank=rank, phase=Phase.BACKWARD, asked_bytes=0)
        end = End(at_s=1.0, exits=(Exit(status=1),), full_device=full)
        reporter = a_reporter(pod_index=1)
        if rank in (2, 3):
            reports.check_end(end, reporter, a_record())
            continue
        with pytest.raises(InvalidInputError, match=r"End.full_device.rank: got"):
            reports.check_end(end, reporter, a_record())


def test_a_profile_is_later_than_its_cause() -> None:
    """Also by a clock that was set back, by as little as can be."""
    assert reports.made_s(a_reporter(after_s=5.0), 6.0) == 6.0
    for now_s in (4.0, 5.0):
        made_s = reports.made_s(a_reporter(after_s=5.0), now_s)
        assert 5.0 < made_s < 5.000001
