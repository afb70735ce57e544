"""Any rank can make any sample of a text, and a changed text is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.errors import WorkloadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with text in three files, an empty one and a hidden one."""
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_bytes(b"0123456789")
    (tmp_path / "b" / "c.txt").write_bytes(b"abc")
    (tmp_path / "b" / "empty.txt").write_bytes(b"")
    (tmp_path / "d.txt").write_bytes(b"DEFGHIJKLM")
    (tmp_path / ".hidden").write_bytes(b"???")
    return tmp_path


WHOLE = b"0123456789abcDEFGHIJKLM"


def test_a_folder_is_read_in_order_of_its_names(folder: Path) -> None:
    """The text is one sequence over all files; hidden ones are left out."""
    corpus = TextCorpus(folder, sequence_length=4)
    assert corpus.num_tokens == len(WHOLE)
    for start in range(len(WHOLE)):
        for end in range(start, len(WHOLE) + 1):
            assert corpus.read(start, end - start) == WHOLE[start:end]


def test_targets_are_inputs_shifted_by_one(folder: Path) -> None:
    """Every sample is a piece of the text, with the byte behind each as its target."""
    corpus = TextCorpus(folder, sequence_length=4)
    inputs, targets = corpus.batch(0, 0, 200)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.shape == targets.shape == (200, 4)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    pieces = {bytes(row) for row in torch.cat([inputs, targets[:, -1:]], 1).tolist()}
    assert pieces == {WHOLE[i : i + 5] for i in range(len(WHOLE) - 4)}


def test_a_batch_keeps_no_more_than_itself(folder: Path) -> None:
    """Inputs and targets stand alone: a rank that needs one does not hold both."""
    for tensor in TextCorpus(folder, sequence_length=4).batch(0, 0, 3):
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == 3 * 4 * 8


def test_a_sample_depends_on_seed_step_and_index_alone() -> None:
    """However a global batch is cut into pieces, its samples are the same."""
    corpus = TextCorpus(sequence_length=32, seed=1)
    inputs, targets = corpus.batch(7, 0, 12)
    for size in (1, 3, 4, 6):
        cut = [TextCorpus(sequence_length=32, seed=1).batch(7, i, size)
               for i in range(0, 12, size)]  # fmt: skip
        assert torch.equal(torch.cat([x for x, _ in cut]), inputs)
        assert torch.equal(torch.cat([y for _, y in cut]), targets)
    assert not torch.equal(corpus.batch(8, 0, 12)[0], inputs)
    other = TextCorpus(sequence_length=32, seed=2)
    assert not torch.equal(other.batch(7, 0, 12)[0], inputs)


def test_python_brings_text_along() -> None:
    """Without paths there are megabytes of it, the same every time."""
    corpus = TextCorpus(sequence_length=128)
    assert corpus.num_tokens > 1_000_000
    assert {file.suffix for file in corpus.files} <= {".py", ".txt", ""}
    assert corpus.digest() == TextCorpus(sequence_length=16, seed=5).digest()


def test_the_digest_tells_texts_apart(folder: Path) -> None:
    """It changes with the content, and only with it."""
    before = TextCorpus(folder, sequence_length=4).digest()
    (folder / ".hidden").write_bytes(b"!")
    assert TextCorpus(folder, sequence_length=4).digest() == before
    (folder / "d.txt").write_bytes(b"DEFGHIJKLN")
    assert TextCorpus(folder, sequence_length=4).digest() != before


def test_a_text_that_shrinks_during_a_run_is_refused(folder: Path) -> None:
    """Silently shorter samples would be other data."""
    corpus = TextCorpus(folder, sequence_length=4)
    (folder / "a.txt").write_bytes(b"0")
    with pytest.raises(WorkloadError, match=r"a\.txt is shorter than when"):
        corpus.read(0, 5)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (lambda folder: folder / "none", "neither a file nor a folder"),
        (lambda folder: folder / "b" / "c.txt", "3 bytes in 1 files, but a sample"),
        (lambda _: [], "0 bytes in 0 files"),
    ],
)
def test_a_text_that_gives_no_sample_is_refused(
    folder: Path, paths: Callable[[Path], Path | list[Path]], message: str
) -> None:
    """The line says what was found and what a sample takes."""
    with pytest.raises(WorkloadError, match=message):
        TextCorpus(paths(folder), sequence_length=4)
