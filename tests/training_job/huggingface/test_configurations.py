"""The configuration that a text means, and what is no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface import hub
from plimsoll_trainer.huggingface.configurations import bundled, configuration_of
from plimsoll_trainer.huggingface.pretrained import folder_of


@pytest.mark.parametrize("name", ["Qwen3-8B", "qwen3-8b", "Qwen/Qwen3-8B"])
def test_a_bundled_model_has_names(name: str) -> None:
    """Case and organisation do not matter, and nobody asks the hub."""
    config = configuration_of(name)
    assert config.model_type == "qwen3"
    assert config.num_hidden_layers == 36


def test_a_folder_wins_over_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself may be given as well."""
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text('{"model_type": "llama", "num_hidden_layers": 3}')
    monkeypatch.chdir(tmp_path)
    for given in ("Qwen3-8B", str(folder), str(file)):
        config = configuration_of(given)
        assert (config.model_type, config.num_hidden_layers) == ("llama", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON in UTF-8"),
        ("[]", "no configuration, which is a JSON object"),
        ("{}", "names no model_type"),
        ('{"model_type": "lama"}', "has no model_type 'lama' (it knows 'llama')"),
        (
            '{"model_type": "zzz", "auto_map": {"AutoConfig": "own.Own"}}',
            "asked for: give trust_remote_code: true among the arguments",
        ),
        (
            '{"model_type": "llama", "num_hidden_layers": "three"}',
            "model_type 'llama': ",
        ),
    ],
)
def test_what_is_no_configuration_is_refused(
    content: str, message: str, tmp_path: Path
) -> None:
    """In one line with the file."""
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(WorkloadError) as error:
        configuration_of(str(tmp_path))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """As a file of weights would be."""
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="no JSON in UTF-8"):
        configuration_of(str(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(WorkloadError, match=r"config\.json: No such file"):
        configuration_of(str(tmp_path))


def test_a_misspelt_name_leads_to_those_that_resemble_it() -> None:
    """And to the other ways to name a model."""
    with pytest.raises(WorkloadError) as error:
        configuration_of("Qwen3-9B")
    text = str(error.value)
    assert "did you mean Qwen3-" in text
    assert "or org/name of the hub" in text


def test_a_hub_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what to do; so is a client that is not installed."""
    asked: list[object] = []

    def unreachable(*given: object) -> str:
        asked.append(given)
        raise OSError("no route to the hub")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", unreachable)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(WorkloadError) as error:
        configuration_of("some/model")
    text = str(error.value)
    assert "no route to the hub" in text
    assert len(asked) == 1  # a download, which asks six times, has not begun
    assert "https" in str(asked)
    assert "get config.json of some/model elsewhere, and give its folder" in text
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    with pytest.raises(WorkloadError, match="huggingface_hub is not installed"):
        configuration_of("some/model")


def test_a_mistyped_path_is_not_here_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder and a name look like a name of the hub, which is asked; a file not."""

    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no route to the hub")

    for name in ("get_hf_file_metadata", "hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(f"huggingface_hub.{name}", unreachable)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build" / "tiny-qwen").mkdir(parents=True)
    for read in (configuration_of, folder_of):
        with pytest.raises(WorkloadError) as error:
            read("build/tiny-qwem")
        text = str(error.value)
        assert "no such file or folder (build has tiny-qwen), and the hub has" in text
    for path in ("build/", "other/config.json"):
        with pytest.raises(WorkloadError, match=r"the folder|config\.json:"):
            configuration_of(path)


def test_a_configuration_in_the_cache_needs_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The hub's client looks for a newer one by itself."""
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama"}')
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(file))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_: str(file))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", None)
    assert configuration_of("some/model").model_type == "llama"


def test_each_bundled_model_has_a_source() -> None:
    """And sizes that `transformers` takes as they are."""
    assert len(bundled()) > 40
    for name, one in bundled().items():
        assert one["source"]
        stated = one["configuration"]
        found = configuration_of(name).to_dict()
        for field in ("vocab_size", "hidden_size", "num_hidden_layers"):
            if field in stated:
                assert found[field] == stated[field], name
        assert json.dumps(stated)
