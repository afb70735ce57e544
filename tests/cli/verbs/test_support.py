"""`plimsoll support`: which models are known, and how one is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_profiler.reading import survey
from plimsoll_profiler.reading.tasks import Family
from plimsoll_trainer.huggingface.configurations import bundled
from tests.support.own_models import KIND, keep_code_in, write_own_model


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts nothing."""
    monkeypatch.setenv("COLUMNS", "200")


def test_known_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With their sizes; also for machines."""
    assert main(["support"]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(bundled()) + 1
    [line] = [line for line in lines if line.startswith("Qwen3-8B ")]
    assert "8,190,735,360" in line
    assert main(["support", "-o", "json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == bundled()


def test_a_model_is_shown_as_it_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Layers, what they share, and what tensor groups cannot."""
    assert main(["support", "Qwen3-0.6B"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.startswith(
        "Qwen3-0.6B: qwen3, 596,049,920 parameters, text-generation\n"
    )
    assert "shared: embedding." in out
    assert "some tokens" not in out
    assert main(["support", "GPT2", "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["num_parameters"] == bundled()["GPT2"]["parameters"]
    assert "no tp_plan" in found["not_split"]


def test_a_classifier_of_images_says_nothing_of_tokens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has none."""
    assert main(["support", "vit-base-patch16-224"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "vit, 86,567,656 parameters, image-classification" in out
    assert "tokens" not in out


def test_what_is_no_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that resemble it."""
    assert main(["support", "Qwen3-9B"]) == ExitCode.BAD_INPUT
    assert "did you mean Qwen3-" in capsys.readouterr().err
    assert main(["support", "Qwen3-8B", "--all"]) == ExitCode.USAGE
    assert main(["support", "--task", "fill-mask"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON in UTF-8"),
        ('{"model_type": "gpt2", "n_embd": -8}', "-8"),
        (
            '{"model_type": "llama", "vocab_size": "1000"}',
            "expected int, got str (value: '1000')",
        ),
    ],
)
def test_a_bad_configuration_is_bad_input(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is for `plan`; the reason is in the line."""
    (tmp_path / "config.json").write_text(text)
    assert main(["support", str(tmp_path)]) == ExitCode.BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_model_with_its_own_code_is_read_if_that_may_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Otherwise the message says how to ask."""
    keep_code_in(tmp_path / "modules", monkeypatch)
    model = str(write_own_model(tmp_path / "own"))
    assert main(["support", model]) == ExitCode.BAD_INPUT
    assert "or --trust-remote-code" in capsys.readouterr().err
    assert main(["support", model, "--trust-remote-code"]) == ExitCode.DONE
    assert f"{KIND}, 37,024 parameters" in capsys.readouterr().out


def test_a_survey_ends_with_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are refused say why."""
    wanted = {
        Family.TEXT_GENERATION: ["bert", "llama"],
        Family.FILL_MASK: ["bert"],
    }
    monkeypatch.setattr(survey, "kinds_in", lambda family: wanted.get(family, []))
    assert main(["support", "--all"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "all: read 2 of 3 kinds of models, refused 1, failed 0" in out
    assert "text-generation: read 1 of 2 kinds of models, refused 1, failed 0" in out
    assert "fill-mask: read 1 of 1 kinds of models, refused 0, failed 0" in out
    assert "refused bert: " in out
    assert main(["support", "--all", "-o", "json"]) == ExitCode.DONE
    assert [one["model_type"] for one in json.loads(capsys.readouterr().out)] == [
        "bert",
        "llama",
        "bert",
    ]
