"""Files that are named: what writes a missing one, outputs are checked first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs import plan as plan_verb
from plimsoll_planner.records import document
from tests.support.command_lines import a_profile_file, an_offers_file, words


@pytest.mark.parametrize(
    ("profile", "options", "message"),
    [
        ("no.json", [], "no.json: No such file or directory; plimsoll profile writes"),
        (".", [], ". is no profile, so it is taken for a model: give the"),
        ("offer.json", [], "kind is 'Offer', needs ModelProfile; plimsoll profile wr"),
        ("profile.json", ["--offers", "no.csv"], "directory; plimsoll offers --output"),
        (
            "profile.json",
            ["--overhead", "offer.json"],
            "kind is 'Offer', needs DeviceOverhead; without --overhead one is assumed",
        ),
    ],
)
def test_what_is_missing_says_what_writes_it(
    profile: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No such file, a folder, another kind of document: the next step is named."""
    monkeypatch.chdir(tmp_path)
    a_profile_file(tmp_path)
    an_offers_file(tmp_path)
    command = ["plan", profile, "--offers", "offer.json", *options]
    assert main(command) == ExitCode.BAD_INPUT
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("is_newer", [False, True])
def test_fields_of_another_release_say_what_writes_them_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_newer: bool
) -> None:
    """A profile that lacks a field, or has one more."""
    profile = Path(a_profile_file(tmp_path))
    found = json.loads(profile.read_text())
    if is_newer:
        found["more"] = 0
    else:
        del found["variants"]
    profile.write_text(json.dumps(found))
    command = ["plan", str(profile), "--offers", an_offers_file(tmp_path)]
    assert main(command) == ExitCode.BAD_INPUT
    printed = capsys.readouterr().err
    assert "make it anew: plimsoll profile writes one" in printed
    assert printed.count("\n") == 1


def test_an_answer_of_another_release_says_what_writes_it_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for profiles."""
    answer = tmp_path / "answer.json"
    command = words(tmp_path, "--out", "/dev/null", "--solution", str(answer))
    assert main(command) == ExitCode.DONE
    found = json.loads(answer.read_text())
    del found["plan"]["micro_batch"]
    answer.write_text(json.dumps(found))
    capsys.readouterr()
    assert main(["explain", str(answer)]) == ExitCode.BAD_INPUT
    printed = capsys.readouterr().err
    assert "make it anew: plimsoll plan --solution writes one" in printed
    assert printed.count("\n") == 1


def test_an_answer_that_is_missing_says_what_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As for profiles."""
    assert main(["explain", "no.json"]) == ExitCode.BAD_INPUT
    assert "directory; plimsoll plan --solution writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "none/p.json"], "cannot write none/p.json: no folder"),
        (["--solution", "none/s.json", "--out", "p.json"], "choose another --solution"),
        (["--out", "."], "--out: . is a folder"),
        (["--out", "/proc/p.json"], "cannot write /proc/p.json"),
        (["--out", "p.json", "--solution", "./p.json"], "overwrite the file of --out"),
        (["--out", "profile.json"], "--out would overwrite profile.json, which is r"),
        (["--solution", "offer.json"], "--solution would overwrite offer.json"),
    ],
)
def test_places_are_refused_before_the_search(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is searched, nothing is written, and no input is written over."""

    def searched(*_: object) -> None:
        pytest.fail("the search was started")

    monkeypatch.setattr(plan_verb, "answer_to", searched)
    monkeypatch.chdir(tmp_path)
    a_profile_file(tmp_path)
    an_offers_file(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    command = ["plan", "profile.json", "--offers", "offer.json", *options]
    assert main(command) == ExitCode.FAILED
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_device_takes_both(tmp_path: Path) -> None:
    """Unwanted files may go to /dev/null, from both options."""
    options = ["--out", "/dev/null", "--solution", "/dev/null"]
    assert main(words(tmp_path, *options)) == ExitCode.DONE


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "/dev/zero", "--offers", "offer.json"],
        ["plan", "profile.json", "--offers", "/dev/zero"],
        ["compare", "/dev/zero", "--gpus", "2", "--offers", "offer.json"],
        ["explain", "/dev/zero"],
        ["offers", "/dev/zero"],
        ["run", "/dev/zero"],
    ],
)
def test_a_file_without_an_end_is_one_line(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command that reads a file stops at a number of bytes."""
    monkeypatch.setattr(document, "LARGEST_DOCUMENT_BYTES", 2**20)
    monkeypatch.chdir(tmp_path)
    a_profile_file(tmp_path)
    an_offers_file(tmp_path)
    assert main(command) == ExitCode.BAD_INPUT
    printed = capsys.readouterr().err
    assert "/dev/zero: larger than " in printed
    assert printed.count("\n") == 1
