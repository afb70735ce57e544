"""Configuration of the operator by its environment."""

from __future__ import annotations

import pytest

from plimsoll_operator.control.configuration import LogLevel, configuration_from
from plimsoll_operator.telemetry.logs import LogFormat
from plimsoll_planner.errors import InvalidFieldError

LEAST = {
    "PLIMSOLL_DATABASE": "/data/store.db",
    "PLIMSOLL_NAMESPACE": "plimsoll",
    "PLIMSOLL_POD_NAME": "plimsoll-0",
    "PLIMSOLL_RUNTIME_IMAGE": "runtime.example/r",
    "PLIMSOLL_INGEST_URL": "http://plimsoll:8090/",
}


def test_the_least_is_enough() -> None:
    """All else has a default; a slash at the end of an address counts for nothing."""
    found = configuration_from(LEAST)
    assert found.ingest_url == "http://plimsoll:8090"
    assert (found.watch_namespaces, found.kubeconfig) == ((), "")
    assert (found.http_port, found.ingest_port, found.workers) == (8080, 8090, 16)
    assert (found.log_level, found.log_format) == (LogLevel.INFO, LogFormat.JSON)
    assert found.solvers >= 1


def test_everything_can_be_told() -> None:
    """As the chart does."""
    found = configuration_from(
        LEAST
        | {
            "KUBECONFIG": "/kube/config",
            "PLIMSOLL_WATCH_NAMESPACES": "a,,b",
            "PLIMSOLL_LEASE": "second",
            "PLIMSOLL_HTTP_PORT": "80",
            "PLIMSOLL_INGEST_PORT": "65535",
            "PLIMSOLL_PLAN_METRICS": "false",
            "PLIMSOLL_SHARE_PROFILES": "true",
            "PLIMSOLL_SOLVERS": "64",
            "PLIMSOLL_WORKERS": "1",
            "PLIMSOLL_LOG_LEVEL": "debug",
            "PLIMSOLL_LOG_FORMAT": "text",
        }
    )
    assert (found.kubeconfig, found.lease) == ("/kube/config", "second")
    assert found.watch_namespaces == ("a", "b")
    assert (found.http_port, found.ingest_port) == (80, 65_535)
    assert (found.plan_metrics, found.share_profiles) == (False, True)
    assert (found.solvers, found.workers) == (64, 1)
    assert (found.log_level, found.log_format) == (LogLevel.DEBUG, LogFormat.TEXT)


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_named(name: str, value: str | None) -> None:
    """The process ends with one line of which variable it is."""
    given = {key: text for key, text in LEAST.items() if key != name}
    with pytest.raises(InvalidFieldError) as refused:
        configuration_from(given if value is None else given | {name: value})
    assert refused.value.path == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PORT", "0"),
        ("HTTP_PORT", "65536"),
        ("HTTP_PORT", "-1"),
        ("HTTP_PORT", "1e3"),
        ("HTTP_PORT", "\u0661\u0662"),
        ("INGEST_PORT", ""),
        ("WORKERS", "257"),
        ("SOLVERS", "65"),
        ("PLAN_METRICS", "yes"),
        ("SHARE_PROFILES", "True"),
        ("LOG_LEVEL", "INFO"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: str) -> None:
    """With the bound or the words that are allowed."""
    with pytest.raises(InvalidFieldError) as refused:
        configuration_from(LEAST | {f"PLIMSOLL_{name}": value})
    assert refused.value.path == f"PLIMSOLL_{name}"
