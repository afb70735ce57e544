"""Output while a plan goes on: in a log, and on terminals of any width."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.text import Text

from plimsoll_cli.output import run_view
from plimsoll_cli.output.memory_bars import LINE, memory_bars
from plimsoll_cli.output.plan_page import outcome_lines
from plimsoll_cli.output.run_view import RunView, words_of
from plimsoll_operator.api.reasons import REASONS
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.backends.local.loop import PassResult
from plimsoll_operator.backends.local.rank_reports import StepResult, Unsaved
from plimsoll_operator.rules.observed_state import Ending, ObservedState
from plimsoll_operator.rules.summary import observed_status
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.overhead.built_in import EMULATED
from plimsoll_planner.records.interval import SecondsInterval
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.solution import Infeasible
from tests.support.questions import a_question
from tests.support.reports import a_record, a_run, a_status, told_by_all
from tests.support.specs import a_spec


def a_plan_of_record() -> HybridPlan:
    """Plan that the search has made."""
    plan = a_run().plan
    assert plan is not None
    return plan


def a_result(**fields: Any) -> PassResult:
    """Build what a pass sees that has begun to train."""
    plan = a_plan_of_record()
    done = ("Valid", "Measured", "Proven", "Replayed", "Started")
    status = a_status(*done, "Running", truth=Truth.UNKNOWN)
    stored = StoredPlan(
        uid="uid",
        name="chain",
        generation=1,
        spec=a_spec(),
        status=Status(),
        offers=plan.offers,
        folder="/code",
        created_s=0.0,
        is_suspended=False,
        was_told=False,
    )
    defaults: dict[str, Any] = {
        "plan": stored,
        "status": status,
        "state": ObservedState(attempts=(StoredAttempt(number=1, plan=plan),)),
        "reports": None,
        "work": None,
    }
    return PassResult(**(defaults | fields))


def test_a_log_has_no_line_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long a step of the plan takes."""
    monkeypatch.setattr(run_view, "LINE_EVERY_S", 0.0)
    with RunView() as view:
        for _ in range(5):
            view.passed(a_result())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines))
    number = a_plan_of_record().num_gpus
    assert f"· attempt 1: {number} ranks are starting" in lines


def test_how_many_ranks_are_replayed_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And which layer is profiled; the latest line of the process counts."""
    work = tmp_path / "0.out"
    lines = [{"done": done, "total": 8, "what": "ranks"} for done in (2, 3)]
    work.write_text("\n".join(map(json.dumps, lines)))
    reasons = ("Valid", "Measured", "Proven"), ("Valid",)
    for true, reason in zip(reasons, ("Replaying", "Profiling"), strict=True):
        status = a_status(*true, reason, truth=Truth.UNKNOWN)
        with RunView() as view:
            view.passed(a_result(state=ObservedState(), status=status, work=work))
        assert f"· {reason.lower()}: ranks (3 of 8)\n" in capsys.readouterr().err


def test_one_rank_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The verb agrees."""
    plan = a_run(a_question(1_000_000)).plan
    assert plan is not None
    assert plan.num_gpus == 1
    attempt = StoredAttempt(number=1, plan=plan)
    with RunView() as view:
        view.passed(a_result(state=ObservedState(attempts=(attempt,))))
    assert "attempt 1: 1 rank is starting" in capsys.readouterr().err


def test_what_had_ended_before_the_command_began_is_not_told_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An attempt that ends meanwhile is."""
    open_one = StoredAttempt(number=2, plan=a_plan_of_record())
    first = replace(open_one, number=1, ending=Ending.CHECKPOINTED)
    second = replace(open_one, ending=Ending.OUT_OF_MEMORY, message="rank 1: too much")
    with RunView() as view:
        view.passed(a_result(state=ObservedState(attempts=(first, open_one))))
        view.passed(a_result(state=ObservedState(attempts=(first, second))))
    printed = capsys.readouterr().err
    assert "attempt 1" not in printed
    assert "✗ attempt 2 ended: device out of memory: rank 1: too much\n" in printed


def test_a_wait_is_told_once_and_its_end_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And anew when it comes again."""
    with RunView() as view:
        for _ in range(2):
            view.waits("")
            view.waits("the disk is full")
            view.passed(a_result())
            view.waits("the disk is full")
            view.waits("")
    printed = capsys.readouterr().err
    assert printed.count("✗ waiting: the disk is full\n") == 2
    assert printed.count("✓ goes on\n") == 2


def test_a_plan_that_ran_out_when_rehearsed_is_told_with_the_next_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once, and the next plan has a line though it reads the same."""
    refuted = "the plan before ran out of memory"
    planned = a_status("Valid", "Measured", "Proven", "Rehearsed", "Starting")
    searching = a_status("Valid", "Measured", "Solving", truth=Truth.UNKNOWN)
    plan = a_result().state.attempts[:0]
    looks = [(planned, ""), (searching, refuted), (planned, refuted)]
    for is_brief in (False, True):
        with RunView(is_brief=is_brief) as view:
            for status, seen_refuted in looks:
                seen = ObservedState(attempts=plan, refuted=seen_refuted)
                view.passed(a_result(status=status, state=seen))
        lines = capsys.readouterr().err.splitlines()
        shown = [line for line in lines if line.startswith(("✗", "✓ plan"))]
        plan_line = next(iter(shown), "")
        expected = [plan_line, f"✗ {refuted}", plan_line]
        assert shown == ([] if is_brief else expected)


@pytest.mark.parametrize(
    ("reason", "message", "line"),
    [
        ("Replayed", "", "replay: every rank agrees"),
        ("Replayed", "no device", "replay: every rank agrees; no device"),
        ("Rehearsed", "held", "replay: every rank agrees; rehearsal: held"),
        ("Rehearsed", "held; ran out", "replay: every rank agrees; rehearsal: held"),
    ],
)
def test_what_certifies_a_plan_is_named(reason: str, message: str, line: str) -> None:
    """The replay, and with it the rehearsal, or why there was none.

    The line of the plan before is not repeated.
    """
    condition = Condition(
        type=ConditionType.CERTIFIED,
        status=Truth.TRUE,
        reason=reason,
        message=message,
    )
    result = a_result(state=ObservedState(refuted="ran out"))
    assert run_view.settled_text(result, condition) == line


def test_a_quiet_view_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON stands alone."""
    with RunView(is_quiet=True) as view:
        view.passed(a_result())
        view.waits("the disk is full")
        view.say("anything")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("BackingOff", "backing off"),
        ("GPUOutOfMemory", "GPU out of memory"),
        ("HostOOMKilled", "host OOM killed"),
        ("ProfileOOM", "profile OOM"),
        ("Solving", "solving"),
    ],
)
def test_reasons_are_told_as_words(reason: str, words: str) -> None:
    """Abbreviations stay what they are."""
    known = {name for meanings in REASONS.values() for _, name in meanings}
    assert reason in known
    assert words_of(reason) == words


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80, 160])
def test_bars_are_aligned_and_hold_at_every_width(columns: int) -> None:
    """No line is wider than the terminal, and all load lines stand below each other."""
    plan = a_plan_of_record()
    lines = memory_bars(plan, told_by_all(plan), columns=columns)
    assert len(lines) == plan.num_gpus > 1
    assert len({line.plain.find(LINE) for line in lines}) == 1
    if columns >= 40:
        assert max(line.cell_len for line in lines) <= columns
        assert all(LINE in line.plain for line in lines)
    assert ("predicted" in lines[0].plain) is (columns >= 60)


def test_a_bar_fills_up_to_its_load_line_and_no_further() -> None:
    """Half full is half a bar; over the line is red, and still as wide."""
    plan = a_plan_of_record()
    observations = told_by_all(plan)
    peak = observations[0].peaks[0].device_bytes
    half, full, over = (
        memory_bars(plan, observations[:1], capacity, 80)[0]
        for capacity in (2 * peak, peak, peak // 2)
    )
    assert half.plain.count("█") == 14
    assert full.plain.count("█") == over.plain.count("█") == 28
    assert "red" in styles(over)
    assert "red" not in styles(full)


def styles(line: Text) -> set[str]:
    """Styles of a line."""
    return {str(span.style) for span in line.spans}


def a_dry_status() -> Status:
    """Build the status of a plan that is not to be launched."""
    status = a_status("Valid", "Measured", "Proven", "Replayed", *["PlanOnly"] * 2)
    *before, launched, succeeded = status.conditions
    launched = replace(launched, status=Truth.FALSE)
    return replace(status, conditions=(*before, launched, succeeded))


def test_a_dry_run_has_nothing_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    """It is over; what it was stands in a sentence below the plan."""
    dry = a_record(status=a_dry_status())
    with RunView() as view:
        view.passed(a_result(status=dry.status))
    assert capsys.readouterr().err.splitlines()[-1].startswith("✓ ")
    assert list(outcome_lines(dry)) == [
        "a dry run: spec.launch.policy is PlanOnly, and nothing was launched"
    ]


@pytest.mark.parametrize(("upper_s", "is_shown"), [(42.0, False), (40.5, True)])
def test_a_step_outside_of_its_interval_is_said(upper_s: float, is_shown: bool) -> None:
    """Ranks took 41 s: one line of what was predicted, and what to do about it."""
    time = SecondsInterval(lower_s=39.0, expected_s=40.0, upper_s=upper_s)
    plan = replace(a_plan_of_record(), step_time=time)
    run = a_run()
    run = replace(run, attempts=(replace(run.attempts[0], plan=plan),))
    status = replace(run.status, observed=observed_status(plan, run.observations))
    lines = list(outcome_lines(replace(run, status=status)))
    shown = [line for line in lines if line.startswith("a step takes 41 s, outside of")]
    assert len(shown) == is_shown
    assert all("predicted, 39 to 40.5 s: " in line for line in shown)


def test_a_plan_that_fits_nowhere_says_that_devices_ran_out_before() -> None:
    """Earlier findings may be why, and only a person knows whether they still hold."""
    asked = a_question(900)
    key = replace(EMULATED.key, device_product=asked.offers[0].device_product)
    wide = replace(EMULATED.outside, residual_bytes=900)
    short = replace(EMULATED, key=key, outside=wide, num_shortages=1)
    record = a_record(replace(asked, overheads=(short,)))
    assert isinstance(record.answer, Infeasible)
    hint = f"`plimsoll calibrations --forget {key.device_product}`"
    assert any(hint in line for line in outcome_lines(record))
    fits = a_record(asked)
    assert not any("--forget" in line for line in outcome_lines(fits))


class GangWithoutRoom:
    """Reports of ranks whose saves may fail."""

    steps: ClassVar[list[StepResult]] = []
    observations = ()
    unsaved: Unsaved | None = None


def test_checkpoints_that_are_not_saved_are_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once for a row of them; again when training is over, and when they are saved."""
    reports: Any = GangWithoutRoom()
    one, two, last = (
        Unsaved(message=text, waits=text == "waits for room")
        for text in ("step 5 was not saved", "step 10 was not saved", "waits for room")
    )
    with RunView() as view:
        for found in (None, one, one, two, None, last, last, None):
            reports.unsaved = found
            view.passed(a_result(reports=reports))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if " saved" in line or "room" in line] == [
        "✗ step 5 was not saved",
        "✓ checkpoints are saved again",
        "✗ waits for room",
        "✓ checkpoints are saved again",
    ]


@pytest.mark.parametrize(("first", "reported"), [(1, []), (6, ["step 5"])])
def test_a_resumed_attempt_reports_its_step(
    first: int, reported: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Once; nothing of one that begins at the beginning."""
    reports: Any = GangWithoutRoom()
    step = StepResult(step=first, loss=1.0, step_s=0.1)
    reports.steps = [step, replace(step, step=first + 1)]
    with RunView() as view:
        for _ in range(2):
            view.passed(a_result(reports=reports))
    lines = capsys.readouterr().err.splitlines()
    found = [line.partition(" goes on from ")[2] for line in lines if "goes on" in line]
    assert found == reported


def test_the_reason_of_the_end_is_reported_once() -> None:
    """At the end; another one stands in the line of its condition."""
    failed = Condition(
        type=ConditionType.PROFILED,
        status=Truth.FALSE,
        reason="BadWorkload",
        message="no layers",
    )
    assert run_view.settled_text(a_result(), failed) == (
        "profiled: bad workload: no layers"
    )
    ended = a_status("BadWorkload", truth=Truth.FALSE, message="no layers")
    over = a_result(status=ended)
    assert run_view.settled_text(over, failed) == "profiled: bad workload"
