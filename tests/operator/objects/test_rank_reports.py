"""Reports of ranks in one document, as they are recorded."""

from __future__ import annotations

from dataclasses import fields

from plimsoll_operator.objects.manifests import packed
from plimsoll_operator.objects.rank_reports import (
    RankReports,
    ReportedRevision,
    rank_reports,
)
from plimsoll_operator.rules.observed_state import RecordedRevision, RevisionState
from plimsoll_planner.records.document import from_text, to_text
from tests.support.builders import a_revision, an_observation


def test_reports_and_revisions_are_read_as_they_were_recorded() -> None:
    """Each field of a revision, also where its ranks refused it."""
    revisions = (
        RecordedRevision(revision=a_revision(), made_s=1.5),
        RecordedRevision(
            revision=a_revision(),
            made_s=2.5,
            state=RevisionState.REFUSED,
            settled_s=3.5,
            num_steps=40,
            moved_bytes=7,
            moved_s=0.25,
            message="no room",
        ),
    )
    observed = (an_observation(rank=0), an_observation(rank=1))
    written = to_text(rank_reports(observed, revisions))
    read = from_text(written, RankReports)
    assert read.observations == observed
    assert read.recorded == revisions


def test_a_revision_has_the_fields_that_are_recorded() -> None:
    """One that is added has to be added here."""
    names = [field.name for field in fields(RecordedRevision)]
    assert [field.name for field in fields(ReportedRevision)] == names


def test_ranks_that_report_alike_take_little_room() -> None:
    """Packed together: 512 of them go into a ConfigMap many times over."""
    many = rank_reports([an_observation(rank=rank) for rank in range(512)], ())
    one = rank_reports([an_observation(rank=0)], ())
    small, large = (
        len(packed(reports=made)["reports.json.gz"]) for made in (one, many)
    )
    assert large < 30 * small
