"""The log of the operator: one line an event, with the plan it is about.

In: a format and a level. Out: the standard library's logging, set up; libraries such as
kopf write through it as well. Called once by the entry point. `about` names a plan for
all that is logged within it, also by tasks that are begun there.

    json   {"time": .., "level": .., "logger": .., "message": .., "namespace": ..,
            "plan": .., "attempt": .., and whatever `extra` gives}
    text   2026-11-21T09:30:00Z INFO team/tiny#2 plimsoll_operator.control.loop: ...
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO, cast

from plimsoll_planner.errors import one_line

OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
KOPF_FIELDS = frozenset({"settings", "k8s_skip", "k8s_ref", "taskName"})
"""Of its records, besides; which object it is about is in `k8s_ref`."""
CHATTY = {"kopf": logging.WARNING, "aiohttp.access": logging.WARNING}
"""Loggers that report every event; shown nevertheless where the level is DEBUG."""


class LogFormat(StrEnum):
    """Format of a line."""

    JSON = "json"
    TEXT = "text"


CONTEXT: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039 - never changed


@contextmanager
def about(namespace: str, plan: str, attempt: int = 0) -> Generator[None]:
    """Name the plan that is worked on, and its attempt; 0: none."""
    fields: dict[str, object] = {"namespace": namespace, "plan": plan}
    if attempt:
        fields["attempt"] = attempt
    token = CONTEXT.set(fields)
    try:
        yield
    finally:
        CONTEXT.reset(token)


def configure(
    written: LogFormat, level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Write all that is logged from now on, in place of what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = JsonLines() if written is LogFormat.JSON else TextLines()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    is_debug = logging.getLogger().level <= logging.DEBUG
    for name, least in CHATTY.items():
        logging.getLogger(name).setLevel(logging.NOTSET if is_debug else least)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Fields of a record: of its context, of kopf, and its own."""
    given = vars(record)
    fields = dict(CONTEXT.get())
    found: object = given.get("k8s_ref")
    if isinstance(found, dict):
        ref = cast("dict[str, object]", found)
        fields |= {"namespace": ref.get("namespace"), "plan": ref.get("name")}
    skipped = OWN_FIELDS | KOPF_FIELDS
    return fields | {name: given[name] for name in given if name not in skipped}


def time_of(record: logging.LogRecord) -> str:
    """Time of a record, as the API server writes times."""
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a value that JSON does not have is written as text."""
        head: dict[str, object] = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line = head | fields_of(record) | head  # first, and not to be overwritten
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Writes a record for people; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = fields_of(record)
        plan = f"{fields.pop('namespace', '')}/{fields.pop('plan', '')}".strip("/")
        attempt = fields.pop("attempt", "")
        head = [
            time_of(record),
            record.levelname,
            plan + (f"#{attempt}" * bool(attempt)),
        ]
        rest = [f"{name}={one_line(str(value))}" for name, value in fields.items()]
        message = one_line(record.getMessage())
        line = " ".join(
            part for part in (*head, f"{record.name}: {message}", *rest) if part
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
