"""The operator as a process, from its first moment on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.postgresql import TEMPLATE, Server, a_server

PATIENCE_S = 120.0
NOBODY = "https://127.0.0.1:1"
"""Where no API server listens."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Server that is down."""
    with a_server() as server:
        server.make_template()
        server.stop()
        yield server


@pytest.fixture
def http_port(server: Server, tmp_path: Path) -> Iterator[int]:
    """Run an operator; return where it answers probes."""
    http, ingest = free_ports(2)
    kubeconfig = tmp_path / "kubeconfig"
    named = {"name": "a", "cluster": {"server": NOBODY}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    user = {"name": "a", "user": {"token": "t"}}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "a",
                "clusters": [named],
                "contexts": [context],
                "users": [user],
            }
        )
    )
    told = {
        "DATABASE": server.url(TEMPLATE),
        "NAMESPACE": "here",
        "POD_NAME": "operator",
        "RUNTIME_IMAGE": "runtime.example/r",
        "INGEST_URL": f"http://127.0.0.1:{ingest}",
        "HTTP_PORT": str(http),
        "INGEST_PORT": str(ingest),
    }
    environment = {f"PLIMSOLL_{name}": value for name, value in told.items()}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "plimsoll_operator"],
            env=os.environ | environment | {"KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
    try:
        yield http
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()


def asked(port: int, path: str) -> tuple[int, str]:
    """Status and text of an answer; 0 where none comes, or is cut off."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException):
        return 0, ""
    finally:
        connection.close()


def until(port: int, path: str, status: int) -> str:
    """Wait for an answer of a status, and return its text."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found, text = asked(port, path)
        if found == status:
            return text
        assert time.monotonic() < end_s, (found, text)
        time.sleep(0.1)


def test_an_operator_waits_for_its_store(server: Server, http_port: int) -> None:
    """It is alive and not ready; nothing is started anew for it. Then it goes on."""
    assert until(http_port, "/readyz", 503) == "the store does not answer"
    assert asked(http_port, "/healthz")[0] == 200
    assert "trainingplan_store_up 0.0" in asked(http_port, "/metrics")[1]
    server.start()
    until(http_port, "/readyz", 200)
    assert "trainingplan_store_up 1.0" in asked(http_port, "/metrics")[1]
