"""A folder is readable from its rename on, and only the right ones are touched."""

from __future__ import annotations

import contextlib
import itertools
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_trainer.checkpoint.folders import Folders, steps_in
from plimsoll_trainer.errors import CheckpointError


def make(root: Path, *names: str) -> None:
    """Make folders that hold a file."""
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text(name)


def names(root: Path) -> set[str]:
    """Names of the files there."""
    return {entry.name for entry in root.iterdir()}


def test_only_committed_folders_are_read(tmp_path: Path) -> None:
    """The latest first; everything else is invisible."""
    make(
        tmp_path,
        "step-00000010",
        "step-00000009",
        "step-123456789",
        "step-00000020.partial-1",
        "step-00000030.old-1",
        "step-00000040.aside-1",
        "step-5",
        "other",
    )
    found = [folder.name for folder in steps_in(tmp_path)]
    assert found == ["step-123456789", "step-00000010", "step-00000009"]
    assert steps_in(tmp_path / "none") == []


def test_opening_removes_what_earlier_attempts_left(tmp_path: Path) -> None:
    """Not what a later one writes, and nothing that was committed or set aside."""
    kept = {
        "step-00000001",
        "step-00000002.partial-3",
        "step-00000003.aside-1",
        "other.partial-1",
    }
    make(tmp_path, *kept, "step-00000004.partial-1", "step-00000005.old-2")
    Folders(tmp_path, 2).open()
    assert names(tmp_path) == kept | {".attempt-2"}


def test_a_commit_is_a_rename(tmp_path: Path) -> None:
    """Then the older ones go, but for those that are kept."""
    folders = Folders(tmp_path, 1)
    make(tmp_path, "step-00000001", "step-00000002", "step-00000003.partial-1")
    folders.commit(3)
    folders.prune(2, up_to=3)
    assert names(tmp_path) == {"step-00000003", "step-00000002"}
    assert (folders.committed(3) / "file").read_text() == "step-00000003.partial-1"


def test_an_earlier_attempt_commits_no_more(tmp_path: Path) -> None:
    """It may still run on a node that nobody can reach."""
    ghost = Folders(tmp_path, 1)
    ghost.open()
    make(tmp_path, "step-00000003.partial-1")
    Folders(tmp_path, 2).open()
    make(tmp_path, "step-00000004.partial-1")
    with pytest.raises(CheckpointError, match="attempt 2 has taken over"):
        ghost.commit(4)
    assert steps_in(tmp_path) == []


def test_two_jobs_in_one_folder_are_told(tmp_path: Path) -> None:
    """A committed checkpoint is never overwritten."""
    make(tmp_path, "step-00000003", "step-00000003.partial-1")
    with pytest.raises(CheckpointError, match="give each job its own"):
        Folders(tmp_path, 1).commit(3)
    assert (tmp_path / "step-00000003" / "file").read_text() == "step-00000003"


def test_what_was_just_committed_stays(tmp_path: Path) -> None:
    """Somebody else's later steps are set aside, and do not count as ours to keep."""
    folders = Folders(tmp_path, 1)
    make(tmp_path, "step-00000001", "step-00000002", "step-00000003.partial-1")
    make(tmp_path, "step-00000008", "step-00000009")
    moved = folders.commit(3)
    assert {path.name for path in moved} == {
        "step-00000008.aside-1",
        "step-00000009.aside-1",
    }
    make(tmp_path, "step-00000010")
    folders.prune(2, up_to=3)
    assert [folder.name for folder in steps_in(tmp_path)] == [
        "step-00000010",
        "step-00000003",
        "step-00000002",
    ]


def test_a_folder_that_is_written_to_is_removed(tmp_path: Path) -> None:
    """An earlier attempt may still write, faster than anyone could delete."""
    ghosts = tmp_path / "step-00000003.partial-1"
    end = threading.Event()

    def haunt() -> None:
        for place in itertools.count():
            if end.is_set():
                return
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                ghosts.mkdir(exist_ok=True)  # raises where it goes as it is looked at
                (ghosts / f"{place}").touch()

    ghost = threading.Thread(target=haunt)
    ghost.start()
    try:
        for attempt in range(2, 200):
            Folders(tmp_path, attempt).open()
    finally:
        end.set()
        ghost.join()
    Folders(tmp_path, 200).open()
    assert not list(tmp_path.glob("step-*"))


def test_what_could_not_be_removed_is_not_in_the_way(tmp_path: Path) -> None:
    """Its name is taken; another one is used, and removed by the next attempt."""
    make(tmp_path, "step-00000001.old-1", "step-00000001", "step-00000002")
    Folders(tmp_path, 1).prune(1, up_to=2)
    assert names(tmp_path) == {"step-00000001.old-1", "step-00000002"}
    make(tmp_path, "step-00000001.old-1x")
    Folders(tmp_path, 2).open()
    assert names(tmp_path) == {".attempt-2", "step-00000002"}


def test_later_steps_are_set_aside(tmp_path: Path) -> None:
    """Nothing is lost, and a name that is taken is not used again."""
    folders = Folders(tmp_path, 2)
    make(tmp_path, "step-00000001", "step-00000002", "step-00000002.aside-2")
    (moved,) = folders.set_aside_after(1)
    assert moved.name == "step-00000002.aside-2x"
    assert (moved / "file").read_text() == "step-00000002"
    assert [folder.name for folder in steps_in(tmp_path)] == ["step-00000001"]


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be used: .*give a folder"):
        Folders(tmp_path / "file", 1).open()
