"""Every way in which an entry point can be wrong is one line that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.errors import EntryPointFullError, WorkloadError
from plimsoll_trainer.user_code.entrypoint import load_workload

MODULE = """
from tests.support.workloads import a_gpt
from plimsoll_trainer.workload import Workload

NUMBER = 3

def workload(*, depth: int = 2) -> Workload:
    return a_gpt(depth=depth)

def nothing():
    pass

def raising():
    raise ValueError("no such corpus" + chr(10) + "second line")

def leaving():
    raise SystemExit(3)

def too_large():
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB.")

def twice_named():
    return Workload(layers=(), loss=None, batch=None, optimizer=None)

def calling():
    from dataclasses import replace
    return replace(workload(), callbacks=("their_entry:wokload",))

class Family:
    small = staticmethod(workload)
"""


@pytest.fixture
def their_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module on the Python path, forgotten afterwards."""
    (tmp_path / "their_entry.py").write_text(MODULE)
    (tmp_path / "their_typo.py").write_text("def workload(:\n")
    (tmp_path / "their_import.py").write_text("import no_such_library\n")
    (tmp_path / "their_exit.py").write_text("raise SystemExit('use main.py')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in list(sys.modules):
        if name.startswith("their_"):
            monkeypatch.delitem(sys.modules, name)
    return "their_entry"


def test_an_entry_point_is_called_with_its_arguments(their_model: str) -> None:
    """The function gets them by name, and may stand inside a class."""
    assert len(load_workload(f"{their_model}:workload", {"depth": 5}).layers) == 7
    assert len(load_workload(f"{their_model}:Family.small", {}).layers) == 4


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("their_entry", "not of the form package.module:function"),
        ("their_enrty:workload", "no module their_enrty on the Python path; check"),
        ("their_entry.sub:workload", "no module their_entry.sub on the Python path"),
        ("their_typo:workload", r"SyntaxError: .* at .*their_typo\.py:1; import it"),
        ("their_import:workload", r"no_such_library' at .*their_import\.py:1"),
        ("their_exit:workload", "does not import: SystemExit: use main.py"),
        ("their_entry:worklaod", "no worklaod; did you mean workload?"),
        ("their_entry:zzz", "no zzz; it has Family, NUMBER, Workload"),
        ("their_entry:NUMBER", "NUMBER is int, but a function"),
        ("their_entry:raising", r"ValueError: no such corpus at .*their_entry\.py:14"),
        ("their_entry:leaving", "raised SystemExit: 3"),
        ("their_entry:nothing", "returned NoneType, but a plimsoll_trainer.workload"),
        ("their_entry:twice_named", "has no layers: give at least one"),
        ("their_entry:calling", "callback their_entry:wokload: .*did you mean wor"),
    ],
)
def test_a_wrong_entry_point_is_one_line(
    entrypoint: str, message: str, their_model: str
) -> None:
    """The line names the entry point, what is wrong and what to do."""
    assert their_model
    with pytest.raises(WorkloadError, match=message) as caught:
        load_workload(entrypoint, {})
    text = str(caught.value)
    assert text.startswith(f"entry point {entrypoint}: ")
    assert "\n" not in text
    assert caught.value.exit_code is ExitCode.BAD_WORKLOAD


def test_an_entry_point_that_fills_the_device_is_told(their_model: str) -> None:
    """It is the memory that is too small, which no Python shell would show.

    It would be under any plan: the exit code is not that of ranks that ran out.
    """
    message = (
        rf"{their_model}:too_large: it needs more memory for itself than the device"
    )
    with pytest.raises(EntryPointFullError, match=message) as caught:
        load_workload(f"{their_model}:too_large", {})
    assert caught.value.exit_code is ExitCode.ENTRY_POINT_OUT_OF_MEMORY


def test_wrong_arguments_are_told_from_an_error_inside(their_model: str) -> None:
    """The parameters are listed, and the function is not called."""
    message = "has no argument 'width': did you mean 'depth'"
    with pytest.raises(WorkloadError, match=message):
        load_workload(f"{their_model}:workload", {"width": 5})
