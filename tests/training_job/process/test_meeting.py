"""Ranks of several pods meet: all are waited for, and nobody waits who is asked to go.

Ranks are threads here, each with its own connection to the store of rank 0.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_trainer.errors import LostRankError
from plimsoll_trainer.process.admission import Place
from plimsoll_trainer.process.meeting import HERE, meeting_place
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.process.stopping import StopSignal
from tests.support.ports import free_ports

NUM_RANKS = 3
LATE_S, LIMIT_S, SOON_S = 3.0, 2.0, 30.0
OPTIONS = Options(
    plan=Path("plan.json"), entrypoint="m:f", steps=1, timeout_s=2.0, meet_timeout_s=60
)


@pytest.fixture
def options() -> Options:
    """Options of ranks that meet at a port of this machine."""
    return replace(OPTIONS, meet_at=("127.0.0.1", free_ports(1)[0]))


def come(rank: int, options: Options, stop: StopSignal | None = None) -> Any:
    """Come to the meeting as a rank."""
    place = Place(rank=rank, num_ranks=NUM_RANKS, local_rank=0)
    return meeting_place(place, options, stop or StopSignal())


@pytest.mark.parametrize("last", range(NUM_RANKS))
def test_whoever_comes_waits_for_the_last_one(options: Options, last: int) -> None:
    """Longer than one rank waits for another in training; rank 0 may be the last."""
    with ThreadPoolExecutor() as pool:
        early: list[Future[Any]] = [
            pool.submit(come, rank, options)
            for rank in range(NUM_RANKS)
            if rank != last
        ]
        time.sleep(LATE_S)
        assert not any(one.done() for one in early)
        stores = [come(last, options), *(one.result() for one in early)]
    assert {store.add(HERE, 0) for store in stores} == {NUM_RANKS}
    assert {store.timeout.total_seconds() for store in stores} == {2.0}


@pytest.mark.parametrize("rank", [0, 1])
def test_whoever_is_asked_to_go_waits_no_longer(options: Options, rank: int) -> None:
    """With or without rank 0: a pod whose worker group never began leaves soon."""
    stop = StopSignal()
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(come, rank, options, stop)
        time.sleep(LATE_S)
        assert not waits.done()
        stop.is_set = True
        waits.result(SOON_S)


def test_rank_0_waits_at_a_name_that_nobody_knows_yet(options: Options) -> None:
    """As that of a pod may be; the others find it as soon as the name is known."""
    assert options.meet_at is not None
    nameless = replace(options, meet_at=("unknown.invalid", options.meet_at[1]))
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(come, 0, nameless)]
        waits += [pool.submit(come, rank, options) for rank in range(1, NUM_RANKS)]
        stores = [one.result(SOON_S) for one in waits]
    assert {store.add(HERE, 0) for store in stores} == {NUM_RANKS}


@pytest.mark.parametrize(
    ("rank", "message"), [(0, "1 of 3 ranks came to"), (1, "no rank 0 came to")]
)
def test_the_last_one_is_not_waited_for_for_ever(
    options: Options, rank: int, message: str
) -> None:
    """It says who came, where to, and within which time."""
    with pytest.raises(LostRankError, match=message) as raised:
        come(rank, replace(options, meet_timeout_s=LIMIT_S))
    assert str(raised.value).endswith("within 2 s")


def test_a_rank_0_that_leaves_is_not_waited_for(options: Options) -> None:
    """Nobody can come any more; the next attempt begins sooner."""
    with ThreadPoolExecutor() as pool:
        stop = StopSignal()
        first = pool.submit(come, 0, options, stop)
        other = pool.submit(come, 1, options)
        time.sleep(LATE_S)
        stop.is_set = True
        first.result()
        del first  # and with it the store that listens
        with pytest.raises(LostRankError, match="rank 0 left before"):
            other.result(SOON_S)


def test_a_rank_0_that_cannot_listen_says_so_at_once(options: Options) -> None:
    """Nobody would ever come to it."""
    with ThreadPoolExecutor() as pool:
        stop = StopSignal()
        first = pool.submit(come, 0, options, stop)
        time.sleep(LATE_S)
        with pytest.raises(RuntimeError, match="in use"):
            come(0, options)
        stop.is_set = True
        first.result()
