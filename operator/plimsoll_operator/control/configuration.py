"""Configuration of the operator: environment variables, named `PLIMSOLL_*`.

In: the environment. Out: a `Configuration`. The chart sets every one of them; a wrong
value ends the process with one line that names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from plimsoll_operator.telemetry.logs import LogFormat
from plimsoll_planner.errors import InvalidFieldError

PREFIX: Final = "PLIMSOLL_"
MOST_PORT: Final = 65_535
MOST_SOLVERS, MOST_WORKERS = 64, 256


class LogLevel(StrEnum):
    """Lowest level of lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """Configuration of the operator, from its environment."""

    database: str
    """A path, or a URL of PostgreSQL."""
    namespace: str
    """That the operator itself is in: its Lease is there."""
    name: str
    """Of this instance: its pod."""
    runtime_image: str
    """Brings trainer and profiler into users' pods."""
    ingest_url: str
    """Address at which pods reach us."""
    kubeconfig: str = ""
    """Outside a cluster: the file that names one."""
    watch_namespaces: tuple[str, ...] = ()
    """Empty: all of them."""
    lease: str = "plimsoll"
    """Name of the Lease."""
    http_port: int = 8080
    """For metrics and probes."""
    ingest_port: int = 8090
    plan_metrics: bool = True
    """Whether there are series for each plan."""
    share_profiles: bool = False
    """Whether namespaces share profiles, replays and answers, and warn each other."""
    solvers: int = 1
    """Searches at a time, each a process."""
    workers: int = 16
    """Passes at a time."""
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.JSON


def configuration_from(environment: Mapping[str, str]) -> Configuration:
    """Read the environment.

    Raises:
        InvalidFieldError: a variable is missing, or makes no sense.
    """
    found = Reader(environment)
    return Configuration(
        database=found.text("DATABASE"),
        namespace=found.text("NAMESPACE"),
        name=found.text("POD_NAME"),
        runtime_image=found.text("RUNTIME_IMAGE"),
        ingest_url=found.text("INGEST_URL").rstrip("/"),
        kubeconfig=environment.get("KUBECONFIG", ""),
        watch_namespaces=tuple(
            name for name in found.text("WATCH_NAMESPACES", "").split(",") if name
        ),
        lease=found.text("LEASE", "plimsoll"),
        http_port=found.number("HTTP_PORT", 8080, MOST_PORT),
        ingest_port=found.number("INGEST_PORT", 8090, MOST_PORT),
        plan_metrics=found.flag("PLAN_METRICS", default=True),
        share_profiles=found.flag("SHARE_PROFILES", default=False),
        solvers=found.number("SOLVERS", os.cpu_count() or 1, MOST_SOLVERS),
        workers=found.number("WORKERS", 16, MOST_WORKERS),
        log_level=LogLevel(found.word("LOG_LEVEL", LogLevel.INFO, [*LogLevel])),
        log_format=LogFormat(found.word("LOG_FORMAT", LogFormat.JSON, [*LogFormat])),
    )


class Reader:
    """Reads variables, each once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read from an environment."""
        self._environment = environment

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default there must be one."""
        found = self._environment.get(PREFIX + name, default)
        if found is None or (default is None and not found):
            raise InvalidFieldError(PREFIX + name, found, "set: the chart does")
        return found

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 1 on."""
        text = self.text(name, str(default))
        is_number = text.isascii() and text.isdecimal()
        if not is_number or not 1 <= int(text) <= most:
            rule = f"a whole number from 1 to {most}"
            raise InvalidFieldError(PREFIX + name, text, rule)
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """A variable that is true or false."""
        return self.word(name, str(default).lower(), ("true", "false")) == "true"

    def word(self, name: str, default: str, words: Sequence[str]) -> str:
        """A variable that is one word of a closed set."""
        text = self.text(name, default)
        if text not in words:
            raise InvalidFieldError(PREFIX + name, text, " or ".join(words))
        return text
