"""What the search is asked for a plan, when it is asked anew, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.rules.observed_state import Attempt, Ending, ObservedAnswer
from plimsoll_operator.solving.solve_cache import (
    First,
    SolveCache,
    SolveRequest,
    round_of,
    search_once,
)
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.questions import Occasion, StoredQuestion
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.solution import Solution
from tests.support.builders import (
    a_failed_rehearsal,
    a_plan,
    a_problem,
    a_profile,
    a_rehearsal,
    a_replay,
    a_solution,
    an_infeasible,
    an_offer,
)
from tests.support.questions import a_question
from tests.support.specs import a_spec
from tests.support.stores import in_store

Work = Callable[[Store], Awaitable[None]]
PROFILE = a_profile()
OF_PROFILE = StoredProfile(profile=PROFILE, digest=digest_of(PROFILE), made_s=1.0)
MORE = (an_offer(), an_offer(name="h200-16", devices_per_node=16))
WANTED = digest_of(a_solution().plan)
REPLAY = a_replay(plan_digest=WANTED)


def an_asker(**fields: Any) -> SolveRequest:
    """Build a plan that asks for the first time."""
    defaults: dict[str, Any] = {
        "uid": "uid",
        "generation": 1,
        "spec": a_spec(),
        "offers": (an_offer(),),
        "attempts": (),
    }
    return SolveRequest(**(defaults | fields))


def an_answer(**fields: Any) -> StoredAnswer:
    """Build an answer that waits for the replay of its plan."""
    defaults: dict[str, Any] = {
        "answer": a_solution(),
        "unreplayed": WANTED,
        "is_certified": False,
        "num_rounds": 0,
    }
    return StoredAnswer(**(defaults | fields))


async def put(store: Store, problem: Problem | None = None) -> StoredQuestion:
    """Put a question."""
    occasion = Occasion(plan_uid="uid", generation=1, round=0, profile_digest="any")
    return await store.questions.put(occasion, problem or a_problem())


@pytest.fixture
def working(tmp_path: Path) -> Callable[[Work], None]:
    """Run something in a store."""
    return lambda work: in_store(tmp_path / "store.db", work)


def test_what_was_asked_stands(working: Callable[[Work], None]) -> None:
    """Machines that come and go meanwhile do not change it; an edit does."""

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        first = await cache.question(an_asker(), OF_PROFILE)
        again = await cache.question(an_asker(offers=MORE), OF_PROFILE)
        assert again == first
        edited = await cache.question(an_asker(offers=MORE, generation=2), OF_PROFILE)
        assert edited.problem.offers == MORE
        assert len(await store.questions.of("uid")) == 2

    working(work)


@pytest.mark.parametrize("ending", [None, *Ending])
def test_an_attempt_that_taught_something_has_it_asked_anew(
    ending: Ending | None, working: Callable[[Work], None]
) -> None:
    """Memory was short, or the code is other code; the rest changes no question."""
    teaches = ending in (Ending.OUT_OF_MEMORY, Ending.FOREIGN_FINGERPRINT)
    attempts = (Attempt(number=1, ending=ending),)
    assert round_of(attempts * 3) == 3 * teaches

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        await cache.question(an_asker(), OF_PROFILE)
        await cache.question(an_asker(attempts=attempts), OF_PROFILE)
        assert len(await store.questions.of("uid")) == 1 + teaches

    working(work)


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({}, True),
        ({"keeps_question": False}, False),
        ({"spec": a_spec(training={"globalBatchSize": 8, "steps": 21})}, False),
    ],
)
def test_a_dry_run_that_is_launched_keeps_its_question(
    fields: dict[str, Any], is_kept: bool, working: Callable[[Work], None]
) -> None:
    """So that what runs is what was looked at; an edit of what is asked for ends it."""

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        dry = await cache.question(an_asker(), OF_PROFILE)
        given = {"generation": 2, "offers": MORE, "keeps_question": True} | fields
        found = await cache.question(an_asker(**given), OF_PROFILE)
        assert (found.digest == dry.digest) is is_kept
        assert found.problem.offers == ((an_offer(),) if is_kept else MORE)

    working(work)


def test_a_dry_run_of_another_profile_is_asked_anew(
    working: Callable[[Work], None],
) -> None:
    """The code has changed since."""
    other = a_profile(tokens_per_sample=4096)
    of_other = StoredProfile(profile=other, digest=digest_of(other), made_s=2.0)

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        await cache.question(an_asker(), OF_PROFILE)
        request = an_asker(generation=2, keeps_question=True)
        found = await cache.question(request, of_other)
        assert found.problem.profile == other

    working(work)


def test_an_answer_says_whether_its_replay_has_come(
    working: Callable[[Work], None],
) -> None:
    """Until there is an answer there is nothing to wait for."""

    async def work(store: Store) -> None:
        cache, asked = SolveCache(store), await put(store)
        assert await cache.answer(asked) is None
        assert await cache.unreplayed_plan(asked) is None
        await store.answers.save(asked.digest, an_answer())
        waits = await cache.answer(asked)
        assert waits is not None
        assert (waits.unreplayed, waits.has_replay) == (WANTED, False)
        assert waits.problem_digest == asked.digest
        assert await cache.unreplayed_plan(asked) == a_solution().plan
        await store.replays.save(REPLAY)
        come = await cache.answer(asked)
        assert come is not None
        assert come.has_replay

    working(work)


@pytest.mark.parametrize(
    "answer",
    [an_answer(unreplayed=""), an_answer(answer=an_infeasible(), unreplayed="")],
)
def test_an_answer_that_stands_waits_for_no_replay(
    answer: StoredAnswer, working: Callable[[Work], None]
) -> None:
    """It is certified, or there is no plan at all."""

    async def work(store: Store) -> None:
        cache, asked = SolveCache(store), await put(store)
        await store.answers.save(asked.digest, answer)
        found = await cache.answer(asked)
        assert found is not None
        assert not found.has_replay
        assert await cache.unreplayed_plan(asked) is None

    working(work)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_search_goes_on_with_what_was_replayed(
    is_there: bool, working: Callable[[Work], None]
) -> None:
    """At once where the replay is there; else its answer says what it waits for."""
    calls: list[tuple[dict[str, Replay], First]] = []

    async def search(
        _: Problem, known: Mapping[str, Replay], first: First
    ) -> StoredAnswer:
        calls.append((dict(known), first))
        return replace(
            an_answer(unreplayed="" if WANTED in known else WANTED),
            num_rounds=len(known),
        )

    async def work(store: Store) -> None:
        if is_there:
            await store.replays.save(REPLAY)
        cache, asked = SolveCache(store), await put(store)
        await cache.solve(asked, search)
        found = await store.answers.find(asked.digest)
        assert found is not None
        assert found.unreplayed == ("" if is_there else WANTED)
        if not is_there:  # the next search begins with the answer of this one
            await store.replays.save(REPLAY)
            await cache.solve(asked, search)
            del calls[1]

    working(work)
    answer = an_answer(unreplayed=WANTED).answer
    assert calls == [({}, None), ({WANTED: REPLAY}, answer)]


def test_what_cannot_be_judged_is_remembered_and_not_answered(
    working: Callable[[Work], None],
) -> None:
    """Why, in the words of the search; the question is not asked for ever."""

    async def search(
        problem: Problem, known: Mapping[str, Replay], first: First
    ) -> StoredAnswer:
        del problem, known, first
        raise CannotPlanError("no rate is stated")

    async def work(store: Store) -> None:
        cache, asked = SolveCache(store), await put(store)
        await cache.solve(asked, search)
        assert cache.refused == {asked.digest: "no rate is stated"}
        assert await store.answers.find(asked.digest) is None

    working(work)


def test_a_search_stops_at_the_first_plan_that_nobody_has_replayed() -> None:
    """It names that plan, and is certified by nothing yet."""
    found = search_once(a_question(), {})
    assert isinstance(found.answer, Solution)
    assert found.unreplayed == digest_of(found.answer.plan)
    assert (found.is_certified, found.num_rounds) == (False, 0)


ALWAYS = {"rehearse": "Always"}
OUT = Attempt(number=1, ending=Ending.OUT_OF_MEMORY)


async def rehearse(store: Store, plan: HybridPlan, found: Rehearsal) -> None:
    """Rehearse a plan with that result."""
    asked = AskedRehearsal(plan=plan, capacity_bytes=2**40)
    await store.rehearsals.ask("uid", asked)
    seen = replace(found.observation, plan_digest=digest_of(plan))
    await store.rehearsals.save("uid", replace(found, observation=seen))


async def answered(store: Store, asked: StoredQuestion, plan: HybridPlan) -> None:
    """Answer a question for good."""
    answer = a_solution(plan=plan)
    await store.answers.save(asked.digest, an_answer(answer=answer, unreplayed=""))


async def number_of(store: Store, cache: SolveCache, request: SolveRequest) -> int:
    """Put the question as it is now; which one it is, counted from 1."""
    await cache.question(request, OF_PROFILE)
    return len(await store.questions.digests("uid", request.generation))


@pytest.mark.parametrize("rehearse_as", ["IfDevice", "Always"])
def test_a_plan_that_ran_out_when_rehearsed_is_never_asked_for_again(
    rehearse_as: str, working: Callable[[Work], None]
) -> None:
    """Each asks anew, and so does each attempt: no question comes back."""
    request = an_asker(spec=a_spec(launch={"rehearse": rehearse_as}))

    async def work(store: Store) -> None:
        cache = SolveCache(store)

        async def ran_out(request: SolveRequest, revision: int) -> None:
            asked = await cache.question(request, OF_PROFILE)
            plan = a_plan(revision=revision)
            await answered(store, asked, plan)
            await rehearse(store, plan, a_failed_rehearsal())

        assert await number_of(store, cache, request) == 1
        await ran_out(request, revision=1)
        second = replace(request, offers=MORE)
        assert await number_of(store, cache, second) == 2
        assert await number_of(store, cache, second) == 2
        # The next plan is launched, and its ranks run out of memory.
        third = replace(request, offers=MORE[1:], attempts=(OUT,))
        assert await number_of(store, cache, third) == 3
        await ran_out(third, revision=3)
        assert await number_of(store, cache, third) == 4
        assert await number_of(store, SolveCache(store), third) == 4

    working(work)


@pytest.mark.parametrize(
    ("spec", "is_anew"),
    [
        ({"launch": ALWAYS}, True),
        ({}, False),
        ({"launch": ALWAYS, "override": {"gpus": 4}}, False),
        ({"launch": ALWAYS, "runPolicy": {"oomReplanLimit": 0}}, False),
    ],
)
def test_what_is_planned_around(
    spec: dict[str, Any], is_anew: bool, working: Callable[[Work], None]
) -> None:
    """Not what a person fixed, nor more often than they allow, nor without a wish."""
    request = an_asker(spec=a_spec(**spec))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        asked = await cache.question(request, OF_PROFILE)
        await answered(store, asked, a_plan())
        await rehearse(store, a_plan(), a_failed_rehearsal())
        assert await number_of(store, cache, request) == 1 + is_anew
        text = (await cache.state(request, OF_PROFILE)).refuted
        assert ("ran out of memory" in text) is is_anew

    working(work)


def test_what_ran_out_is_named_with_its_size_and_its_bytes(
    working: Callable[[Work], None],
) -> None:
    """So that people see why the plan is another one; nothing is said of what fits."""
    request = an_asker(spec=a_spec(launch=ALWAYS))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        asked = await cache.question(request, OF_PROFILE)
        await answered(store, asked, a_plan())
        await rehearse(store, a_plan(), a_rehearsal())
        assert (await cache.state(request, OF_PROFILE)).refuted == ""
        assert await number_of(store, cache, request) == 1
        edited = replace(request, generation=2, offers=MORE)
        asked = await cache.question(edited, OF_PROFILE)
        await answered(store, asked, a_plan(revision=2))
        await rehearse(store, a_plan(revision=2), a_failed_rehearsal())
        assert (await cache.state(edited, OF_PROFILE)).refuted == (
            "the plan before ran out of memory when it was rehearsed, on 4 GPUs: rank "
            "0 ran out of memory in backward, alone on a device: 10.00 MiB in use of "
            "139.00 GiB, 1.00 MiB more asked for, predicted 0 B to 10.00 MiB"
        )

    working(work)


def test_a_plan_whose_replay_was_left_out_is_rehearsed_all_the_same(
    working: Callable[[Work], None],
) -> None:
    """Its digest is known, and what it held is found; another plan of it is not."""
    request = an_asker(spec=a_spec(launch=ALWAYS))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        asked = await cache.question(request, OF_PROFILE)
        assert await cache.rehearsed_plan(asked, WANTED) is None
        await store.answers.save(asked.digest, an_answer())
        found = await cache.answer(asked, rehearsed_by="uid")
        assert found is not None
        assert (found.plan_digest, found.rehearsal) == (WANTED, None)
        wanted = await cache.rehearsed_plan(asked, WANTED)
        assert wanted is not None
        assert wanted.plan == a_solution().plan
        assert await cache.rehearsed_plan(asked, digest_of(a_plan(revision=9))) is None
        await rehearse(store, wanted.plan, a_rehearsal())
        found = await cache.answer(asked, rehearsed_by="uid")
        assert found is not None
        assert found.rehearsal is not None
        assert found.rehearsal.fits
        unasked = await cache.answer(asked)
        assert unasked is not None
        assert (unasked.plan_digest, unasked.rehearsal) == ("", None)

    working(work)


def test_a_rehearsal_may_use_what_the_plan_was_made_for(
    working: Callable[[Work], None],
) -> None:
    """The memory of the device, less the headroom."""
    request = an_asker(spec=a_spec(launch=ALWAYS))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        asked = await cache.question(request, OF_PROFILE)
        await answered(store, asked, a_plan())
        wanted = await cache.rehearsed_plan(asked, digest_of(a_plan()))
        assert wanted is not None
        usable = asked.problem.limits.usable_bytes(an_offer().device_memory_bytes)
        assert wanted.capacity_bytes == usable

    working(work)


def test_a_look_does_not_see_a_rehearsal_beside_the_question_from_before_it(
    working: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod told that its rank ran out between the two, and that ended the plan."""
    request = an_asker(spec=a_spec(launch=ALWAYS))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        first = await cache.question(request, OF_PROFILE)
        await answered(store, first, a_plan())
        answer = cache.answer

        async def late(*args: Any, **fields: Any) -> ObservedAnswer | None:
            await rehearse(store, a_plan(), a_failed_rehearsal())
            return await answer(*args, **fields)

        monkeypatch.setattr(cache, "answer", late)
        later = replace(request, offers=MORE)  # what is learned makes it another one
        found = await cache.state(later, OF_PROFILE)
        assert found.question.digest != first.digest
        assert found.answer is None
        assert "ran out of memory" in found.refuted

    working(work)


def test_a_plan_that_taught_nothing_is_asked_for_no_more_than_allowed(
    working: Callable[[Work], None],
) -> None:
    """The look comes to an end, and shows what the rehearsal gave."""
    limit = {"oomReplanLimit": 3}
    request = an_asker(spec=a_spec(launch=ALWAYS, runPolicy=limit))

    async def work(store: Store) -> None:
        cache = SolveCache(store)
        await answered(store, await cache.question(request, OF_PROFILE), a_plan())
        await rehearse(store, a_plan(), a_failed_rehearsal())
        found = await cache.state(request, OF_PROFILE)
        assert found.answer is not None
        assert found.answer.rehearsal is not None
        assert not found.answer.rehearsal.fits
        assert await number_of(store, cache, request) == 4

    working(work)
