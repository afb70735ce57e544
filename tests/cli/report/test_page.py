"""The page as a whole: what it says, what it leaves out, and that it is alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.page import report_html
from plimsoll_cli.state.run_record import RunRecord, planned_record
from plimsoll_operator.api.status import Status, Truth
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.search.answer import solve
from tests.support.builders import a_fingerprint
from tests.support.curves import an_answer
from tests.support.placed_questions import a_tight_question
from tests.support.questions import a_question
from tests.support.reports import a_record, a_run, a_status

EVIL = "</style></title><script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"
VOID = {"meta", "link", "br", "img"}
LEAVES = {"circle", "path", "polyline", "rect"}
"""Elements of SVG that end at once."""


class Outline(HTMLParser):
    """Checks that what is opened is closed, and gathers what tests look at."""

    def __init__(self) -> None:
        """Begin."""
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that ends at once, as only some of SVG do."""
        assert tag in LEAVES
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element."""
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        """Gather what is read."""
        if self.open and self.open[-1] != "style":
            self.text += data

    def of(self, *tags: str) -> list[dict[str, str]]:
        """Attributes of all elements of some kinds."""
        return [attributes for tag, attributes in self.found if tag in tags]


def outline(record: RunRecord) -> Outline:
    """Read the page of a record."""
    parser = Outline()
    parser.feed(report_html(record))
    parser.close()
    assert parser.open == []
    return parser


def failed() -> RunRecord:
    """Build a run that was tried twice."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    attempts = (
        StoredAttempt(number=1, plan=plan, ending=Ending.OUT_OF_MEMORY, message="full"),
        StoredAttempt(number=2, plan=plan),
    )
    return replace(record, attempts=attempts)


RECORDS: dict[str, Callable[[], RunRecord]] = {
    "a run": a_run,
    "two attempts": failed,
    "a dry run": a_record,
    "one rank": lambda: a_run(a_question(5000)),
    "a placement": lambda: a_run(a_tight_question()),
    "a placement of another graph": lambda: replace(
        a_run(a_tight_question()), problem=None
    ),
    "a curve": lambda: a_run(a_question(900), answer=an_answer()),
    "no plan": lambda: a_record(a_question(200, limits=Limits(max_gpus=3))),
    "no answer": lambda: replace(a_record(), answer=None),
    "nothing": lambda: a_record(problem=None, answer=None),
    "no problem": lambda: replace(a_run(), problem=None),
}
by_record = pytest.mark.parametrize("make", RECORDS.values(), ids=list(RECORDS))


@by_record
def test_a_page_is_whole_and_readable_without_eyes(
    make: Callable[[], RunRecord],
) -> None:
    """Elements are closed, ids occur once, and what is drawn has words.

    Tables have headings, drawings a title and a description, bars a label.
    """
    page = outline(make())
    ids = [a["id"] for _, a in page.found if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.found:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in ids
    for heading in page.of("th"):
        assert heading["scope"] in {"col", "row"}
    for drawing in page.of("svg"):
        assert (
            drawing.get("aria-hidden") or len(drawing["aria-labelledby"].split()) == 2
        )
    for _, attributes in page.found:
        if attributes.get("role") in {"img", "region"}:
            assert attributes.get("aria-label") or attributes.get("aria-labelledby")
    assert len(page.of("table")) <= len(page.of("thead"))
    assert len(page.of("h1")) == 1


@by_record
def test_a_page_needs_nothing_besides_itself(make: Callable[[], RunRecord]) -> None:
    """No script, nothing that is fetched, and a policy that would refuse both."""
    page = outline(make())
    assert page.of("script", "img", "iframe", "object") == []
    assert [link["href"][:5] for link in page.of("link")] == ["data:"]
    assert not any("src" in attributes for _, attributes in page.found)
    [policy] = [m for m in page.of("meta") if "http-equiv" in m]
    assert policy["content"].startswith("default-src 'none';")
    text = report_html(make())
    assert re.findall(r"(?:url\(|@import|https?:)[^)\s]*", text) in (
        [],
        ["url(#hatch"],
        ["http://www.w3.org/2000/svg'"],
        ["http://www.w3.org/2000/svg'", "url(#hatch"],
    )


def test_a_run_is_told_from_the_plan_to_the_loss() -> None:
    """Plan, memory, step, proof, choices and course are on one page."""
    text = outline(a_run()).text
    headings = (
        *("Succeeded", "Memory by rank", "One step", "Why not fewer"),
        *("What else could be had", "The run", "Attempts", "What this rests on"),
    )
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_memory_against_speed_is_beside_the_other_plans() -> None:
    """Between what else could be had and the run, if an answer has it."""
    text = outline(a_run(a_question(900), answer=an_answer())).text
    headings = ("What else could be had", "Memory against speed", "The run")
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert "Memory against speed" not in outline(a_run()).text


def test_what_is_not_there_is_left_out() -> None:
    """Before anything is known there is a name and a state, and no empty section."""
    text = outline(a_record(problem=None, answer=None)).text
    assert "No plan yet" in text
    for absent in ("Memory by", "One step", "Why not", "What else", "Attempts"):
        assert absent not in text


def test_a_refusal_is_told_without_a_plan() -> None:
    """The counts and what would do; no memory, no step."""
    text = outline(a_record(a_question(200, limits=Limits(max_gpus=3)))).text
    assert "Why no plan" in text
    assert "Would do: " in text
    assert "Memory by" not in text


def test_a_question_of_a_command_line_has_its_words() -> None:
    """Options, no backticks, and no condition of a resource that there is not."""
    problem = a_question(200, limits=Limits(max_gpus=3))
    page = report_html(planned_record("tiny", problem, solve(problem)))
    assert "`" not in page
    assert "<code>HostLinkGBps</code>" in page
    assert "no plan fits, and nothing was launched" in page
    assert "✗ Succeeded" not in page
    assert "spec." not in report_html(
        planned_record("tiny", a_question(700), solve(a_question(700)))
    )


def test_what_users_write_is_text() -> None:
    """Wherever a name, a message or an argument stands, it stays what it is."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    evil = replace(
        record,
        name=EVIL,
        uid=EVIL,
        attempts=(
            StoredAttempt(number=1, plan=plan, ending=Ending.DONE, message=EVIL),
        ),
    )
    page = outline(evil)
    assert page.of("script", "img") == []
    assert page.text.count(EVIL) >= 3


def test_code_that_was_profiled_anew_has_another_problem() -> None:
    """The plan that ran is of the profile before: neither its kinds nor its step."""
    record = a_run()
    assert record.problem is not None
    fingerprint = a_fingerprint(source_digest="sha256:" + "1" * 64)
    profile = replace(record.problem.profile, fingerprint=fingerprint)
    text = outline(
        replace(record, problem=replace(record.problem, profile=profile))
    ).text
    assert "Memory by rank" in text
    assert "optimizer state" not in text
    assert "One step" not in text


def test_a_dry_run_has_no_failure() -> None:
    """That nothing was launched is what it asked for, and no red cross."""
    status = a_status("Valid", "PlanOnly", truth=Truth.FALSE)
    assert "✗" not in conditions_of(status)
    assert "✗" in conditions_of(a_status("Valid", "AppError", truth=Truth.FALSE))


def conditions_of(status: Status) -> str:
    """List of conditions in a page."""
    _, _, rest = report_html(a_record(status=status)).partition('class="conditions"')
    return rest.partition("</ol>")[0]
