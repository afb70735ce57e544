"""Files, folders and data sets of the hub as rows: those that are meant, in order."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

import datasets

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.documents import data_source, rows_of


def written(folder: Path, **content: str | bytes) -> Path:
    """Files in a folder; the last `_` of a name is the dot of its end."""
    for name, text in content.items():
        file = folder / ".".join(name.rsplit("_", 1))
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def line(**fields: object) -> str:
    """A line of JSON."""
    return json.dumps(fields) + "\n"


def found(data: object) -> list[dict[str, Any]]:
    """All rows."""
    with TemporaryDirectory() as cache:
        return list(rows_of(data_source(data), Path(cache)))


def test_files_are_read_in_order_whatever_their_kind(tmp_path: Path) -> None:
    """Each with its own columns."""
    folder = written(
        tmp_path,
        a_jsonl=line(text="1"),
        b_txt="2\n",
        c_jsonl=line(prompt="3", completion="4"),
        d_md="5",
    )
    rows = [
        {"text": "1"},
        {"text": "2\n"},
        {"prompt": "3", "completion": "4"},
        {"text": "5"},
    ]
    assert found(str(folder)) == rows
    assert found([str(folder / "d.md"), str(folder / "a.jsonl")]) == [rows[3], rows[0]]
    named = {"path": str(folder / "d.md"), "text": "body"}
    assert found(named) == [{"body": "5"}]


def test_what_is_about_a_folder_is_no_data(tmp_path: Path) -> None:
    """Unless it is named itself; anything else that is not read is refused."""
    about = {"README_md": "about", "LICENSE": "yours", "readme_jsonl": "{"}
    folder = written(tmp_path, a_txt="text", **about)
    assert found(str(folder)) == [{"text": "text"}]
    assert found(str(folder / "README.md")) == [{"text": "about"}]
    written(folder, notes_pdf="pdf")
    with pytest.raises(WorkloadError, match=r"notes\.pdf is of no kind .* leave it"):
        found(str(folder))


def test_a_saved_folder_may_have_splits(tmp_path: Path) -> None:
    """The one that is named, and else that for training."""
    one: Any = datasets.Dataset.from_dict({"text": ["a"]})
    other: Any = datasets.Dataset.from_dict({"text": ["b"]})
    both: Any = datasets.DatasetDict({"train": one, "held": other})
    both.save_to_disk(str(tmp_path / "both"))
    one.save_to_disk(str(tmp_path / "one"))
    assert found(str(tmp_path / "both")) == [{"text": "a"}]
    held = {"path": [str(tmp_path / "both")], "split": "held"}
    assert found(held) == [{"text": "b"}]
    assert found([str(tmp_path / name) for name in ("one", "both")]) == [
        {"text": "a"},
        {"text": "a"},
    ]
    with pytest.raises(WorkloadError, match="no split 'x': there is train, held; name"):
        found({"path": str(tmp_path / "both"), "split": "x"})
    with pytest.raises(WorkloadError, match="no split 'x': there is train; name"):
        found({"path": str(tmp_path / "one"), "split": "x"})


@pytest.mark.parametrize("what", ["split", "revision"])
def test_files_have_neither_split_nor_revision(what: str, tmp_path: Path) -> None:
    """So what is asked for is not there."""
    folder = written(tmp_path, a_txt="text")
    with pytest.raises(WorkloadError, match=f"has no {what} 'x', for .* leave {what}"):
        found({"path": str(folder), what: "x"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.jsonl", line(text="x") + '\n{"text": "y\n', r"b\.jsonl .*: line 3: .*mend"),
        ("b.txt", b"caf\xe9", r"b\.txt cannot be read: UnicodeDecodeError: .*: mend"),
        ("b.json", '[{"text": 5]', r"b\.json cannot be read: .*: mend it, or leave"),
    ],
)
def test_one_bad_file_of_many_is_named(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    """With the line, where it has some; in one line, and nothing is logged."""
    folder = written(tmp_path, a_jsonl=line(text="x"), c_txt="text")
    written(folder, **{name.replace(".", "_"): content})
    with pytest.raises(WorkloadError, match=message) as error:
        found(str(folder))
    assert "\n" not in str(error.value)


def test_columns_that_change_within_a_file_are_told(tmp_path: Path) -> None:
    """Where its reader finds it too late to take both."""
    many = line(text="x" * 1000) * 12_000  # two of its pieces
    folder = written(tmp_path, a_jsonl=many + line(body="x"))
    with pytest.raises(WorkloadError, match=r"a\.jsonl .*column names don't match"):
        found(str(folder))


def test_arrays_and_texts_do_not_mix(tmp_path: Path) -> None:
    """By the names of both."""
    folder = written(tmp_path, a_npy="", b_txt="text")
    with pytest.raises(WorkloadError, match=r"a\.npy is an array .*b\.txt is not: giv"):
        assert data_source([str(folder / "a.npy"), str(folder / "b.txt")]).arrays
    assert data_source(str(folder / "a.npy")).arrays == [folder / "a.npy"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the hub was asked for; it has nothing."""
    names: list[Any] = []

    def load(path: str, **options: object) -> None:
        names.append((path, options["name"], options["revision"]))
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", load)
    return names


def test_the_hub_is_asked_for_what_is_no_path(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with the first name is here: then the rest was mistyped."""
    monkeypatch.chdir(tmp_path)
    Path("build").mkdir()
    for path in ("build/nothere", "build/v1.5", "org/a.jsonl", "a/b/c", "nothere"):
        with pytest.raises(WorkloadError, match=f"{path} is neither a file nor a fold"):
            found(path)
    assert asked == []
    with pytest.raises(WorkloadError, match=r"org/v1\.5 .*no route: check the name"):
        found({"path": "org/v1.5", "subset": "en", "revision": "main"})
    assert asked == [("org/v1.5", "en", "main")]
    with pytest.raises(WorkloadError, match=r"has no subset 'en', for it is at hand"):
        found({"path": "build", "subset": "en"})


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    """Of several files that it would match, or of none."""
    for name in ("n[1].jsonl", "n*.jsonl"):
        (tmp_path / name).write_text(line(text=name), "utf-8")
    assert found(str(tmp_path)) == [{"text": "n*.jsonl"}, {"text": "n[1].jsonl"}]
