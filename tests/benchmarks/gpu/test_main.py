"""Results that a run of `make gpu` keeps for the next, its refusals and its last lines.

Models are not measured here but made up, so that each may fail as a GPU would let it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.gpu import command
from benchmarks.gpu import folder as folders
from benchmarks.gpu.device import MeasuredDevice, find_device
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.models import NAMES
from benchmarks.gpu.results import ModelResult, results_from
from plimsoll_planner.records.document import write_whole
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.errors import NoGpuError
from tests.benchmarks.gpu.made import a_rank, a_result

ONE, OTHER, THIRD = NAMES[:3]
Found = Callable[[], ModelResult]


class Bench:
    """Runs the command in a folder, with models that end as a test says."""

    def __init__(self, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing was measured yet."""
        self.out = out
        self.capsys = capsys
        self.asked: list[str] = []
        self.endings: dict[str, Found] = {}

    def measured(self, measuring: Measuring) -> ModelResult:
        """Stand in for minutes on a GPU."""
        self.asked.append(measuring.model)
        if measuring.model in self.endings:
            return self.endings[measuring.model]()
        return a_result(measuring.model, num_plans=len(measuring.choices))

    def run(self, *words: str, device: str = "cpu") -> tuple[int, str]:
        """Run it; the exit code, and what it printed."""
        self.asked.clear()
        try:
            code = command.main(("--device", device, "--out", str(self.out), *words))
        except SystemExit as exited:
            code = int(str(exited.code))
        return code, self.capsys.readouterr().err

    def stored(self) -> dict[str, ModelResult]:
        """Content of the file now."""
        return results_from(json.loads((self.out / "gpu.json").read_text())).models


@pytest.fixture
def bench(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """The command in a folder of its own."""
    made = Bench(tmp_path / "out", capsys)

    def run(measuring: Measuring) -> ModelResult:
        return made.measured(measuring)

    monkeypatch.setattr(Measuring, "run", run)
    return made


def failed(model: str, num_ranks: int = 0) -> Found:
    """A model that fails after so many ranks."""
    ranks = tuple(a_rank(rank=rank) for rank in range(num_ranks))
    return lambda: a_result(model, ranks=ranks, errors=("it broke",))


def raises(error: BaseException) -> Found:
    """An end without a result."""

    def ending() -> ModelResult:
        raise error

    return ending


def test_what_was_measured_is_kept(bench: Bench) -> None:
    """The same command goes on where it was, and measures nothing twice."""
    assert bench.run("--models", ONE)[0] == 0
    code, text = bench.run("--models", f"{ONE},{OTHER}")
    assert (code, bench.asked) == (0, [OTHER])
    assert f"{ONE}: measured before" in text
    assert set(bench.stored()) == {ONE, OTHER}


def test_a_model_is_measured_again_for_more_plans(bench: Bench) -> None:
    """Not for fewer, which are among those of before."""
    bench.run("--models", ONE, "--plans", "2")
    for plans, asked in (("3", [ONE]), ("2", []), ("1", []), ("99", [ONE])):
        assert bench.run("--models", ONE, "--plans", plans)[0] == 0
        assert bench.asked == asked
    assert bench.stored()[ONE].num_plans == 5


def test_an_interrupted_run_goes_on(bench: Bench) -> None:
    """Ctrl-C ends in one line and 130, and costs the model that was under way."""
    bench.endings[OTHER] = raises(KeyboardInterrupt())
    words = ("--models", f"{ONE},{OTHER}")
    code, text = bench.run(*words)
    assert code == 130
    assert text == "interrupted: the same command goes on where it was\n"
    bench.endings.clear()
    assert bench.run(*words)[0] == 0
    assert bench.asked == [OTHER]


def test_a_gpu_that_vanishes_costs_what_is_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier results are kept; no further model is tried on no GPU."""
    gpu = replace(find_device("cpu"), kind=DeviceKind.CUDA, product="h100")

    def found(name: str) -> MeasuredDevice:
        assert name == "cuda"
        return gpu

    def gone() -> dict[str, object]:
        raise NoGpuError("torch finds no GPU that works")

    monkeypatch.setattr(command, "find_device", found)
    monkeypatch.setattr(command, "ask_gpu", gone)
    bench.endings[OTHER] = failed(OTHER)
    words = ("--models", f"{ONE},{OTHER},{THIRD}")
    code, text = bench.run(*words, device="cuda")
    assert (code, bench.asked) == (1, [ONE, OTHER])
    assert "torch finds no GPU that works\n1 of 3 models" in text
    assert f"failed: {OTHER}\nleft: {THIRD};" in text
    bench.endings.clear()
    assert bench.run(*words, device="cuda")[0] == 0
    assert bench.asked == [OTHER, THIRD]


def test_the_better_of_two_results_is_kept(bench: Bench) -> None:
    """A model with errors is measured again; what has more ranks stays."""
    for num_ranks, kept in ((2, 2), (1, 2), (3, 3)):
        bench.endings[ONE] = failed(ONE, num_ranks)
        assert bench.run("--models", ONE)[0] == 1
        assert bench.asked == [ONE]
        assert len(bench.stored()[ONE].ranks) == kept


def test_the_end_speaks_of_what_was_asked_for(bench: Bench) -> None:
    """An old error of another model does not count, one of these does, by name."""
    bench.endings[ONE] = failed(ONE)
    bench.run("--models", ONE)
    code, text = bench.run("--models", OTHER)
    assert code == 0
    assert "1 of 1 models" in text
    code, text = bench.run("--models", f"{OTHER},{ONE}")
    assert code == 1
    assert f"failed: {ONE}\n" in text


def test_models_that_no_time_is_left_for_are_named(bench: Bench) -> None:
    """And the run has not done what was asked for."""
    code, text = bench.run("--models", f"{ONE},{OTHER}", "--minutes", "1e-9")
    assert (code, bench.asked) == (1, [])
    assert f"left: {ONE}, {OTHER};" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--plans", "0"), "at least 1"),
        (("--plans", "-1"), "at least 1"),
        (("--plans", "two"), "at least 1"),
        (("--minutes", "-1"), "above 0"),
        (("--minutes", "0"), "above 0"),
        (("--minutes", "inf"), "above 0"),
        (("--minutes", "nan"), "above 0"),
        (("--models", f"{ONE},"), "there is no ''"),
        (("--models", "gpt9"), f"there is no 'gpt9'; there are {ONE}"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    bench: Bench, words: tuple[str, ...], reason: str
) -> None:
    """With what is allowed, before anything is measured."""
    code, text = bench.run(*words)
    assert (code, bench.asked) == (3, [])
    assert text.count("\n") == 1
    assert reason in text


def test_a_folder_that_cannot_be_is_refused(bench: Bench) -> None:
    """Before anything is measured, with path and reason."""
    bench.out.write_text("a file")
    code, text = bench.run("--models", ONE)
    assert (code, bench.asked) == (3, [])
    assert text == f"{bench.out}: File exists\n"


@pytest.mark.parametrize("name", ["gpu.json", "gpu.md"])
def test_a_folder_in_the_place_of_a_file_is_refused(bench: Bench, name: str) -> None:
    """It stays as it is."""
    (bench.out / name).mkdir(parents=True)
    code, text = bench.run("--models", ONE)
    assert (code, bench.asked) == (3, [])
    assert text == f"{bench.out / name}: Is a directory\n"
    assert [path.name for path in bench.out.iterdir()] == [name]


@pytest.mark.parametrize("num_writes", [0, 2])
def test_a_full_disk_is_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, num_writes: int
) -> None:
    """At once, or where it is full after a model."""
    done: list[Path] = []

    def full(path: Path, text: str) -> None:
        if len(done) == num_writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(path)
        write_whole(path, text)

    monkeypatch.setattr(folders, "write_whole", full)
    code, text = bench.run("--models", ONE)
    assert (code, len(bench.asked)) == (3, num_writes // 2)
    assert text == f"{bench.out / 'gpu.json'}: No space left on device\n"


def damage(data: dict[str, Any], how: str) -> str:
    """Rest of a file of results."""
    match how:
        case "text":
            return "{"
        case "depth":
            return "[" * 100_000
        case "observed":
            data["observed"]["schema_version"] = 99
        case "models":
            data["models"] = []
        case "phases":
            data["models"][ONE]["ranks"][0]["phases"] = []
        case "no phases":
            data["models"][ONE]["ranks"][0]["phases"] = {}
        case "plans":
            data["models"][ONE]["num_plans"] = "many"
        case _:
            data[how] = 1
    return json.dumps(data)


HOWS = ("text", "depth", "observed", "models", "phases", "no phases", "plans", "new")


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_file_is_set_aside(bench: Bench, how: str) -> None:
    """It is found before anything is measured, and kept under a printed name."""
    bench.run("--models", ONE)
    path = bench.out / "gpu.json"
    damaged = damage(json.loads(path.read_text()), how)
    for name in ("gpu.json.before", "gpu.json.before-2"):
        path.write_text(damaged)
        code, text = bench.run("--models", ONE)
        assert (code, bench.asked) == (0, [ONE])
        assert text.startswith(f"{path} cannot be read any more (")
        assert f": it is kept as {bench.out / name}\n" in text
        assert (bench.out / name).read_text() == damaged


def test_results_of_another_device_are_set_aside(bench: Bench) -> None:
    """The message says of which."""
    bench.run("--models", ONE)
    path = bench.out / "gpu.json"
    before = json.dumps(json.loads(path.read_text()) | {"device": "h100, torch 9"})
    path.write_text(before)
    code, text = bench.run("--models", OTHER)
    assert code == 0
    assert "is of h100, torch 9, not of process, torch" in text
    assert (bench.out / "gpu.json.before").read_text() == before
    assert set(bench.stored()) == {OTHER}


def test_the_page_names_the_file_beside_it(bench: Bench) -> None:
    """Whoever follows its last line finds the numbers."""
    bench.run("--models", ONE)
    last = (bench.out / "gpu.md").read_text().splitlines()[-1]
    assert f"--learn {bench.out / 'gpu.json'}`" in last
