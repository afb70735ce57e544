"""`plimsoll devices`: what --on may name."""

from __future__ import annotations

import json

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_planner.device_table import known_devices


def test_all_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, by the names that --on takes."""
    assert main(["devices"]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines if line and line[0].isalnum()]
    assert [one.name for one in known_devices()] == named[1 : len(known_devices()) + 1]


def test_a_name_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    """Also for machines."""
    assert main(["devices", "h100"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "H100-80GB (NVIDIA H100 80GB HBM3)" in out
    assert "memory  79.11 GiB" in out
    assert main(["devices", "h100", "-o", "json"]) == ExitCode.DONE
    [found] = json.loads(capsys.readouterr().out)
    assert found["name"] == "H100-80GB"
    assert found["offer"]["device_memory_bytes"] < 79.11 * 2**30
    assert found["memory"]["date"]


def test_an_unknown_name_leads_to_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, with the way out."""
    assert main(["devices", "abacus"]) == ExitCode.FAILED
    assert "has 'abacus' in its names" in capsys.readouterr().err
