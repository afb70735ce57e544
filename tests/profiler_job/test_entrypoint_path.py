"""A module that is not there is reported before a process is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.entrypoint_path import python_path, require_module
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.profiling.prober_process import ProberProcess
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.ranks.replay_process import replay_plan
from tests.support.builders import a_plan, a_profile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a script and a package, which raise when imported."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_space" / "inner").mkdir(parents=True)
    for name in (
        *("their_script", "their_package/__init__", "their_package/model"),
        "their_space/inner/model",
    ):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "module",
    [
        *("their_script", "their_package", "their_package.model"),
        *("their_space.inner.model", "json.decoder", "math"),
    ],
)
def test_a_module_is_found_from_the_current_folder(module: str) -> None:
    """Or wherever Python finds it; it is not imported."""
    require_module(f"{module}:workload")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "module",
    [
        "their_scirpt",
        "their_script.model",
        "their_package.modle",
        "their_package..x",
        "their_space.inner.modle",
        "",
    ],
)
def test_a_module_that_is_not_there_is_named(module: str) -> None:
    """Whichever part of its name is wrong."""
    with pytest.raises(BadWorkloadError, match=f"no module {module} on the Python"):
        require_module(f"{module}:workload")


def test_no_process_is_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that were would be this Python, which is not there."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    request = ProfileRequest(
        entrypoint="their_scirpt:workload",
        device_kind=DeviceKind.CUDA,
        source=Source.TRACED,
    )
    with pytest.raises(BadWorkloadError, match="no module their_scirpt"):
        ProberProcess(request)
    with pytest.raises(BadWorkloadError, match="no module their_scirpt"):
        replay_plan(a_plan(), a_profile(), "their_scirpt:workload")


def test_the_path_of_a_process_begins_with_the_current_folder(folder: Path) -> None:
    """And names no folder by an empty string, which is another one elsewhere."""
    first, *others = python_path().split(os.pathsep)
    assert first == str(folder)
    assert all(others)
