"""The page in a real browser: alone, quiet, and as narrow as a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.page import report_html
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.api.status import Truth
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from tests.support.browser import Browser, require_chromium
from tests.support.curves import an_answer
from tests.support.grids import a_grid_question, with_whole_grid
from tests.support.grids import an_answer as a_grid_answer
from tests.support.placed_questions import a_tight_question
from tests.support.questions import a_device, a_question
from tests.support.reports import a_record, a_run, a_status

PHONE, WINDOW, DESK = 390, 1120, 1280
CUT_OFF = """[...document.querySelectorAll('svg text')].filter(text => {
  const own = text.getBoundingClientRect()
  const all = text.closest('svg').getBoundingClientRect()
  return own.right > all.right + 0.5 || own.left < all.left - 0.5
}).map(text => text.textContent)"""
"""Words of a chart that stand beyond its edge."""
CLIPPED = """
[...document.querySelectorAll('.scroll')].filter(
  box => box.querySelector('table') && box.scrollWidth > box.clientWidth + 1
).map(box => box.getAttribute('aria-label')).join(', ')
"""
"""Tables that are wider than the page shows, in JavaScript."""
BROKEN_NOWHERE = "a-name-that-is-nowhere-broken-" * 6


def a_long_one() -> RunRecord:
    """Build a run of eight stages whose names and messages are long."""
    question = a_question(
        offers=(a_device(700, name=BROKEN_NOWHERE),),
        global_batch_size=64,
        limits=Limits(max_gpus=8),
        override=Override(num_gpus=8, num_stages=8, micro_batch=1),
    )
    record = a_run(question, name=BROKEN_NOWHERE)
    plan = record.plan
    assert plan is not None
    message = BROKEN_NOWHERE.replace("-", "_")
    ended = StoredAttempt(
        number=1, plan=plan, ending=Ending.APPLICATION_ERROR, message=message
    )
    status = a_status("Valid", "AppError", truth=Truth.FALSE, message=message)
    losses = tuple((step, 9.0 / step) for step in range(1, 2000))
    return replace(record, attempts=(ended,), status=status, losses=losses)


def a_grid_of_kinds() -> RunRecord:
    """Build the answer to a question about machines with long names."""
    offers = tuple(
        a_device(
            memory_bytes,
            name=f"{BROKEN_NOWHERE}{memory_bytes}",
            price_per_node_hour=Decimal("123456.78"),
        )
        for memory_bytes in (900, 1100)
    )
    question = a_question(offers=offers, limits=Limits(max_gpus=64))
    return a_record(question, answer=with_whole_grid(question))


RECORDS: dict[str, Callable[[], RunRecord]] = {
    "run": a_run,
    "plan": a_record,
    "one": lambda: a_run(a_question(5000)),
    "long": a_long_one,
    "refused": lambda: a_record(a_question(200, limits=Limits(max_gpus=3))),
    "curve": lambda: a_run(a_question(900), answer=an_answer()),
    "placed": lambda: a_run(a_tight_question(4)),
    "grid": lambda: a_record(a_grid_question(), answer=a_grid_answer()),
    "kinds": a_grid_of_kinds,
    "nothing": lambda: a_record(problem=None, answer=None),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all pages."""
    require_chromium()
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", RECORDS)
def test_a_page_is_quiet_alone_and_narrow(
    name: str, is_dark: bool, browser: Browser, tmp_path: Path
) -> None:
    """No complaint, no request, no scrolling sideways; no table or word is clipped.

    On a phone, a narrow window and a desk, in light and dark, which are two pages.
    """
    file = tmp_path / "report.html"
    file.write_text(report_html(RECORDS[name]()), encoding="utf-8")
    for width in (PHONE, WINDOW, DESK):
        page = browser.open(file, width=width, is_dark=is_dark)
        assert page.complaints() == []
        assert page.requests() == []
        assert page.value("document.documentElement.scrollWidth") == width
        page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.value(CLIPPED) == ""
        assert page.value(CUT_OFF) == []
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(18, 22, 27)") is is_dark


def test_a_browser_would_have_noticed(browser: Browser, tmp_path: Path) -> None:
    """A page that fetches, complains and is too wide is reported as such."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<img src='file:///nowhere.png'><script>console.error('no')</script>"
        "<div style='width:2000px'>wide</div>",
        encoding="utf-8",
    )
    page = browser.open(file, width=PHONE)
    assert page.complaints()
    assert page.requests() == ["file:///nowhere.png"]
    assert page.value("document.documentElement.scrollWidth") > PHONE


def test_the_load_line_stands_at_the_same_place_in_all_bars(
    browser: Browser, tmp_path: Path
) -> None:
    """One line through the picture: its place on the screen is that of the capacity."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run()), encoding="utf-8")
    page = browser.open(file, width=DESK)
    lefts = page.value(
        "[...document.querySelectorAll('.bar .load')]"
        ".map(e => Math.round(e.getBoundingClientRect().left))"
    )
    assert len(lefts) > 2
    assert len(set(lefts)) == 1


def test_a_timeline_that_is_cut_says_that_it_scrolls(
    browser: Browser, tmp_path: Path
) -> None:
    """On a phone, and not where all of it is there; no chart of plans is blown up."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run()), encoding="utf-8")
    hint = "getComputedStyle(document.querySelector('.hint')).display"
    assert browser.open(file, width=PHONE).value(hint) == "block"
    page = browser.open(file, width=WINDOW)
    assert page.value(hint) == "none"
    width = "document.querySelector('.front .plot').clientWidth"
    assert page.value(width) <= 34 * 16


@pytest.mark.parametrize("width", [PHONE, 720, WINDOW])
@pytest.mark.parametrize("name", ["grid", "kinds"])
def test_no_word_of_a_cell_leaves_it(
    name: str, width: int, browser: Browser, tmp_path: Path
) -> None:
    """Also with all plans shown; on a phone each cell is a line with its heading."""
    file = tmp_path / "report.html"
    file.write_text(report_html(RECORDS[name]()), encoding="utf-8")
    page = browser.open(file, width=width)
    page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    leaving = """[...document.querySelectorAll('.what-if td *')].filter(word => {
      const own = word.getBoundingClientRect()
      const cell = word.closest('td').getBoundingClientRect()
      return own.right > cell.right + 0.5 || own.left < cell.left - 0.5
    }).map(word => word.textContent)"""
    assert page.value(leaving) == []
    heading = (
        "getComputedStyle(document.querySelector('.what-if td'), '::before').content"
    )
    is_named = page.value(heading) == '"micro-batch 1"'
    assert is_named is (width == PHONE)
    head = "getComputedStyle(document.querySelector('.what-if thead')).display"
    assert (page.value(head) == "none") is is_named


def test_a_tap_shows_the_plan_of_a_cell(browser: Browser, tmp_path: Path) -> None:
    """Without a script; the table of the plan is open, and no cell of it."""
    file = tmp_path / "report.html"
    file.write_text(report_html(RECORDS["grid"]()), encoding="utf-8")
    page = browser.open(file, width=PHONE)
    shows = "document.querySelector('.what-if .this li').checkVisibility()"
    assert page.value(shows) is False
    page.value("document.querySelector('.what-if .this summary').click()")
    assert page.value(shows) is True
    text = "document.querySelector('.what-if .this li').textContent"
    assert page.value(text) == "3 stages x 1 replica"
