"""Texts as tokens and samples: nothing lost, nothing invented, nothing foreign."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

import datasets
import torch
from transformers import AutoTokenizer

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface import tokenizing
from plimsoll_trainer.huggingface.documents import data_source
from plimsoll_trainer.huggingface.samples import TokenSamples
from plimsoll_trainer.huggingface.token_files import TokenSource

TEXTS = ["def one():\n    return 1\n", "import sys\n", "x = {}\n" * 20]
VOCABULARY = 1024


def source_of(model: Path, data: object) -> TokenSource:
    """Data as tokens of the small model."""
    return TokenSource(data=data_source(data), tokenizer=model, vocabulary=VOCABULARY)


def rows(path: Path, *found: dict[str, Any]) -> str:
    """A file of lines of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in found), "utf-8")
    return str(path)


def texts_in(model: Path, source: TokenSource) -> list[str]:
    """Texts of the documents, read back."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    files = source.open()
    begins = [0, *files.ends[:-1]]
    found = [files.tokens[a:b] for a, b in zip(begins, files.ends, strict=True)]
    assert all(ids[-1] == tokenizer.eos_token_id for ids in found)
    return [str(tokenizer.decode(ids[:-1])) for ids in found]


def written(kind: str, folder: Path) -> object:
    """The texts in files of some kind, as the arguments name them."""
    path = folder / f"texts.{kind}"
    table: Any = datasets.Dataset.from_dict({"body": TEXTS})
    match kind:
        case "jsonl":
            return rows(path, *({"text": text} for text in TEXTS))
        case "parquet":
            table.to_parquet(str(path))
            return {"path": str(path), "text": "body"}
        case "saved":
            table.save_to_disk(str(path))
            return {"path": str(path), "text": "body"}
        case _:
            for place, text in enumerate(TEXTS):
                (folder / f"{place}.txt").write_text(text, "utf-8")
            return str(folder)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "txt"])
def test_every_kind_of_file_has_the_same_documents(
    kind: str, model: Path, tmp_path: Path
) -> None:
    """Each text once, in order, with its end."""
    assert texts_in(model, source_of(model, written(kind, tmp_path))) == TEXTS


def test_tokens_are_made_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes map the same files; other texts have others."""
    source = source_of(model, written("jsonl", tmp_path))
    first = source.open()
    monkeypatch.setattr(TokenSource, "_make", None)
    assert np.array_equal(source.open().tokens, first.tokens)
    monkeypatch.undo()
    rows(tmp_path / "texts.jsonl", {"text": "other"})
    assert source.open().tokens.size < first.tokens.size


def test_only_the_cache_is_written_to(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of a container may have no other folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", "/proc/nobody")
    path = rows(tmp_path / "texts.jsonl", *({"text": text} for text in TEXTS))
    assert texts_in(model, source_of(model, path)) == TEXTS


def test_completions_count_and_prompts_do_not(model: Path, tmp_path: Path) -> None:
    """With the end of text behind each."""
    pair = {"prompt": "import ", "completion": "sys\n"}
    source = source_of(model, rows(tmp_path / "pairs.jsonl", pair))
    files = source.open()
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    count = len(tokenizer("import ", add_special_tokens=False)["input_ids"])
    assert files.counts.tolist() == [False] * count + [True] * (
        files.tokens.size - count
    )
    assert tokenizer.decode(files.tokens[:-1]) == "import sys\n"


def test_ready_tokens_are_taken_as_they_are(model: Path, tmp_path: Path) -> None:
    """From a column, labels with it, or from an array."""
    row = {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}
    files = source_of(model, rows(tmp_path / "ids.jsonl", row)).open()
    assert files.tokens.tolist() == [5, 6, 7]
    assert files.counts.tolist() == [False, True, True]
    np.save(tmp_path / "ids.npy", np.array([[1, 2, 3], [4, 5, 6]], np.uint16))
    files = source_of(model, str(tmp_path / "ids.npy")).open()
    assert files.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert files.ends.tolist() == [3, 6]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_ids": None}, "has None in column 'input_ids', and a list of whole"),
        ({"input_ids": "abc"}, "has 'abc' in column 'input_ids', and a list of whole"),
        ({"input_ids": [1.5, 2.5]}, r"has \[1.5, 2.5\] in column 'input_ids', and a"),
        ({"input_ids": [[1], [2]]}, r"has \[\[1\], \[2\]\] in column 'input_ids', and"),
        ({"input_ids": [[1], [2, 3]]}, r"has \[\[1\], \[2, 3\]\] in column 'input_id"),
        ({"input_ids": [5000, 1]}, "has token 5000, and the model knows 0 to 1023: ma"),
        ({"input_ids": [1, -100, 3]}, "has token -100, and the model knows 0 to 1023"),
        (
            {"input_ids": [1, 2, 3], "labels": [2, 3]},
            "has 3 input_ids and 2 labels: give one of these for each of those",
        ),
        ({"input_ids": [1, 2], "labels": []}, "has 2 input_ids and 0 labels: give"),
        (
            {"input_ids": [1, 2, 3], "labels": [-100, 3, 4]},
            "has 3 in labels where input_ids has 2: give the same, or -100 where",
        ),
        ({"input_ids": [1], "labels": "x"}, "has 'x' in column 'labels', and a list"),
    ],
)
def test_what_are_no_tokens_is_refused(
    row: dict[str, Any], message: str, model: Path, tmp_path: Path
) -> None:
    """With data and row, and the value that is wrong."""
    path = rows(tmp_path / "ids.jsonl", {"input_ids": []}, row)
    with pytest.raises(WorkloadError, match=f"ids.jsonl: row 2 {message}"):
        source_of(model, path).open()


def test_several_arrays_follow_each_other(model: Path, tmp_path: Path) -> None:
    """As files that are named, or in a folder; each row is a document."""
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], np.uint16))
    np.save(tmp_path / "b.npy", np.array([5, 6, 7], np.int64))
    for data in (str(tmp_path), [str(tmp_path / f"{name}.npy") for name in "ab"]):
        files = source_of(model, data).open()
        assert files.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
        assert files.ends.tolist() == [2, 4, 7]
        assert files.counts.all()
    np.save(tmp_path / "b.npy", np.array([5, -100, 7]))
    with pytest.raises(WorkloadError, match=r"b\.npy has token -100, and the model kn"):
        source_of(model, str(tmp_path)).open()


def test_a_named_column_wins(model: Path, tmp_path: Path) -> None:
    """Over all that are read where none is named."""
    row = {"prompt": "p", "completion": "c", "text": "t", "body": "b", "ask": "a"}
    path = rows(tmp_path / "both.jsonl", row)
    assert texts_in(model, source_of(model, path)) == ["pc"]
    for named, text in (
        ({"text": "body"}, "b"),
        ({"text": "text"}, "t"),
        ({"prompt": "ask"}, "ac"),
        ({"completion": "body"}, "pb"),
    ):
        data = {"path": path, **named}
        assert texts_in(model, source_of(model, data)) == [text]
    for name, message in (
        ({"text": "nothere"}, "none that is read .'nothere'.: name one"),
        ({"prompt": "nothere"}, "none that is read .'nothere' with 'completion'.: na"),
    ):
        with pytest.raises(WorkloadError, match=message):
            source_of(model, {"path": path, **name}).open()


def test_each_row_has_its_own_column(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are of each kind: a prompt alone is none, nor is null."""
    found: list[dict[str, Any]] = [
        {"text": "1"},
        {"prompt": "2", "completion": "3"},
        {"prompt": "no", "text": "4"},
        {"prompt": "no", "completion": None, "text": "5"},
    ]
    path = rows(tmp_path / "mixed.jsonl", *found)
    for at_once in (1000, 3):
        monkeypatch.setattr(tokenizing, "AT_ONCE", at_once)
        monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / str(at_once)))
        assert texts_in(model, source_of(model, path)) == ["1", "23", "4", "5"]


def test_tokens_are_of_one_tokenizer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew by another class or version, which may know other tokens."""
    folder = tmp_path / "other"
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = rows(tmp_path / "a.jsonl", {"text": "x"})
    known = {source_of(one, path).digest() for one in (model, folder)}
    assert len(known) == 1
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["model_type"] = "llama"
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    known.add(source_of(folder, path).digest())
    (folder / "spiece.model").write_bytes(b"pieces")
    known.add(source_of(folder, path).digest())
    monkeypatch.setattr(tokenizing, "version", lambda _: "0")
    known.add(source_of(folder, path).digest())
    assert len(known) == 4


def test_a_data_set_of_the_hub_has_tokens_by_revision(model: Path) -> None:
    """Whoever wants a later state names it."""
    known = {
        source_of(model, {"path": "org/name", **fields}).digest()
        for fields in (
            {},
            {"revision": "v1"},
            {"revision": "v2"},
            {"split": "x"},
            {"subset": "en"},
        )
    }
    assert len(known) == 5


def samples_of(model: Path, tmp_path: Path, *, is_packed: bool) -> TokenSamples:
    """Three documents of known tokens, in samples of four."""
    ids = ([9, 1, 2, 3, 4, 5, 6], [9, 7], [9, 8, 8])
    path = rows(tmp_path / "ids.jsonl", *({"input_ids": one} for one in ids))
    return TokenSamples(
        source=source_of(model, path), sequence_length=4, is_packed=is_packed, padding=0
    )


def test_packed_samples_lose_no_token(model: Path, tmp_path: Path) -> None:
    """Each is a target once, but for the first, and those behind the last sample."""
    samples = samples_of(model, tmp_path, is_packed=True)
    pairs = [samples[index] for index in range(len(samples))]
    assert torch.cat([x for x, _ in pairs]).tolist() == [9, 1, 2, 3, 4, 5, 6, 9]
    assert torch.cat([y for _, y in pairs]).tolist() == [1, 2, 3, 4, 5, 6, 9, 7]
    with pytest.raises(IndexError, match="sample 2 of 2"):
        samples[2]


def test_documents_apart_are_cut_and_filled(model: Path, tmp_path: Path) -> None:
    """What is filled up does not count."""
    samples = samples_of(model, tmp_path, is_packed=False)
    assert [(x.tolist(), y.tolist()) for x, y in (samples[i] for i in range(3))] == [
        ([9, 1, 2, 3], [1, 2, 3, 4]),
        ([9, 7, 0, 0], [7, -100, -100, -100]),
        ([9, 8, 8, 0], [8, 8, -100, -100]),
    ]


def test_too_little_text_is_refused(model: Path, tmp_path: Path) -> None:
    """For packed samples, with what would do."""
    path = rows(tmp_path / "ids.jsonl", {"input_ids": [1, 2]})
    samples = TokenSamples(
        source=source_of(model, path), sequence_length=4, is_packed=True
    )
    with pytest.raises(
        WorkloadError, match="has 2 tokens, and a packed sample takes 5"
    ):
        len(samples)


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("labels", [[-100] * 7, [5, 5, *[-100] * 5], [-100] * 6 + [5]])
def test_samples_of_which_nothing_counts_are_refused(
    labels: list[int], model: Path, tmp_path: Path, *, is_packed: bool
) -> None:
    """Neither the first token nor what is cut off is the target of any."""
    path = rows(tmp_path / "ids.jsonl", {"input_ids": [5] * 7, "labels": labels})
    samples = TokenSamples(
        source=source_of(model, path), sequence_length=4, is_packed=is_packed
    )
    if 5 in labels[1:5]:
        assert len(samples) == 1
        return
    with pytest.raises(WorkloadError, match="has no token that counts in its samples"):
        len(samples)


def named(path: Path, content: bytes) -> str:
    """A file with some bytes."""
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "a.jsonl is empty: give a file with text"),
        ("a.xyz", b"text", "is of no kind that can be read: name it"),
        ("a.jsonl", b'{"body": "x"}\n', "row 1 has the columns body, and none that is"),
        ("a.jsonl", b'{"text": 5}\n', "row 1 has int in column 'text', and a text"),
        ("a.jsonl", b'{"text": null}\n', "row 1 has NoneType in column 'text'"),
        ("a.npy", b"text", "no array of token ids"),
        ("a.jsonl", b'{"input_ids": []}\n', "has no text: give some"),
    ],
)
def test_data_that_cannot_be_read_is_refused(
    name: str, content: bytes, message: str, model: Path, tmp_path: Path
) -> None:
    """With the file, and what would do; nothing half-made is left."""
    source = source_of(model, named(tmp_path / name, content))
    with pytest.raises(WorkloadError, match=message):
        source.open()
    with pytest.raises(WorkloadError, match=message):
        source.open()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"file": "a"}, "data has no field 'file': it takes path, subset"),
        ({}, "names no path"),
        (5, "names no path"),
    ],
)
def test_senseless_data_is_refused(data: object, message: str) -> None:
    """With what is taken."""
    with pytest.raises(WorkloadError, match=message):
        data_source(data)


def test_a_missing_file_is_refused(model: Path, tmp_path: Path) -> None:
    """By its name."""
    source = source_of(model, str(tmp_path / "not" / "there.jsonl"))
    with pytest.raises(WorkloadError, match=r"there\.jsonl is neither a file nor a fo"):
        source.open()


def test_a_foreign_tokenizer_is_refused(model: Path, tmp_path: Path) -> None:
    """One with tokens that the model has not, and a folder without any."""
    path = rows(tmp_path / "a.jsonl", {"text": "x"})
    small = TokenSource(data=data_source(path), tokenizer=model, vocabulary=100)
    with pytest.raises(
        WorkloadError, match="has a token 1023, and the model knows 100"
    ):
        small.open()
    none = TokenSource(data=data_source(path), tokenizer=tmp_path, vocabulary=100)
    with pytest.raises(WorkloadError, match=r"has no tokenizer: copy tokenizer\.json"):
        none.open()
