"""A torch that is installed by its metadata alone, in a folder for `PYTHONPATH`."""

from __future__ import annotations

from pathlib import Path


def fake_torch(
    folder: Path, version: str, content: str = "raise AssertionError('loaded')"
) -> None:
    """Write a torch of some version whose import runs `content`."""
    installed = folder / f"torch-{version}.dist-info"
    installed.mkdir()
    metadata = f"Metadata-Version: 2.4\nName: torch\nVersion: {version}\n"
    (installed / "METADATA").write_text(metadata)
    (folder / "torch.py").write_text(f"{content}\n")
