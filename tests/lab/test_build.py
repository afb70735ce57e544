"""Building says what to do where it cannot, and needs no Go where it need not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import build
from tests.lab.errors import LabError


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that is the whole PATH; the cache is empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "bin"


def a_go(programs: Path, script: str) -> None:
    """Put a program called go on the PATH."""
    (programs / "go").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "go").chmod(0o755)


def test_no_go_is_explained() -> None:
    """Without Go and without cached binaries the version to install is named."""
    with pytest.raises(LabError, match=r"Go is not on the PATH: install Go 1\.26"):
        build.build_binaries()


def test_an_old_go_is_explained(programs: Path) -> None:
    """A Go older than go.mod asks for is named, with the version to install."""
    a_go(programs, "echo go1.9.7")
    with pytest.raises(LabError, match=r"go1\.9\.7 is too old, .* needs Go 1\.26"):
        build.build_binaries()


def test_a_failed_build_shows_what_go_said(programs: Path) -> None:
    """The last line of Go's own message is part of ours."""
    a_go(programs, '[ "$1" = env ] && echo go1.99 || { echo broken >&2; exit 1; }')
    with pytest.raises(LabError, match=r"`go build` failed in .*kubelab: broken"):
        build.build_binaries()
    assert build.find_binaries() is None


def test_cached_binaries_need_no_go(programs: Path) -> None:
    """A folder that one Go filled is used as it is where there is none."""
    script = '[ "$1" = env ] && echo go1.99; [ "$1" = list ] && echo "$MODULE"; true'
    stages = programs / "kustomize/stage"
    for name in build.STAGES:
        (stages / name).parent.mkdir(parents=True, exist_ok=True)
        (stages / name).write_text(f"# {name}")
    a_go(programs, f"MODULE={programs}\n{script}")
    built = build.build_binaries()
    assert built.made_in_s is not None
    (programs / "go").unlink()
    again = build.build_binaries()
    assert (again.folder, again.made_in_s) == (built.folder, None)
    assert (again.folder / "kubectl").readlink() == Path("kubelab")
