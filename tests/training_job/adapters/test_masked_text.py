"""Masked and labelled text, and images that are made, are the same on every rank."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.adapters.labelled_images import LabelledImages
from plimsoll_trainer.adapters.losses import IGNORED
from plimsoll_trainer.adapters.masked_text import MASK, LabelledText, MaskedText
from plimsoll_trainer.adapters.text_corpus import TextCorpus

LENGTH = 400


@pytest.fixture
def corpus(tmp_path: Path) -> TextCorpus:
    """Two files, one of them of the letter a."""
    (tmp_path / "a.txt").write_bytes(1000 * b"a")
    (tmp_path / "b.txt").write_bytes(bytes(range(65, 91)) * 60)
    return TextCorpus(tmp_path, sequence_length=LENGTH, seed=5)


def test_fifteen_of_a_hundred_tokens_are_to_be_found(corpus: TextCorpus) -> None:
    """8 of 10 of these are hidden, one is another byte, one stays."""
    inputs, targets = MaskedText(corpus).batch(0, 0, 40)
    text, _ = corpus.batch(0, 0, 40)
    is_target = targets != IGNORED
    assert is_target.sum(1).tolist() == 40 * [LENGTH * 15 // 100]
    assert torch.equal(targets[is_target], text[is_target])
    assert torch.equal(inputs[~is_target], text[~is_target])
    number = int(is_target.sum())
    hidden = int((inputs[is_target] == MASK).sum()) / number
    same = int((inputs[is_target] == text[is_target]).sum()) / number
    assert hidden == pytest.approx(0.8, abs=0.03)
    assert same == pytest.approx(0.1, abs=0.03)


def test_a_sample_follows_from_its_place_alone(corpus: TextCorpus) -> None:
    """Whoever makes it, with whatever others; another step makes other ones."""
    images = LabelledImages(channels=3, rows=6, columns=8, num_classes=4, seed=1)
    for make in (
        MaskedText(corpus).batch,
        LabelledText(corpus, 2).batch,
        images.batch,
    ):
        inputs, targets = make(3, 0, 6)
        part, part_targets = make(3, 2, 3)
        assert torch.equal(inputs[2:5], part)
        assert torch.equal(targets[2:5], part_targets)
        assert not torch.equal(inputs, make(4, 0, 6)[0])


def test_a_short_sample_has_something_to_be_found(tmp_path: Path) -> None:
    """A loss over nothing would be refused."""
    (tmp_path / "a.txt").write_bytes(b"abcdef")
    corpus = TextCorpus(tmp_path, sequence_length=2)
    _, targets = MaskedText(corpus).batch(0, 0, 8)
    assert (targets != IGNORED).sum(1).tolist() == 8 * [1]


def test_a_label_is_the_file_that_a_sample_begins_in(corpus: TextCorpus) -> None:
    """So that there is something to learn."""
    inputs, labels = LabelledText(corpus, 2).batch(0, 0, 30)
    assert set(labels.tolist()) == {0, 1}
    for row, label in zip(inputs, labels, strict=True):
        assert (int(row[0]) == ord("a")) is (int(label) == 0)


def test_images_of_a_label_resemble_each_other() -> None:
    """Their waves run in one direction: a spectrum of one has its peak there."""
    images = LabelledImages(channels=1, rows=32, columns=32, num_classes=2, seed=0)
    made, labels = images.batch(0, 0, 12)
    assert made.shape == (12, 1, 32, 32)
    assert set(labels.tolist()) == {0, 1}
    for image, label in zip(made, labels, strict=True):
        rows, columns = image[0].mean(1).std(), image[0].mean(0).std()
        assert bool(rows > columns) is bool(label == 1)
