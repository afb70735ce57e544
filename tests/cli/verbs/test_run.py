"""`plimsoll run` on input that it cannot run: one line, and nothing is stored."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import click
import pytest

pytest.importorskip("numpy")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.state.gather import HomeSource
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.state_dir import open_state_dir
from plimsoll_cli.verbs.run import failure_lines, outcome_json, run, with_kept_grid
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.store.system import REVISION_TABLE
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.override import Override
from tests.cli.state.test_gather import put
from tests.support.command_lines import an_offers_file
from tests.support.home_plans import NAME, a_home_plan
from tests.support.home_runs import run_in
from tests.support.questions import a_question
from tests.support.reports import a_record
from tests.support.stores import READ_ONLY, TMPFS, on_own_mount

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "offers.csv")
BAD, FAILED, USAGE = ExitCode.BAD_INPUT, ExitCode.FAILED, ExitCode.USAGE
PLAN = """\
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingPlan
metadata: {name: chain}
spec:
  workload: {entrypoint: "examples.mlp:workload", args: {depth: 6, width: 192}}
  training: {globalBatchSize: 8, steps: 40}
"""
TWO_KINDS = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: both}
data:
  offers.csv: |
    InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,DeviceKind
    a,L4,1,23034,cuda
    b,process,2,256,emulated
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Folder in which nothing was ever run."""
    return tmp_path / "home"


def run_words(folder: Path, text: str | bytes, *options: str) -> list[str]:
    """Write a manifest and return the command line that runs it."""
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "plan.yaml").write_bytes(content)
    place = () if "--home" in options else ("--home", str(folder / "home"))
    return ["run", str(folder / "plan.yaml"), *place, *options]


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The message: a line on stderr, nothing on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("plimsoll: ")
    assert captured.err.count("\n") == 1
    return captured.err


def add(extra: str) -> str:
    """Plan with a part more in its spec."""
    return f"{PLAN}  {extra}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no objects of kind TrainingPlan, but one is wanted: each has a f"),
        ("- a\n", "plan.yaml: got ['a'], allowed is a mapping of fields"),
        (f"{PLAN}---\n{PLAN}", "plan.yaml: holds 2 objects of kind TrainingPlan"),
        (PLAN.replace("Plan\n", "Job\n"), "kind: got 'TrainingJob', allowed is Train"),
        (PLAN.replace("v1alpha1", "v2"), "allowed is plimsoll.dev/v1alpha1"),
        (PLAN.replace("steps", "step"), "spec.training.step: no such field; did you "),
        (PLAN.replace("chain", "Chain_1"), "metadata.name: got 'Chain_1', allowed is "),
        (PLAN.replace("40", "-40"), "spec.training.steps: got -40, allowed is a whole"),
        (PLAN.replace("40", "40.5"), "spec.training.steps: got 40.5, allowed is a who"),
        (PLAN.replace("40", "9" * 40), "allowed is a whole number at least 1 and at m"),
        (add("launch: {perGPU: {memory: 1 gb}}"), "got '1 gb', allowed is an amount o"),
        (add("training: {}"), "line 7, column 3: the field training is given twice"),
        (b"\x00\xff\xfe\x80", "plan.yaml: not readable as YAML: at character 2: "),
        (
            PLAN.replace("examples.mlp", "no.such.module"),
            "entry point no.such.module:workload: no module no.such.module on the Pyth",
        ),
        (
            add("search: {offers: {configMap: prices}}"),
            "spec.search.offers.configMap: got 'prices', allowed is a ConfigMap in the",
        ),
        (
            add("search: {offers: {configMap: both}}") + TWO_KINDS,
            "spec.search.offers.configMap: got 'both', allowed is a table of one kind",
        ),
    ],
)
def test_what_is_no_manifest_is_one_line_and_makes_no_home(
    text: str | bytes,
    message: str,
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Mistake, value and bound in one line; no state directory is made."""
    assert main(run_words(tmp_path, text)) == BAD
    assert message in one_line(capsys)
    assert not home.exists()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            "override: {data: 3}",
            "spec.training.globalBatchSize: got 8, allowed is a multiple of 3, which is"
            " spec.override.data",
        ),
        ("search: {engine: plimsol}", "spec.search.engine: no engine plimsol; did you"),
        ("search: {headroom: '1'}", "spec.search.headroom: got 1.0, allowed is below"),
        (
            "search: {objective: MinimizeCost}",
            "spec.search.offers: got 'this machine', allowed is offers that all have a",
        ),
        (
            "profile: {source: Traced}",
            "spec.profile.source: got 'Traced', allowed is Auto or Measured: a trace ",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_stored(
    extra: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of the spec; there is no plan afterwards."""
    assert main(run_words(tmp_path, add(extra), "--device", "cpu")) == BAD
    assert message in one_line(capsys)
    assert main(["get", "--home", str(tmp_path / "home"), "-o", "json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--offers", "no.csv"], BAD, "no.csv: No such file or directory"),
        (["--offers", "broken.csv"], BAD, "broken.csv: no such column 'a'"),
        (["--offers", "broken.json"], BAD, "broken.json: not readable as JSON: Exp"),
        (["--offers", "empty.json"], BAD, "lists no devices; list at least one"),
        (["--offers", "both.json"], BAD, "lists cuda and emulated devices; say which"),
        (
            ["--offers", EXAMPLE, "--device", "cpu"],
            BAD,
            "lists cuda devices; --device cpu asks for others",
        ),
        (
            ["--offers", EXAMPLE, "--devices", "2"],
            BAD,
            "--devices: got 2, allowed is nothing beside --offers",
        ),
        (
            ["--offers", EXAMPLE, "--device-memory", "1GiB"],
            BAD,
            "--device-memory: got 1073741824, allowed is nothing beside --offers",
        ),
        (
            ["--offers", EXAMPLE, "--real-device-memory", "1GiB"],
            BAD,
            "--real-device-memory: got 1073741824, allowed is for emulated devices",
        ),
        (
            ["--offers", EXAMPLE],
            BAD,
            "spec.launch.policy: the offers are GPUs and this machine has none: use Pl",
        ),
        (["--device", "cuda"], BAD, "--device cuda: this machine has no GPU; use --d"),
        (
            ["--device", "cuda", "--device-memory", "1GiB"],
            BAD,
            "--device-memory: got 1073741824, allowed is for emulated devices alone",
        ),
        (["--devices", "9" * 20], BAD, "a MiB for each; or say --device-memory"),
        (
            ["--devices", "9" * 20, "--device-memory", "1GiB"],
            BAD,
            "--devices: got 99999999999999999999, allowed is a whole number at lea",
        ),
        (["--devices", "0"], USAGE, "'--devices': 0 is not in the range x>=1"),
        (
            ["--device-memory", "1 gb"],
            USAGE,
            "got '1 gb', allowed is a number and its unit, as in 40GiB",
        ),
        (["--report", "no/report.html"], FAILED, "no folder "),
        (["--home", ""], USAGE, "got an empty name, allowed is a folder"),
        (["--home", "file"], FAILED, "file is no folder; name another --home"),
        (["--home", "file/home"], FAILED, "Not a directory; name another --home"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    options: list[str],
    code: ExitCode,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of machines, places and amounts; on a machine without GPUs."""
    monkeypatch.setenv("PATH", "/nowhere")  # no nvidia-smi
    write_offers(tmp_path)
    words = run_words(tmp_path, PLAN, *options)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    assert main(words) == code
    assert message in one_line(capsys)


def write_offers(folder: Path) -> None:
    """Write files of offers that cannot be used, and a file that is no folder."""
    (folder / "file").touch()
    (folder / "broken.csv").write_text("a,b\n1,2\n")
    (folder / "broken.json").write_text("{")
    (folder / "empty.json").write_text("[]")
    emulated = Path(an_offers_file(folder)).read_text()
    cuda = Path(an_offers_file(folder, device_kind=DeviceKind.CUDA)).read_text()
    (folder / "both.json").write_text(f"[{emulated}, {cuda}]")


@pytest.mark.parametrize(("name", "why"), [(".", "Is a directory"), ("no", "No such")])
def test_a_manifest_that_cannot_be_read_is_one_line(
    name: str, why: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, or nothing at all."""
    assert main(["run", str(tmp_path / name), "--home", str(home)]) == BAD
    line = one_line(capsys)
    assert f": {why}" in line
    assert line.endswith("; name a file with one TrainingPlan\n")
    assert not home.exists()


def test_a_store_that_is_none_is_named_with_what_to_do(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No database, one of something else, one of a newer version: all left alone."""
    home.mkdir()
    words = run_words(tmp_path, PLAN, "--device", "cpu")
    store = home / "plimsoll.db"
    store.write_bytes(b"hello")
    assert main(words) == FAILED
    assert "plimsoll.db is no store, or it is damaged" in one_line(capsys)
    assert store.read_bytes() == b"hello"
    for statement, why in (
        ("CREATE TABLE plan (x INTEGER)", "is a database of something else"),
        (f"CREATE TABLE {REVISION_TABLE} AS SELECT '9999' AS version_num", "a newer v"),
    ):
        store.unlink()
        with closing(sqlite3.connect(store)) as file:
            file.execute(statement)
        assert main(words) == FAILED
        line = one_line(capsys)
        assert why in line
        assert "name another --home" in line


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        (READ_ONLY, "Read-only file system; name another --home"),
        (f'{TMPFS}; dd if=/dev/zero of="$1/x" bs=4k status=none || :', "disk is full"),
    ],
)
def test_a_home_that_takes_nothing_is_one_line(
    mount: str, message: str, tmp_path: Path
) -> None:
    """A read-only mount, a full disk: before anything is begun."""
    run_words(tmp_path, PLAN)
    (tmp_path / "mount").mkdir()
    line, code = on_own_mount(mount, tmp_path / "mount", run_in).splitlines()
    assert message in line
    assert code == f"exit {FAILED}"


def test_a_traceback_is_shown_only_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last lines name the error; without `--debug` there is its line alone."""
    words = run_words(tmp_path, "- a\n")
    assert main([*words, "--debug"]) == BAD
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert main(words) == BAD
    one_line(capsys)


def test_the_help_has_every_exit_code_and_says_how_a_run_goes_on() -> None:
    """Scripts and people find it where they look first."""
    text = " ".join(run.get_help(click.Context(run)).split())
    _, _, codes = text.partition("Exit codes: ")
    for code in ExitCode:
        assert f"{code.value} " in codes
    assert "the same command goes on where it was" in text


def test_what_was_learned_is_listed_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For an empty state directory it prints what counts instead."""
    home = tmp_path / "home"
    asyncio.run(make_home(home))
    assert main(["calibrations", "--home", str(home)]) == ExitCode.DONE
    assert "what comes with Plimsoll counts" in capsys.readouterr().out
    words = ["calibrations", "--home", str(home), "--forget", "L4"]
    assert main(words) == ExitCode.FAILED
    assert "no device of L4 is known to have run out" in capsys.readouterr().err


async def make_home(root: Path) -> None:
    """Make an empty home."""
    async with open_state_dir(root):
        pass


def test_a_closed_stdin_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `run - <&-` has it."""
    monkeypatch.setattr("sys.stdin", None)
    assert main(["run", "-", "--home", str(home)]) == BAD
    message = "plimsoll: stdin is closed; name a file with one TrainingPlan\n"
    assert capsys.readouterr().err == message


def test_a_proof_says_that_it_holds_within_what_is_fixed() -> None:
    """For a program that reads it: fewer devices would do, were nothing fixed."""
    free = outcome_json(a_record(a_question(3000)))["proof"]
    fixed = outcome_json(a_record(a_question(3000, override=Override(num_stages=2))))
    expected: dict[str, object] = {
        "isProof": True,
        "withinFixed": False,
        "fewestUnfixed": None,
    }
    assert expected.items() <= cast("dict[str, object]", free).items()
    proof = cast("dict[str, Any]", fixed["proof"])
    expected = {"isProof": True, "withinFixed": True, "fewestUnfixed": 1}
    assert expected.items() <= proof.items()
    assert proof["counts"][0]["reason"] == "outside what was fixed by hand"


def test_a_failure_is_a_line_beside_the_json() -> None:
    """A log shows why, whoever reads the output; what went well needs none."""

    def lines(status: Truth, message: str) -> list[str]:
        ended = Condition(
            type=ConditionType.SUCCEEDED,
            status=status,
            reason="OutOfMemory",
            message=message,
        )
        return list(failure_lines(Status(conditions=(ended,))))

    assert lines(Truth.FALSE, "rank 1 is full") == [
        "failed: OutOfMemory: rank 1 is full"
    ]
    assert lines(Truth.FALSE, "") == ["failed: OutOfMemory"]
    assert lines(Truth.TRUE, "trained") == lines(Truth.UNKNOWN, "") == []
    assert not list(failure_lines(Status()))


def test_a_grid_is_searched_once_and_kept(tmp_path: Path) -> None:
    """In the answer of the store, so that `plimsoll report` shows it unasked."""
    plan, problem = a_home_plan(tmp_path / "home"), a_question(900)
    asyncio.run(put(plan, 0, problem))

    async def kept() -> tuple[RunRecord, RunRecord]:
        async with open_state_dir(plan.root) as home:
            _, before = await HomeSource(plan.root).find(NAME)
            made = await with_kept_grid(home, before, 1e9)
            _, again = await HomeSource(plan.root).find(NAME)
            assert await with_kept_grid(home, again, 1e9) is again
            return made, again

    made, again = asyncio.run(kept())
    assert made.answer is not None
    assert made.answer.grid is not None
    assert again.answer == made.answer


def test_a_plan_without_an_answer_has_no_grid(tmp_path: Path) -> None:
    """Nothing is searched, and nothing kept."""
    plan = a_home_plan(tmp_path / "home")

    async def kept() -> RunRecord:
        async with open_state_dir(plan.root) as home:
            _, before = await HomeSource(plan.root).find(NAME)
            return await with_kept_grid(home, before, 1e9)

    assert asyncio.run(kept()).answer is None
