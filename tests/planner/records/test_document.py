"""Round trips and refusals that hold for every kind of document."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import math
import os
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll_planner import records
from plimsoll_planner.errors import (
    InvalidFieldError,
    InvalidInputError,
    SchemaVersionError,
    UnreadableError,
)
from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.document import (
    Document,
    digest_of,
    from_text,
    load,
    save,
    to_text,
)
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.record import Record, required_fields
from tests.support.builders import a_plan, a_profile, an_offer, every_document

DOCUMENTS = every_document()
each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[type(document).__name__ for document in DOCUMENTS]
)


def leaves(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number, string and flag inside a JSON value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    elif value is not None:
        yield path


def changed(value: Any, path: tuple[Any, ...], leaf: object) -> Any:
    """Copy of a JSON value with one leaf replaced."""
    value = copy.deepcopy(value)
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = leaf
    return value


def shown(path: tuple[Any, ...]) -> str:
    """Write a path as messages do: stages[1].ranks[0]."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps)


def test_every_kind_of_document_has_a_builder() -> None:
    """A new document must join these tests."""
    kinds = {
        kind.__name__
        for kind in Document.__subclasses__()
        if kind.__module__.startswith("plimsoll_planner.")
    }
    assert kinds == {type(document).__name__ for document in DOCUMENTS}


@each_document
def test_text_and_back_is_the_same(document: Document) -> None:
    """A document equals itself after a round trip, to the last bit."""
    text = to_text(document)
    again = from_text(text, type(document))
    assert again == document
    assert to_text(again) == text
    assert digest_of(again) == digest_of(document)


@each_document
def test_documents_cross_process_borders(document: Document) -> None:
    """The solver runs in a pool of processes, so records pickle."""
    assert pickle.loads(pickle.dumps(document)) == document  # noqa: S301 - our own


@each_document
def test_text_is_strict_json_with_a_header(document: Document) -> None:
    """Any JSON reader understands it and sees kind and version first."""
    value = json.loads(to_text(document), parse_constant=pytest.fail)
    assert list(value)[:2] == ["kind", "schema_version"]
    assert value["kind"] == type(document).__name__


@each_document
@pytest.mark.parametrize(
    "leaf", [math.nan, -1, 2**63, [], {}, "\x00", math.inf], ids=repr
)
def test_a_bad_leaf_is_refused_by_path(document: Document, leaf: object) -> None:
    """Whatever number, word or flag is replaced by nonsense, its path is named."""
    value = document.to_json()
    for path in leaves(value):
        if (leaf, path[-1]) == (-1, "status"):
            continue  # of a process that a signal ended
        with pytest.raises(InvalidInputError) as caught:
            type(document).from_json(changed(value, path, leaf), "doc")
        assert str(caught.value).startswith("doc" + shown(path))
        assert "\n" not in str(caught.value)


@each_document
def test_an_unknown_field_is_refused_at_every_level(document: Document) -> None:
    """A misspelt field never passes for an absent one."""
    value = document.to_json()
    records = {path[:-1] for path in leaves(value) if isinstance(path[-1], str)}
    for path in records:
        with pytest.raises(InvalidFieldError, match="no such field") as caught:
            type(document).from_json(changed(value, (*path, "surprise"), 1), "doc")
        assert caught.value.path == f"doc{shown(path)}.surprise"


@each_document
def test_a_missing_field_is_named(document: Document) -> None:
    """A document without one of its required fields says which."""
    value = document.to_json()
    required = required_fields(type(document))
    assert required
    for name in required:
        less = {key: item for key, item in value.items() if key != name}
        with pytest.raises(InvalidFieldError, match="this field is missing") as caught:
            type(document).from_json(less, "doc")
        assert caught.value.path == f"doc.{name}"


BEFORE_TENSOR_GROUPS: dict[str, tuple[str, ...]] = {
    "ModelProfile": ("costs.forward_messages", "costs.backward_messages"),
    "Certificate": (
        *("space.override.tensor_degree", "space.limits.tensor_degrees"),
        "counts.0.decisions.sequence_parallel",
    ),
    "Problem": ("override.tensor_degree", "profile.costs.step_messages"),
}


@pytest.mark.parametrize("name", BEFORE_TENSOR_GROUPS)
def test_a_document_of_before_tensor_groups_is_read(name: str) -> None:
    """Fields that came with them may be missing; what they say then is: no groups."""
    (document,) = (one for one in every_document() if type(one).__name__ == name)
    value: Any = document.to_json()
    for path in BEFORE_TENSOR_GROUPS[name]:
        *way, last = path.split(".")
        place = value
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        del place[last]
    found = type(document).from_json(value, name)
    if isinstance(found, Certificate):
        assert found.space == cast("Certificate", document).space
        assert found.counts[0].decisions.sequence_parallel is None
    else:
        assert found == document


def test_a_misspelt_field_gets_a_suggestion() -> None:
    """The nearest name is offered."""
    value = an_offer().to_json()
    value["devices_pernode"] = value.pop("devices_per_node")
    with pytest.raises(InvalidFieldError, match="did you mean devices_per_node"):
        Offer.from_json(value, "Offer")


def test_a_newer_schema_version_is_refused() -> None:
    """A document from a newer release is not half understood."""
    value = an_offer().to_json() | {"schema_version": 2}
    with pytest.raises(
        SchemaVersionError, match=r"got 2, but Plimsoll \S+ reads up to 1"
    ):
        Offer.from_json(value, "Offer")


def test_a_profile_with_the_edges_of_a_chain_is_read() -> None:
    """Profiles of before values were carried state edges; a chain's say nothing."""
    value = a_profile().to_json()
    plain = {"source": [0, 1, 2], "target": [1, 2, 3], "part": [1.0, 1.0, 1.0]}
    del value["carried"]
    older = value | {"schema_version": 1, "edges": plain}
    assert ModelProfile.from_json(older, "ModelProfile") == a_profile()
    skips = older | {"edges": plain | {"target": [1, 3, 3]}}
    with pytest.raises(InvalidFieldError, match=r"edges: .* profile again"):
        ModelProfile.from_json(skips, "ModelProfile")
    with pytest.raises(InvalidFieldError, match="edges"):
        ModelProfile.from_json(value | {"edges": plain}, "ModelProfile")


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None])
def test_a_senseless_schema_version_is_refused(version: object) -> None:
    """Only a whole number from 1 on is a version."""
    value = an_offer().to_json() | {"schema_version": version}
    with pytest.raises(InvalidFieldError, match="schema_version"):
        Offer.from_json(value, "Offer")


def test_another_kind_of_document_is_refused() -> None:
    """A plan is not taken for an offer."""
    with pytest.raises(InvalidFieldError, match="got 'HybridPlan', allowed is Offer"):
        from_text(to_text(a_plan()), Offer)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"kind": "Offer"',
        b"\xff\xfe{}",
        "[" * 100_000,
        '{"kind": "Offer", "kind": "Offer"}',
        '{"n": ' + "9" * 5000 + "}",
    ],
    ids=["empty", "cut", "cut later", "no utf-8", "deep", "twice", "5000 digits"],
)
def test_what_is_no_json_is_refused_in_one_line(text: str | bytes) -> None:
    """Neither broken text nor text made to hurt gives a traceback of the parser."""
    with pytest.raises(UnreadableError, match="Offer: not readable as JSON") as caught:
        from_text(text, Offer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, "text", [1]])
def test_what_is_no_mapping_is_refused(value: object) -> None:
    """A document is a JSON mapping."""
    with pytest.raises(InvalidFieldError, match="a mapping of fields"):
        from_text(json.dumps(value), Offer)


def test_save_and_load(tmp_path: Path) -> None:
    """A file holds one line and nothing is left beside it."""
    path = tmp_path / "plan.json"
    save(path, a_plan())
    assert load(path, type(a_plan())) == a_plan()
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    assert path.read_text().count("\n") == 1


def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half written: the old content stays until the new one is whole."""
    path = tmp_path / "offer.json"
    save(path, an_offer())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, an_offer(name="another"))
    assert load(path, Offer) == an_offer()
    assert [file.name for file in tmp_path.iterdir()] == ["offer.json"]


def test_a_link_is_followed_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    """Only a regular file is replaced; as root, /dev/stdout must stay what it is."""
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_text("old")
    link.symlink_to(target)
    save(link, an_offer())
    assert link.is_symlink()
    assert load(target, Offer) == an_offer()
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        save(pipe, an_offer())
        assert from_text(read.result(), Offer) == an_offer()
    assert pipe.is_fifo()


def test_load_names_the_file(tmp_path: Path) -> None:
    """Errors in a file say which file."""
    path = tmp_path / "broken.json"
    with pytest.raises(UnreadableError, match=r"broken\.json: No such file"):
        load(path, Offer)
    path.write_text("{")
    with pytest.raises(UnreadableError, match=r"broken\.json: Offer: not readable"):
        load(path, Offer)
    save(path, an_offer())
    path.write_text(path.read_text().replace('"h200-8"', "7"))
    with pytest.raises(InvalidFieldError, match=r"broken\.json: Offer\.name: got 7"):
        load(path, Offer)


def test_the_digest_depends_on_content_alone() -> None:
    """Equal documents have one digest; a changed field gives another."""
    assert digest_of(a_plan()) == digest_of(a_plan())
    assert digest_of(a_plan()) != digest_of(a_plan(revision=2))
    assert digest_of(a_plan()).startswith("sha256:")


def test_every_record_is_frozen_and_slotted() -> None:
    """No record can be changed after its check, nor grow a field."""
    modules = [
        importlib.import_module(f"{records.__name__}.{module.name}")
        for module in pkgutil.iter_modules(records.__path__)
    ]
    found = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
        if issubclass(kind, Record)
    }
    assert len(found) > len(DOCUMENTS)
    for kind in found:
        parameters = vars(kind)["__dataclass_params__"]
        assert parameters.frozen, kind
        assert not any("__dict__" in vars(base) for base in kind.__mro__), kind


@pytest.mark.parametrize(
    "name",
    ["a\nb", "\x1b[31mred", "\x9b31m", "\u2028", "\ud800", "n" * 10**6],
    ids=["line", "escape", "eight-bit escape", "separator", "surrogate", "endless"],
)
def test_a_hostile_field_name_is_one_short_printable_line(name: str) -> None:
    """Characters that a terminal would act on are escaped, and nothing is endless."""
    with pytest.raises(InvalidFieldError) as caught:
        Offer.from_json(an_offer().to_json() | {name: 1}, "Offer")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 1000


def test_a_value_that_is_deep_is_quoted_briefly() -> None:
    """No depth that the parser takes is too deep for the message."""
    for depth in (10, 500, 985, 988, 990, 992):
        text = json.dumps(an_offer().to_json()).replace(
            '"h200-8"', "[" * depth + "]" * depth
        )
        with pytest.raises(InvalidInputError) as caught:
            from_text(text, Offer)
        assert len(str(caught.value)) < 300


def test_a_small_document_cannot_take_much_time_or_memory() -> None:
    """A chunk of 2^53 layers and 1e5 repeated keys are judged at once."""
    value = a_plan().to_json()
    stages: Any = value["stages"]
    stages[1]["chunks"][0]["end_layer"] = 2**53 - 1
    stages[1]["recomputed_layers"] = [2**53 - 2]
    HybridPlan.from_json(value, "plan")
    keys = ",".join(f'"{key}":1' for key in range(100_000))
    with pytest.raises(UnreadableError, match="given twice"):
        from_text(f'{{{keys},"99999":1}}', Offer)


@pytest.mark.parametrize("path", ["a\0b", "", ".", "/proc/self/mem", "x" * 5000])
def test_no_path_escapes_the_errors(path: str) -> None:
    """Whatever is named, the answer is an `UnreadableError`."""
    with pytest.raises(UnreadableError):
        load(Path(path), Offer)


def test_errors_keep_their_parts_across_processes() -> None:
    """A report can show field, value and bound apart, also from a pool."""
    error = InvalidFieldError("Offer.name", 7, "text")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.path, again.value, again.allowed) == ("Offer.name", 7, "text")
    assert isinstance(again, InvalidInputError)
    assert isinstance(again, ValueError)
