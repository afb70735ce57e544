"""Missing packages are found, and what cannot be installed is explained."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import packages
from tests.lab.errors import LabError


def a_program(folder: Path, name: str, script: str) -> None:
    """Write a shell script that stands for a program of the machine."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_what_dpkg_does_not_call_installed_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed package and an unknown one are both missing."""
    known = [*packages.NEEDED]
    known.remove("runc")  # dpkg-query has never heard of it, and fails
    lines = [f"echo {name} installed" for name in known if name != "nftables"]
    lines += ["echo nftables config-files", "exit 1"]
    a_program(tmp_path, "dpkg-query", "\n".join(lines))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages.missing() == ["nftables", "runc"]


def test_another_system_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dpkg the way to run the other tests is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="-m 'not nodes'"):
        packages.missing()


def test_installing_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root the command that installs is part of the message."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        LabError, match="sudo apt-get install runc` or `sudo make test`"
    ):
        packages.install(["runc"])


def test_a_failed_installation_shows_what_apt_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of apt-get's message is part of ours."""
    a_program(tmp_path, "apt-get", "echo E: no network >&2; exit 100")
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(LabError, match=r"update` failed: E: no network"):
        packages.install(["runc"])


def test_sessions_that_run_side_by_side_install_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt-get fails if another one updates the lists; each waits for its turn."""
    alone = f"mkdir {tmp_path}/busy || exit 100; sleep 0.1; rmdir {tmp_path}/busy"
    (tmp_path / "programs").mkdir()
    a_program(tmp_path / "programs", "apt-get", alone)
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(packages.install, ["runc"]) for _ in range(4)]:
            one.result()
