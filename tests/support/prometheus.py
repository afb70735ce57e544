"""A real Prometheus that scrapes an operator, and what the chart asks it.

In: where metrics are served. Out: answers to expressions. Called by the tests of the
dashboard, which serve a sample of all metrics, and by those that run an operator.
Debian's Prometheus cannot look for targets in a cluster: it is given the address.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from tests.support.chart import CHART
from tests.support.ports import free_ports

DASHBOARD: dict[str, Any] = json.loads(
    (CHART / "dashboards" / "plimsoll.json").read_text()
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EXPRESSIONS: list[tuple[str, str]] = [
    (f"{panel['title']}: {target['refId']}", target["expr"])
    for panel in PANELS
    for target in panel.get("targets", ())
]
"""Of the dashboard, by panel."""
RULES: list[dict[str, Any]] = yaml.safe_load(
    (CHART / "files" / "rules.yaml").read_text()
)["groups"][0]["rules"]
FILLED_IN = {"$__rate_interval": "1m", "$namespace": ".*", "$trainingplan": ".*"}
"""Values that Grafana puts in the place of its variables."""
READY_S = 180.0


def filled_in(expression: str) -> str:
    """Expression as Prometheus gets it from Grafana."""
    for variable, value in FILLED_IN.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def ask(address: str, expression: str) -> list[Any]:
    """Series that a Prometheus answers with."""
    question = f"{address}/api/v1/query?{urlencode({'query': expression})}"
    with urlopen(question) as found:  # noqa: S310 - of our own Prometheus
        answer = json.load(found)
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[str]:
    """Run a Prometheus that has scraped a target twice; yield its address.

    Args:
        target: host and port that serve /metrics.
        folder: for its files.
    """
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("prometheus is missing: run `sudo make test`, which installs it")
    job = {
        "job_name": "plimsoll",
        "honor_labels": True,
        "static_configs": [{"targets": [target]}],
    }
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder}/config.yaml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for_scrapes(address, process)
        yield address
    finally:
        process.terminate()
        process.wait()


def wait_for_scrapes(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until rates can be taken."""
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        assert process.poll() is None, "Prometheus has ended"
        try:
            counted = ask(address, "count_over_time(trainingplan_leader[1m]) > 2")
        except (OSError, HTTPException):
            counted = []
        if counted:
            return
        time.sleep(0.2)
    raise AssertionError(f"nothing was scraped within {READY_S:g} s")
