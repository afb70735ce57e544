"""The first lines of a report."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.headline import (
    HeadlineView,
    State,
    Tone,
    headline_view,
    state_of,
)
from plimsoll_cli.report.memory_chart import memory_view
from plimsoll_cli.state.liveness import Liveness
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.interval import SecondsInterval, Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.solution import Solution, Termination
from tests.support.builders import a_certificate, a_count, a_miss, a_plan, a_solution
from tests.support.questions import a_question, solved
from tests.support.reports import TIME, a_record, a_run, a_status


def headline_of(record: RunRecord) -> HeadlineView:
    """Headline of a record."""
    plan = record.plan
    memory = None if plan is None else memory_view(record, plan)
    return headline_view(record, plan, memory)


def test_a_plan_in_words() -> None:
    """Devices and their memory; what one fewer lacks."""
    record = a_record(a_question(700))
    answer = solved(a_question(700))
    fewer = answer.plan.num_gpus - 1
    miss = answer.certificate.counts[fewer - 1].nearest_miss
    assert miss is not None
    view = headline_of(record)
    assert view.title == f"{fewer + 1} devices of 700 B"
    where = f"rank {miss.rank}, {miss.phase}"
    assert view.lead == f"{fewer} fail at {where}, short by {miss.short_bytes} B."


def test_gpus_are_called_so() -> None:
    """On CUDA, with the memory of the product."""
    record = a_record(answer=a_solution(), problem=None)
    assert headline_of(record).title == "4 GPUs of 139 GiB"


def lead(**fields: object) -> str:
    """Text about 3 GPUs, if the plan has 4."""
    counts = (a_count(1), a_count(2), a_count(3, **fields))  # type: ignore[arg-type]
    certificate = a_certificate(counts=(*counts, a_count(4, Verdict.FITS)))
    answer = a_solution(certificate=certificate, plan=a_plan())
    return headline_of(a_record(answer=answer, problem=None)).lead


def test_what_one_fewer_lacks() -> None:
    """Memory by its bytes, anything else by its reason."""
    assert lead() == "3 fail at rank 0, backward, short by 1.00 MiB."
    rate = a_miss(
        binding=Binding.RATE,
        rank=None,
        phase=None,
        needed_bytes=None,
        capacity_bytes=None,
        samples_per_s=1.0,
        needed_samples_per_s=2.0,
    )
    text = lead(binding=Binding.RATE, nearest_miss=rate)
    assert text.startswith("3 fail: at most 1 samples/s, needs 2")
    text = lead(binding=Binding.BATCH, nearest_miss=None)
    assert text == "3 fail: the global batch does not divide."


def test_one_fewer_that_fits() -> None:
    """If speed is asked for, fewer may do as well, and are not called failing."""
    problem = a_question(700, objective=Objective(goal=Goal.MAXIMIZE_THROUGHPUT))
    fewer = solved(problem).plan.num_gpus - 1
    text = headline_of(a_record(problem)).lead
    assert text == f"{fewer} fit too, and do worse by what was asked for."


def test_one_fewer_that_is_open() -> None:
    """An undecided count is never sold as one that fails."""
    counts = (a_count(1), a_count(2), a_count(3, Verdict.UNDECIDED))
    answer = a_solution(
        certificate=a_certificate(counts=(*counts, a_count(4, Verdict.FITS))),
        termination=Termination.WITHIN_GAP,
        gap=0.25,
    )
    text = headline_of(a_record(answer=answer, problem=None)).lead
    assert text.startswith("3 undecided: 1 of 1 combinations are open")


def test_fewer_than_was_fixed_are_not_claimed_to_fail() -> None:
    """They are outside of what was searched."""
    fixed = Override(num_gpus=4, num_stages=4)
    record = a_record(a_question(5000, override=fixed))
    assert headline_of(record).lead == "Fewer are outside what was fixed or allowed."
    one = a_record(a_question(5000))
    assert headline_of(one).lead == "One is the least there is."


def test_a_fixed_plan_that_fails_is_no_success() -> None:
    """In the title, in words, and not in green; until it has run all the same."""
    record = a_record(a_question(400, override=Override(num_gpus=2)))
    view = headline_of(record)
    assert view.title == "2 devices of 400 B: does not fit"
    assert view.lead.startswith("Fixed by hand: does not fit. On h200-8, rank ")
    assert (view.state.tone, view.state.word) == (Tone.BAD, "Does not fit")
    assert isinstance(record.answer, Solution)
    attempt = StoredAttempt(number=1, plan=record.answer.plan, ending=Ending.DONE)
    ran = replace(record, attempts=(attempt,), status=a_status())
    assert headline_of(ran).title == "2 devices of 400 B"


def test_no_plan_says_what_would_do() -> None:
    """The miss and the nearest change, as sentences."""
    view = headline_of(a_record(a_question(200, limits=Limits(max_gpus=2))))
    assert view.title == "No plan fits"
    assert view.lead.startswith("Memory binds. Nearest miss: ")
    assert "Would do: " in view.lead


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (a_status(), State(tone=Tone.GOOD, word="Succeeded", line="")),
        (
            a_status("Valid", "PlanOnly"),
            State(tone=Tone.GOOD, word="Planned", line="a dry run, not launched"),
        ),
        (
            a_status("Valid", "AppError", truth=Truth.FALSE, message="boom"),
            State(tone=Tone.BAD, word="Failed", line="AppError: boom"),
        ),
        (
            a_status("Valid", "Running", truth=Truth.UNKNOWN),
            State(tone=Tone.OPEN, word="Under way", line="Running"),
        ),
        (
            a_status("Valid", "Waiting", truth=Truth.UNKNOWN),
            State(tone=Tone.OPEN, word="Under way", line="Valid"),
        ),
        (Status(), State(tone=Tone.OPEN, word="Not begun", line="")),
    ],
)
def test_how_it_went(status: Status, state: State) -> None:
    """By the summary; where it is open, by what is waited for."""
    found = state_of(a_record(status=status))
    assert (found.tone, found.word) == (state.tone, state.word)
    assert found.line == (state.line or found.line)
    if state.word == "Succeeded":
        assert found.line == TIME.replace("T", " ").replace("Z", " UTC")


@pytest.mark.parametrize(
    ("liveness", "ending", "saved_step", "word", "line"),
    [
        (Liveness.GONE, None, 20, "Interrupted", "goes on from step 20"),
        (Liveness.GONE, None, None, "Interrupted", "begins again"),
        (Liveness.GONE, Ending.CHECKPOINTED, 20, "Stopped", "goes on from here"),
        (Liveness.UNWATCHED, None, 20, "Unwatched", "its processes run"),
        (Liveness.ENDED, None, 20, "Unwatched", "its ranks have ended"),
    ],
)
def test_what_nobody_goes_on_with_says_how(
    liveness: Liveness,
    ending: Ending | None,
    saved_step: int | None,
    word: str,
    line: str,
) -> None:
    """Until it is over: then it is named as what it has become."""
    [attempt] = a_run().attempts
    attempts = (replace(attempt, ending=ending),)
    status = a_status("Valid", "Running", truth=Truth.UNKNOWN)
    left = a_record(
        status=status, liveness=liveness, attempts=attempts, saved_step=saved_step
    )
    found = state_of(left)
    assert (found.tone, found.word) == (Tone.OPEN, word)
    assert line in found.line
    suspended = state_of(replace(left, suspends=True))
    is_ours = liveness is Liveness.GONE
    assert ("once spec.suspend is false, " in suspended.line) == is_ours
    over = replace(left, status=a_status("Valid", "Succeeded"))
    assert state_of(over).word == "Succeeded"


def test_what_is_refused_says_why() -> None:
    """Running it again as it is brings it nowhere."""
    refused = Condition(
        type=ConditionType.ACCEPTED,
        status=Truth.FALSE,
        reason="InvalidSpec",
        message="override.cuts: there is no layer 9",
        observed_generation=1,
    )
    status = Status().with_condition(refused, TIME)
    found = state_of(a_record(status=status, liveness=Liveness.GONE))
    assert (found.word, found.line) == ("Refused", refused.message)


def figures(record: RunRecord) -> dict[str, tuple[str, str]]:
    """Main figures by name."""
    return {one.name: (one.value, one.note) for one in headline_of(record).figures}


def test_figures_of_a_run_are_measured() -> None:
    """With what was predicted beside them."""
    problem = a_question(700, num_steps=20)
    found = figures(a_run(problem))
    assert found["Steps"] == ("3", "of 20")
    assert found["Loss"] == ("5 → 1.667", "")
    assert found["Step"][0] == "41 s"
    assert found["Rate"][0] == f"{8 / 41:.3g} samples/s"
    assert found["Rate"][1].startswith("predicted ")
    assert found["Worst error of a peak"][0] == "0.00%"


def test_a_step_outside_of_its_interval_stands_beside_it() -> None:
    """A step of 41 s is as predicted between 40 and 42 s, and not below 40 s."""
    run = a_run()
    assert run.plan is not None
    for upper_s, note in ((42.0, "predicted 40 s"), (40.5, OUTSIDE)):
        time = SecondsInterval(lower_s=39.0, expected_s=40.0, upper_s=upper_s)
        plan = replace(run.plan, step_time=time)
        attempts = (replace(run.attempts[0], plan=plan),)
        assert figures(replace(run, attempts=attempts))["Step"][1] == note


OUTSIDE = "outside of the predicted 39 s to 40.5 s"


def test_figures_of_a_plan_are_predicted() -> None:
    """With the length and the cost of the whole training."""
    found = figures(a_record(a_question(700, num_steps=20)))
    assert "Steps" not in found
    assert "Worst error of a peak" not in found
    assert found["Rate, predicted"][0].endswith("samples/s")
    assert found["20 steps, predicted"][1].endswith(" USD")


def test_a_loss_that_is_no_number_is_not_the_last_one() -> None:
    """The last finite one is; beside it stands the first step that has none."""
    losses = ((1, 4.0), (2, 2.0), (3, math.nan))
    lost = "not finite at step 3"
    assert figures(a_run(losses=losses))["Loss"] == ("4 → 2", lost)
    more = ((4, math.inf), (5, math.nan))
    assert figures(a_run(losses=(*losses, *more)))["Loss"] == (
        "4 → 2",
        f"{lost}, nor at 2 more",
    )
