"""`plimsoll profile`, and `plimsoll plan --replay`: from code to a certified plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs.profile import carried_text
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from tests.support.builders import a_profile, an_offer
from tests.support.carried import Value, carried_columns

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
GPT = "tests.support.workloads:a_gpt"
MIB = 2**20


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of these tests are found from the root of the tree."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")


def test_code_becomes_a_plan_that_its_replay_certifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Profile on the emulated device, plan, replay: every rank agrees."""
    out, offers = tmp_path / "profile.json", tmp_path / "offer.json"
    words = [GPT, "--args", '{"depth": 4}', "--device", "emulated"]
    words += ["--source", "measured", "--micro-batches", "1,2", "--out", str(out)]
    assert main(["profile", *words]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert "block" in shown
    assert "6 layers, timed" in shown
    assert load(out, ModelProfile).layers.name[1] == "block.0"
    offer = an_offer(
        device_kind=DeviceKind.EMULATED,
        device_product="process",
        device_memory_bytes=2 * MIB,
        devices_per_node=8,
    )
    save(offers, offer)
    words = [str(out), "--offers", str(offers), "--batch", "8", "--rate-floor", "0"]
    words += ["--replay", GPT]
    assert main(["plan", *words]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert "every rank agrees" in shown


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tests.support.nothing:here"], ExitCode.BAD_INPUT, "no module"),
        ([GPT, "--args", '{"depht": 1}'], ExitCode.BAD_INPUT, "depht"),
        ([GPT, "--args", "[1]"], ExitCode.USAGE, "a JSON object"),
        ([GPT, "--micro-batches", "4"], ExitCode.USAGE, "as 1,2,4"),
        ([GPT, "--out", "/nowhere/p.json"], ExitCode.FAILED, "no folder"),
        (["tests.support.builders:a_plan"], ExitCode.BAD_INPUT, "Workload"),
        ([GPT, "--memory", "4GiB"], ExitCode.USAGE, "--device emulated --source meas"),
        ([GPT, "--graph-micro-batches", "2"], ExitCode.BAD_INPUT, "source measured"),
    ],
    ids=[
        *("no module", "no argument", "no object", "one probe", "no folder", "no type"),
        *("no cap", "no clock"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The mistake and the next step, in one line, and no file half-written."""
    out = tmp_path / "profile.json"
    extra = [] if "--out" in words else ["--out", str(out)]
    assert main(["profile", *words, *extra]) == code
    shown = capsys.readouterr()
    [line] = [text for text in shown.err.splitlines() if text.strip()]
    assert line.startswith("plimsoll: ")
    assert message in line
    assert not out.exists()


def test_json_is_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --output json the whole profile is printed, and nothing else."""
    words = [GPT, "--device", "emulated", "--micro-batches", "1,2", "-o", "json"]
    assert main(["profile", *words, "--out", str(tmp_path / "p.json")]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "ModelProfile"


def test_values_that_skip_layers_are_named_by_their_widest_cut() -> None:
    """So that people see which cuts between stages are dear."""
    values = [Value(takers=(2,), num_bytes=MIB), Value(giver=1, takers=(3,))]
    made = a_profile(carried=carried_columns(values))
    assert carried_text(made) == (
        "2 values carried past other layers: most of one sample is 1.0 MiB, at block.0"
    )
