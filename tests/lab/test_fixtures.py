"""Tests that need a lab are skipped with a command, and fail with the lab's logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import fixtures, owner, prepare
from tests.lab.cluster import Cluster

FAILS = """
import pytest
def test_fails(control_plane):
    assert control_plane.kubectl("get", "nothing-like-it")
"""


@pytest.fixture(autouse=True)
def nothing_may_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fixtures neither build nor install."""
    for name in ("CI", "PLIMSOLL_LAB_BUILD"):
        monkeypatch.delenv(name, raising=False)


def test_without_binaries_a_test_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason of the skip is the command that builds them."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="not built: run `make test`"):
        next(fixtures._lab("control-plane"))


def test_without_root_a_test_on_nodes_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason of the skip is the command with root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="run `sudo make test`"):
        next(fixtures._lab("nodes"))


def test_building_is_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixtures build and install in CI, or with PLIMSOLL_LAB_BUILD, and not else."""
    assert not prepare.may_prepare()
    monkeypatch.setenv("PLIMSOLL_LAB_BUILD", "1")
    assert prepare.may_prepare()


def test_the_end_of_a_long_log_is_short(tmp_path: Path) -> None:
    """Only the last lines are shown, however long the log is."""
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {number} {'x' * 500}\n" for number in range(9999)))
    lines = fixtures.tail(log).splitlines()
    assert lines[-1].startswith("line 9998 ")
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 200


@pytest.mark.control_plane
@pytest.mark.usefixtures("control_plane")
def test_a_failing_test_shows_the_labs_logs(tmp_path: Path) -> None:
    """Output of kubectl and the end of each log are part of the report."""
    (tmp_path / "test_it.py").write_text(FAILS)
    plain = ("-p", "no:cacheprovider", "-p", "tests.lab.fixtures", "--color=no")
    here = ("--rootdir", str(tmp_path), "-c", os.devnull)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *here, tmp_path],
        cwd=owner.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert 'the server doesn\'t have a resource type "nothing-like-it"' in done.stdout
    assert "end of the lab's kube-apiserver.log" in done.stdout


@pytest.mark.control_plane
def test_programs_find_the_cluster(control_plane: Cluster) -> None:
    """Helm and kubectl reach the lab and print the version they were built from."""
    assert "v1.36.3" in control_plane.kubectl("version")
    assert "v3.21.4" in control_plane.run("helm", "version").stdout
    assert control_plane.run("helm", "list").stdout.startswith("NAME")
