"""A small model in a folder of `transformers`, with a tokenizer and texts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a Qwen3 in two files; tokens are kept beside it."""
    pytest.importorskip("transformers")
    from examples.tiny_qwen import main  # noqa: PLC0415 - needs transformers

    folder = tmp_path_factory.mktemp("models") / "tiny-qwen"
    before = os.environ.get("PLIMSOLL_CACHE")
    os.environ["PLIMSOLL_CACHE"] = str(folder.with_name("cache"))
    main(folder)
    yield folder
    del os.environ["PLIMSOLL_CACHE"]
    if before is not None:
        os.environ["PLIMSOLL_CACHE"] = before
