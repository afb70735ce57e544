"""A checkpoint knows its files and what it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.document import save
from plimsoll_trainer.checkpoint.manifest import (
    FILE,
    Identity,
    Manifest,
    check_identity,
    describe_file,
    fault_in,
    identity_of,
    read_manifest,
)
from plimsoll_trainer.errors import CheckpointError
from tests.support.builders import DIGEST
from tests.support.workloads import a_gpt, tokens


def a_manifest(**fields: Any) -> Manifest:
    """Build a manifest without files."""
    defaults: dict[str, Any] = {
        "step": 3,
        "attempt": 1,
        "plan_digest": DIGEST,
        "torch_version": "2.15.0",
        "identity": Identity(seed="0", global_batch_size=8, data_digest=DIGEST),
        "files": (),
    }
    return Manifest(**(defaults | fields))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every field."""
    save(tmp_path / FILE, a_manifest())
    assert read_manifest(tmp_path) == a_manifest()


@pytest.mark.parametrize("text", [None, "", '{"kind": "Manifest"', '{"kind": "Offer"}'])
def test_a_broken_manifest_is_a_corrupt_checkpoint(
    text: str | None, tmp_path: Path
) -> None:
    """Missing, cut off, or something else."""
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=f"checkpoint {tmp_path} is corrupt: "):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "data: No such file or directory"),
        (b"0123", "data has 4 bytes, not the 10 written"),
        (b"0123456780", "data has another checksum"),
        (b"0123456789", None),
    ],
)
def test_files_are_as_they_were_written(
    content: bytes | None, message: str | None, tmp_path: Path
) -> None:
    """Missing, cut off, or with one bit changed."""
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    written = describe_file(path)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found = fault_in(tmp_path, [written])
    assert found == message or (message is not None and message in (found or ""))


def test_other_data_is_told(tmp_path: Path) -> None:
    """Seed, batch size and corpus decide the numbers."""

    def later(step: int, first: int, count: int) -> Any:
        return tokens(step + 1, first, count)

    saved = identity_of(a_gpt(), 8)
    check_identity(saved, identity_of(a_gpt(), 8), tmp_path)
    for here, field in (
        (identity_of(a_gpt(seed=1), 8), "seed 0, but here it is 1"),
        (identity_of(a_gpt(), 16), "global_batch_size 8, but here it is 16"),
        (identity_of(a_gpt(batch=later), 8), "data_digest sha256:"),
    ):
        with pytest.raises(CheckpointError, match=f"{field}.*--accept-other-data"):
            check_identity(saved, here, tmp_path)
