"""Use of a GPU by other processes, from the program that the driver brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plimsoll_profiler.ranks import other_processes
from plimsoll_profiler.ranks.other_processes import (
    IDLE_BYTES,
    MIB,
    other_process_bytes,
    used_bytes,
)

ONE = "GPU-1a2b3c4d-0000-1111-2222-333344445555"
TWO = "GPU-9f8e7d6c-0000-1111-2222-333344445555"
LINES = (f"0, {ONE}, 4", f"1, {TWO}, 71234")
"""As `nvidia-smi` prints them: an idle GPU and one in use."""
BUSY = 71234 * MIB


@pytest.mark.parametrize(
    ("visible", "used"),
    [
        (None, 0),
        ("0", 0),
        ("0,1", 0),
        ("1", BUSY),
        ("1,0", BUSY),
        (" 1 , 0", BUSY),
        (TWO, BUSY),
        (f"{TWO},{ONE}", BUSY),
        ("GPU-9f8e", BUSY),
        (ONE, 0),
        ("", None),
        (" ", None),
        (",0", None),
        ("2", None),
        ("-1", None),
        ("MIG-9f8e7d6c-0000-1111-2222-333344445555", None),
        ("NoDevFiles", None),
    ],
)
def test_the_first_visible_gpu_counts(visible: str | None, used: int | None) -> None:
    """By its index or its UUID, or the beginning of that; a slice cannot be named."""
    assert used_bytes(LINES, visible) == used


@pytest.mark.parametrize(
    ("lines", "used"),
    [
        ((), None),
        (("",), None),
        (("No devices were found",), None),
        ((f"0, {ONE}",), None),
        ((f"0, {ONE}, [N/A]",), None),
        ((f"0, {ONE}, -5",), None),
        ((f"0, {ONE}, 1.5",), None),
        ((f"0,{ONE},100",), 100 * MIB),
        ((f"0, {ONE}, 100, more",), 100 * MIB),
        (("garbage", f"0, {ONE}, 100"), 100 * MIB),
        (("0", f"0, {ONE}, 100"), 100 * MIB),
    ],
)
def test_a_line_that_says_nothing_is_passed_over(
    lines: tuple[str, ...], used: int | None
) -> None:
    """If none is left, nobody knows."""
    assert used_bytes(lines, None) == used


def test_what_the_driver_keeps_of_an_idle_gpu_is_nobodys() -> None:
    """More than that is somebody's, and counts whole."""
    idle_mib = IDLE_BYTES // MIB
    assert used_bytes([f"0, {ONE}, {idle_mib}"], None) == 0
    assert used_bytes([f"0, {ONE}, {idle_mib + 1}"], None) == IDLE_BYTES + MIB


def a_program(folder: Path, text: str) -> None:
    """Put a program named `nvidia-smi` into a folder."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        (f"print('\\n'.join({LINES!r}))", BUSY),
        (f"print('\\n'.join({LINES!r})); sys.exit(9)", None),
        ("sys.stdout.buffer.write(b'\\xff\\xfe, 1')", None),
        ("sys.stderr.write('no driver')", None),
    ],
)
def test_the_drivers_program_is_asked(
    text: str, used: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output counts if it ends well; whatever it does raises nothing."""
    a_program(tmp_path, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(other_processes.VISIBLE_VARIABLE, "1")
    assert other_process_bytes() == used


def test_it_is_asked_for_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index, UUID and MiB in use of each GPU, as bare numbers."""
    a_program(tmp_path, f"open({str(tmp_path / 'asked')!r}, 'w').write(str(sys.argv))")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert other_process_bytes() is None
    asked = (tmp_path / "asked").read_text()
    assert "--query-gpu=index,uuid,memory.used" in asked
    assert "--format=csv,noheader,nounits" in asked


def test_where_there_is_no_driver_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where its program does not answer in time, or cannot be run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert other_process_bytes() is None
    a_program(tmp_path, "time.sleep(60)")
    monkeypatch.setattr(other_processes, "TIMEOUT_S", 0.2)
    assert other_process_bytes() is None
    (tmp_path / "nvidia-smi").write_bytes(b"\x00 no program")
    assert other_process_bytes() is None


def test_torch_is_not_loaded_for_it() -> None:
    """Its context on the GPU would be part of the answer."""
    code = (
        "import sys; from plimsoll_profiler.ranks import rehearser; "
        "from plimsoll_profiler.ranks.other_processes import other_process_bytes; "
        "other_process_bytes(); sys.exit('torch' in sys.modules)"
    )
    done: subprocess.CompletedProcess[Any] = subprocess.run(
        (sys.executable, "-c", code), check=False
    )
    assert done.returncode == 0
