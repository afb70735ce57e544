"""What the operator writes into its log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll_operator.control.watching import settings_for
from plimsoll_operator.telemetry.logs import LogFormat, about, configure

logger = logging.getLogger("plimsoll_operator.something")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Set logging up as pytest had it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # Else `configure` closes them.
    for handler in handlers:
        root.removeHandler(handler)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def begin(written: LogFormat = LogFormat.JSON, level: str = "INFO") -> io.StringIO:
    """Set logging up; return where it goes."""
    stream = io.StringIO()
    configure(written, level, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Lines that were written."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_tells_the_plan_that_is_worked_on() -> None:
    """Namespace, plan and attempt, inside of what is about it and not outside."""
    stream = begin()
    logger.info("before")
    with about("team", "tiny", 2):
        logger.warning("%s ranks", 4)
        with about("team", "other"):
            logger.info("within")
    logger.info("after")
    before, inside, within, after = lines(stream)
    assert {name: inside[name] for name in inside if name != "time"} == {
        "level": "warning",
        "logger": "plimsoll_operator.something",
        "message": "4 ranks",
        "namespace": "team",
        "plan": "tiny",
        "attempt": 2,
    }
    assert inside["time"].endswith("Z")
    assert (within["plan"], "attempt" in within) == ("other", False)
    assert "plan" not in before | after


def test_tasks_keep_apart_what_they_are_about() -> None:
    """Also where they take turns in between; what they begin is about it as well."""
    stream = begin()

    async def inner() -> None:
        logger.info("inner")

    async def work(name: str) -> None:
        with about("team", name):
            await asyncio.sleep(0)
            logger.info(name)
            await asyncio.create_task(inner())

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())
    told = [(line["message"], line["plan"]) for line in lines(stream)]
    assert sorted(told) == [("a", "a"), ("b", "b"), ("inner", "a"), ("inner", "b")]


def test_what_is_given_besides_is_told() -> None:
    """It wins over the context, but not over what every line has."""
    stream = begin()
    with about("team", "tiny"):
        extra = {"plan": "other", "level": "quiet", "status": 409, "path": io}
        logger.info("x", extra=extra)
    (line,) = lines(stream)
    assert (line["plan"], line["namespace"], line["status"]) == ("other", "team", 409)
    assert (line["level"], "module 'io'" in line["path"]) == ("info", True)


def fail(said: str, **extra: str) -> None:
    """Log an error."""
    try:
        int("odd")
    except ValueError:
        logger.exception(said, extra=extra)


def test_an_error_is_one_line_with_its_traceback() -> None:
    """So that whatever collects lines keeps them together."""
    stream = begin()
    fail("it failed")
    (line,) = lines(stream)
    assert line["message"] == "it failed"
    assert line["exception"].endswith(
        "ValueError: invalid literal for int() with base 10: 'odd'"
    )


def test_kopf_writes_as_we_do() -> None:
    """Its records name their object; what it says of every event is left out."""
    stream = begin()
    ref = {"namespace": "team", "name": "tiny", "kind": "TrainingPlan"}
    kopf = logging.getLogger("kopf.objects")
    said = {"k8s_ref": ref, "settings": settings_for()}
    kopf.info("Handler 'seen' succeeded.", extra=said)
    kopf.error("no", extra=said | {"k8s_skip": True})
    (line,) = lines(stream)
    assert (line["message"], line["namespace"], line["plan"]) == ("no", "team", "tiny")
    assert not {"settings", "k8s_ref", "k8s_skip"} & set(line)


def test_whoever_looks_for_an_error_is_told_all() -> None:
    """DEBUG is for every logger."""
    stream = begin(level="debug")
    logging.getLogger("kopf.objects").debug("an event")
    logger.debug("a detail")
    assert [line["message"] for line in lines(stream)] == ["an event", "a detail"]


def test_warnings_of_python_are_logged() -> None:
    """And not written in between."""
    stream = begin()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    (line,) = lines(stream)
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")


def test_text_is_for_people() -> None:
    """One line an event, whatever the message holds; a traceback below it."""
    stream = begin(LogFormat.TEXT)
    logger.info("begun")
    with about("team", "tiny", 2):
        fail("two\nlines", status="a\nb")
    first, second, *traceback = stream.getvalue().splitlines()
    assert first.partition(" ")[2] == "INFO plimsoll_operator.something: begun"
    assert second.partition(" ")[2] == (
        r"ERROR team/tiny#2 plimsoll_operator.something: two\nlines status=a\nb"
    )
    assert traceback[0].startswith("Traceback")
    assert traceback[-1].startswith("ValueError: ")


def test_set_up_twice_writes_once() -> None:
    """The latest is what counts."""
    earlier, later = begin(), begin()
    logger.info("x")
    assert (len(lines(earlier)), len(lines(later))) == (0, 1)
