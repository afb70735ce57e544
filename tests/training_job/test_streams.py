"""A stream gives the samples of a step, whoever asks, and goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.epochs import in_steps_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.streams import Stream, has_shuffle_buffer
from tests.support.streams import Rows, RowsThatSkip, RowsWithState
from tests.support.workloads import a_gpt

LENGTH, BATCH = 11, 4


def a_stream(rows: Rows | None = None, **fields: Any) -> Stream:
    """Build a stream of eleven samples, four to a step."""
    return Stream(samples=rows or Rows(LENGTH), samples_per_step=BATCH, **fields)


def is_sample(made: tuple[Tensor, Tensor], place: int, number: int) -> bool:
    """Whether a sample of a batch is one of the whole training."""
    x, y = Rows.at(number % LENGTH)
    return torch.equal(made[0][place], x) and torch.equal(made[1][place], y)


def test_a_rank_keeps_what_is_its_own() -> None:
    """The second half of each step, past the end of the data, read once."""
    rows = Rows(LENGTH)
    stream = a_stream(rows)
    for step in range(5):
        made = stream(step, 2, 2)
        assert all(is_sample(made, i, step * BATCH + 2 + i) for i in range(2))
    assert rows.num_read == 20


def test_what_lies_behind_is_read_again() -> None:
    """As the first samples are, which are made twice and compared."""
    stream = a_stream()
    stream(2, 0, 4)
    assert is_sample(stream(0, 1, 1), 0, 1)


@pytest.mark.parametrize("kind", [Rows, RowsThatSkip, RowsWithState])
def test_a_later_step_may_come_first(kind: type[Rows]) -> None:
    """Within the first epoch and behind it."""
    for step in (2, 7):
        assert is_sample(a_stream(kind(LENGTH))(step, 0, 4), 0, step * BATCH)


def test_one_that_skips_reads_nothing_before() -> None:
    """It gives another data set, which begins later."""
    rows = RowsThatSkip(LENGTH)
    a_stream(rows)(2, 0, 2)
    assert rows.num_read == 0


def test_a_state_saves_reading_what_was() -> None:
    """It is of the first rank, and good for every other one."""
    before = a_stream(RowsWithState(LENGTH))
    for step in range(2):
        before(step, 0, 2)
    rows = RowsWithState(LENGTH)
    after = a_stream(rows)
    after.resume(before.state())
    made = after(2, 2, 2)
    assert is_sample(made, 0, 10)
    assert is_sample(made, 1, 11)  # behind the end
    assert rows.num_read == 1  # the copy that resumed has read the rest
    assert is_sample(after(0, 0, 1), 0, 0)


def test_no_state_of_what_has_none() -> None:
    """Or whose state the user does not trust."""
    plain, distrusted = a_stream(), a_stream(RowsWithState(LENGTH), keeps_state=False)
    for stream in (plain, distrusted):
        stream(0, 0, 1)
        assert stream.state() == ""


def test_samples_may_be_converted() -> None:
    """As rows of `datasets` are, which are mappings."""
    stream = Stream(samples=["ab", "cd"], convert=letters)
    x, y = stream(0, 0, 2)
    assert x.tolist() == [97, 99]
    assert y.tolist() == [98, 100]


def letters(text: str) -> tuple[Tensor, Tensor]:
    """Input and target of a text."""
    first, second = (torch.tensor(ord(letter)) for letter in text)
    return first, second


def test_the_trainer_fills_in_the_samples_of_a_step() -> None:
    """As for `Epochs`."""
    workload = in_steps_of(a_gpt(batch=Stream(samples=Rows(LENGTH))), BATCH)
    assert is_sample(workload.batch(1, 0, 1), 0, BATCH)


def once() -> Iterator[int]:
    """Yield nothing, once."""
    yield from ()


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (once(), "the stream generator can be read once alone: give one whose "),
        ([], "the stream has no samples: give it some"),
    ],
)
def test_streams_that_cannot_be_trained_on(samples: Any, text: str) -> None:
    """In one line."""
    with pytest.raises(WorkloadError, match=f"^{text}"):
        Stream(samples=samples)(0, 0, 1)


@pytest.mark.slow
def test_streams_of_datasets_know_where_they_are(tmp_path: Path) -> None:
    """But for those that shuffle in a buffer, which would lose what is in it."""
    datasets = pytest.importorskip("datasets")
    lines = [f"{row:02}" for row in range(20)]
    (tmp_path / "rows.txt").write_text("\n".join(lines))
    read = datasets.load_dataset(
        "text",
        data_files=str(tmp_path / "rows.txt"),
        split="train",
        streaming=True,
        cache_dir=str(tmp_path),
    )

    def stream(samples: Any) -> Stream:
        return Stream(
            samples=samples,
            convert=lambda row: letters(row["text"]),
            samples_per_step=4,
        )

    before, after = stream(read), stream(read)
    before(3, 0, 2)
    after.resume(before.state())
    assert after._resumed is not None
    assert after._resumed["position"] == 14
    expected = [letters(lines[n % 20]) for n in range(16, 24)]
    for place, step in ((0, 4), (4, 5)):
        found = after(step, 0, 4)
        for i in range(4):
            x, y = expected[place + i]
            assert (found[0][i], found[1][i]) == (x, y)
    shuffled = stream(read.shuffle(seed=1, buffer_size=5))
    shuffled(0, 0, 1)
    assert has_shuffle_buffer(shuffled.samples)
    assert shuffled.state() == ""
