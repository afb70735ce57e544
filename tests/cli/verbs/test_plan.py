"""`plimsoll plan`, `explain` and `compare` as people and scripts use them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.frontier import FrontierPoint
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    LayerStatistics,
    ModelProfile,
)
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.solution import Infeasible, Solution
from tests.support.builders import MIB, an_overhead
from tests.support.command_lines import a_profile_file, an_offers_file, words


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts nothing."""
    monkeypatch.setenv("COLUMNS", "200")


def test_a_plan_is_a_table_a_proof_and_alternatives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages with their peaks, one line of time and price, why one fewer fails."""
    assert main(words(tmp_path)) == ExitCode.DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0] == "3 devices (proven, every combination was searched)"
    assert lines[1].startswith("h200-8: 3 stages x 1 replica; micro-batch 1 x 8; step ")
    assert lines[1].endswith("; 1 node of 8 devices: 8 paid for, 3 used; 2.50 USD/h")
    assert lines[2].startswith("why: the fewest devices at 50% of the best samples/s")
    assert "(--rate-floor)" in lines[2]
    assert "(--tolerance)" in lines[2]
    assert lines[5].split()[:3] == ["STAGE", "LAYERS", "RANKS"]
    stages = [line.split() for line in lines[6:9]]
    assert [cells[0] for cells in stages] == ["0", "1", "2"]
    assert all("%" in cells[-2] for cells in stages)
    (proof,) = [line for line in lines if line.startswith("fewest: ")]
    assert "3 devices at 0.0381 samples/s or more; 2 fail: on h200-8, rank " in proof
    assert proof.endswith(" MiB, has 96.00 MiB")
    assert any(line.startswith("searched: 1 to 16 devices; 1 offer") for line in lines)
    assert "what else could be had:" in lines


@pytest.mark.parametrize("columns", [100, 80, 60, 40])
def test_a_narrow_terminal_cuts_no_number(
    columns: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bar goes first, then columns; none is cut, and no line is too long."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(words(tmp_path, "--steps", "1000")) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    assert "###" not in output
    assert "93.46 MiB" in output
    assert "94%" in output
    lines = output.splitlines()
    assert all(len(line) <= columns and line == line.rstrip() for line in lines)
    (heading,) = [line for line in lines if line.startswith("DEVICES")]
    assert "STAGES" in heading
    assert ("BATCH" in heading) is (columns >= 60)


def test_a_micro_batch_that_matters_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BatchNorm: one line with both options; either of them gives a plan that warns."""
    asked = words(tmp_path)
    profile = load(tmp_path / "profile.json", ModelProfile)
    norm = LayerStatistics(kind=0, what="BatchNorm2d")
    save(tmp_path / "profile.json", replace(profile, batch_statistics=(norm,)))
    assert main(asked) == ExitCode.BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert "--micro-batch: missing" in line
    assert "(BatchNorm2d)" in line
    assert "--batch-statistics to PerMicroBatch" in line
    for option in (("--micro-batch", "1"), ("--batch-statistics", "PerMicroBatch")):
        assert main([*asked, *option]) == ExitCode.DONE
        assert "(BatchNorm2d): here over 1, on each replica" in capsys.readouterr().out


def test_json_and_files_are_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One answer goes to a pipe, to --out and to --solution."""
    plan, answer = tmp_path / "plan.json", tmp_path / "solution.json"
    files = ["--out", str(plan), "--solution", str(answer), "-o", "json"]
    assert main(words(tmp_path, *files)) == ExitCode.DONE
    printed = Solution.from_json(json.loads(capsys.readouterr().out), "Solution")
    assert load(answer, Solution) == printed
    assert load(plan, HybridPlan) == printed.plan


def test_no_plan_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bound, by how much, and the remedy; the answer is written as well."""
    answer, plan = tmp_path / "solution.json", tmp_path / "plan.json"
    options = ["--max-gpus", "2", "--solution", str(answer), "--out", str(plan)]
    assert main(words(tmp_path, *options)) == ExitCode.NO_PLAN
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "no plan: memory binds"
    assert lines[1].startswith("nearest miss: on h200-8, rank ")
    assert lines[2].startswith("would do: 3 devices (--max-gpus is 2); or 2 devices of")
    assert isinstance(load(answer, Infeasible), Infeasible)
    assert not plan.exists()


def test_objectives_and_floors_reach_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cheapest, the fastest, and the fewest that are fast enough."""
    found: dict[str, Solution] = {}
    for name, options in {
        "fewest": [],
        "fastest": ["--objective", "maximizethroughput"],
        "cheapest": ["--objective", "MinimizeCost", "--steps", "100"],
        "fast": ["--min-throughput", "0.15"],
    }.items():
        assert main(words(tmp_path, "-o", "json", *options)) == ExitCode.DONE
        value = json.loads(capsys.readouterr().out)
        found[name] = Solution.from_json(value, name)
    rates = {name: answer.plan.samples_per_s or 0 for name, answer in found.items()}
    assert max(rates.values()) == rates["fastest"]
    assert rates["fast"] >= 0.15
    assert found["fewest"].plan.num_gpus < found["fast"].plan.num_gpus


def test_a_cost_that_was_asked_for_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Duration and cost of the whole training, and the cost of the alternatives."""
    options = ["--objective", "MinimizeCost", "--steps", "1000"]
    assert main(words(tmp_path, *options)) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "1000 steps: 14.6 h, 36.46 USD"
    place = lines.index("what else could be had:") + 1
    assert lines[place].split()[-1] == "COST"
    costs = [float(line.split()[-2]) for line in lines[place + 1 :]]
    assert all(cost >= 36.46 for cost in costs)
    assert main(words(tmp_path)) == ExitCode.DONE
    assert "COST" not in capsys.readouterr().out


def test_without_a_price_no_money_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A laptop costs nothing: no column of dashes, and a duration alone."""
    offers = an_offers_file(tmp_path, price_per_node_hour=None, currency=None)
    command = ["plan", a_profile_file(tmp_path), "--offers", offers, "--batch", "8"]
    assert main([*command, "--steps", "1000"]) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "PRICE/H" not in output
    assert "1000 steps: 29.7 h\n" in output


def test_a_missed_deadline_is_answered_with_one_that_is_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remedy is a deadline, and with that there is a plan."""
    missed = ["--steps", "1", "--deadline", "10"]
    assert main(words(tmp_path, *missed)) == ExitCode.NO_PLAN
    output = capsys.readouterr().out
    found = re.search(r"would do: a deadline of at least (\S+) s, on 8 devices", output)
    assert found is not None
    met = ["--steps", "1", "--deadline", found[1]]
    assert main(words(tmp_path, *met)) == ExitCode.DONE


def test_whole_nodes_that_no_goal_counts_are_refused_in_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were accepted, and a certificate listed them that did not hold to them."""
    options = ["--whole-nodes", "--objective", "MinimizeMemory"]
    assert main(words(tmp_path, *options)) == ExitCode.BAD_INPUT
    printed = capsys.readouterr().err
    assert "--whole-nodes: got True, allowed is false with MinimizeMemory" in printed


def test_overrides_are_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cuts, layers and micro-batch as they were typed."""
    options = ["--cuts", "0,2,5,7", "--recompute", "1-3,8", "--micro-batch", "2"]
    assert main(words(tmp_path, "-o", "json", *options)) == ExitCode.DONE
    plan = Solution.from_json(json.loads(capsys.readouterr().out), "Solution").plan
    assert [stage.chunks[0].first_layer for stage in plan.stages] == [0, 2, 5, 7]
    again = [layer for stage in plan.stages for layer in stage.recomputed_layers]
    assert again == [1, 2, 3, 8]
    assert plan.micro_batch == 2


def test_an_override_that_does_not_fit_is_shown_and_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One GPU was asked for: there is a plan, and it says that it is over."""
    options = ["--gpus", "1", "--recompute", "all"]
    assert main(words(tmp_path, *options)) == ExitCode.NO_PLAN
    output = capsys.readouterr().out
    assert output.startswith("1 device (fixed by hand: does not fit)")
    assert "% over" in output
    assert "warning: what is fixed does not fit: rank 0" in output


def test_explain_tells_every_count_and_every_tuple(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why not fewer; and of one count, which rule decided what."""
    answer = str(tmp_path / "solution.json")
    main(words(tmp_path, "--solution", answer))
    capsys.readouterr()
    assert main(["explain", answer]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 devices: proven, every combination was searched"
    first = lines.index("devices  verdict") + 1
    counts = [line.split()[:2] for line in lines[first : first + 3]]
    assert counts == [["1", "fails"], ["2", "fails"], ["3", "fits"]]
    assert lines[first + 3].startswith(
        "a combination is an offer, stages, replicas and"
    )
    assert main(["explain", answer, "--gpus", "2"]) == ExitCode.DONE
    header, *tuples = capsys.readouterr().out.splitlines()[2:]
    assert header.split()[:2] == ["STAGES", "REPLICAS"]
    assert [line.split()[:6] for line in tuples[: tuples.index("")]] == [
        ["1", "2", "1-4", "h200-8", "fails", "states"],
        ["2", "1", "1", "h200-8", "fails", "least"],
        ["2", "1", "2-4", "h200-8", "fails", "smaller"],
        ["2", "1", "8", "h200-8", "fails", "engine"],
    ]
    legend = "\n".join(tuples[tuples.index("") :])
    assert "LEAST PEAK: " in legend
    assert "least memory too large: the plan of the least memory" in legend
    assert "too slow" not in legend
    assert main(["explain", answer, "--gpus", "2", "-o", "json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["num_gpus"] == 2


def test_explain_reads_an_answer_without_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Infeasible is an answer too."""
    answer = str(tmp_path / "solution.json")
    main(words(tmp_path, "--max-gpus", "2", "--solution", answer))
    capsys.readouterr()
    assert main(["explain", answer]) == ExitCode.DONE
    assert capsys.readouterr().out.startswith("no plan: memory binds")


def test_compare_puts_the_usual_cuts_beside_the_exact_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four rows, the rounding rule, and ours needs the fewest GPUs."""
    command = ["compare", *words(tmp_path)[1:], "--gpus", "3"]
    assert main(command) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == [
        "uniform",
        "parameters",
        "time",
        "ours",
    ]
    assert any("round(i * layers / stages)" in line for line in lines)
    assert main([*command, "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    rows = {row["rule"]: row for row in found["cuts"]}
    assert rows["ours"]["fits"] is True
    assert rows["ours"]["gpus_needed"] == 3
    for row in rows.values():
        assert row["gpus_needed"] is None or row["gpus_needed"] >= 3
        if row["fits"]:
            assert row["peak_bytes"] <= 96 * MIB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-gpus 2", "--max-gpus: got 2, allowed is at least 3, which is --gpus"),
        ("--pipeline 2", "--gpus: got 3, allowed is a multiple of 2, for --pipeline 2"),
        (
            "--pipeline 4 --data 2",
            "--gpus: got 3, allowed is 8, for --pipeline 4 times --data 2",
        ),
        ("--objective MinimizeCost", "No such option '--objective'."),
        ("--whole-nodes", "No such option '--whole-nodes'."),
    ],
)
def test_compare_refuses_what_it_cannot_obey(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such options changed nothing, or left rows of '-' without a reason."""
    command = ["compare", *words(tmp_path)[1:], "--gpus", "3", *options.split()]
    assert main(command) in {ExitCode.BAD_INPUT, ExitCode.USAGE}
    assert message in capsys.readouterr().err


def test_compare_says_why_a_row_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that has the memory is too slow, and one that is not searched unknown."""
    command = ["compare", *words(tmp_path)[1:], "--gpus", "3"]
    assert main([*command, "--min-throughput", "1e9"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "too slow" in out
    assert "samples/s where 1,000,000,000 are needed" in out
    assert main([*command, "--max-tuples", "1"]) == ExitCode.DONE
    assert "cut off by --max-tuples" in capsys.readouterr().out


def test_calibrated_overhead_and_csv_offers_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of machines and a calibration: no warning of an assumption is left."""
    table = tmp_path / "offers.csv"
    table.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,Price\n"
        "big,H200,8,8192,10\n"
    )
    save(tmp_path / "overhead.json", an_overhead())
    profile = a_profile_file(tmp_path, device_kind=DeviceKind.CUDA)
    command = ["plan", profile, "--offers", str(table), "--batch", "8"]
    assert main(command) == ExitCode.DONE
    assert "what H200 holds besides tensors was never" in capsys.readouterr().out
    overhead = ["--overhead", str(tmp_path / "overhead.json")]
    assert main([*command, *overhead]) == ExitCode.DONE
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "kind is None, needs Solution or Infeasible"),
        ('{"kind": "HybridPlan"}', "kind is 'HybridPlan', needs Solution"),
        ('{"kind": "Solution"}', "Solution.schema_version: got nothing"),
    ],
)
def test_what_is_no_answer_cannot_be_explained(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what the file is instead."""
    (tmp_path / "x.json").write_text(content)
    assert main(["explain", str(tmp_path / "x.json")]) == ExitCode.BAD_INPUT
    captured = capsys.readouterr().err
    assert message in captured
    assert captured.count("\n") == 1


def test_a_count_that_was_not_judged_cannot_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate ends at the answer, and the line says where that is."""
    answer = str(tmp_path / "solution.json")
    main(words(tmp_path, "--solution", answer))
    capsys.readouterr()
    assert main(["explain", answer, "--gpus", "9"]) == ExitCode.FAILED
    assert "it has 1 to 3" in capsys.readouterr().err


def test_a_frontier_is_a_picture_a_table_and_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the answer; the same points are in JSON, and in --solution."""
    file = tmp_path / "solution.json"
    options = ["--frontier", "--frontier-points", "6", "--solution", str(file)]
    assert main(words(tmp_path, *options)) == ExitCode.DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    shown = lines[lines.index("memory against speed:") :]
    found = load(file, Solution).frontier
    assert found is not None
    (table,) = [at for at, line in enumerate(shown) if line.startswith("PLAN ")]
    assert shown[table + 1 + len(found.points)] == ""
    assert any(line.startswith("MiB  peak of the fullest device") for line in shown)
    assert any(line.startswith("@ this plan ") for line in shown)
    assert main(words(tmp_path, *options, "-o", "json")) == ExitCode.DONE
    printed = Solution.from_json(json.loads(capsys.readouterr().out), "Solution")
    assert printed.frontier is not None
    assert printed.frontier.points == found.points
    assert 3 <= len(found.points) <= 6


@pytest.mark.parametrize("columns", [120, 80, 40, 20])
def test_a_frontier_fits_any_terminal(
    columns: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without room there is no picture; the table keeps rates and peaks."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(words(tmp_path, "--frontier")) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    (begin,) = [at for at, line in enumerate(lines) if line.startswith("memory ag")]
    shown = lines[begin:]
    assert any(" +---" in line for line in shown) is (columns >= 40)
    assert any("93.46" in line for line in shown)
    if columns >= 40:
        assert all(len(line) <= columns and line == line.rstrip() for line in shown)


def test_a_frontier_of_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No plan at all, or one by force that does not fit: there is no curve."""
    asked = words(tmp_path, "--frontier")
    assert main([*asked, "--max-gpus", "2"]) == ExitCode.NO_PLAN
    assert "memory against speed" not in capsys.readouterr().out
    assert main([*asked, "--gpus", "1", "--max-gpus", "1"]) == ExitCode.NO_PLAN
    output = capsys.readouterr().out
    assert "no plan of 1 device fits for sure, at no speed" in output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--frontier-points", "5"), "--frontier-points: needs --frontier"),
        (("--frontier", "--frontier-points", "2"), "2 is not in the range 3<=x<=100"),
        (("--frontier", "--frontier-points", "x"), "'x' is not a valid integer"),
        (("--frontier", "--replay", "a:b"), "leave one of them away"),
    ],
)
def test_a_frontier_that_cannot_be_is_refused(
    options: tuple[str, ...],
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a line that names the option."""
    assert main(words(tmp_path, *options)) == ExitCode.USAGE
    assert text in capsys.readouterr().err


def test_machines_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a table or by devices, which are GPUs."""
    profile = a_profile_file(tmp_path, device_kind=DeviceKind.CUDA)
    table = an_offers_file(tmp_path)
    assert main(["plan", profile]) == ExitCode.BAD_INPUT
    assert "give --on, such as --on 8xH100-80GB, or --offers" in capsys.readouterr().err
    both = ["plan", profile, "--on", "8xH100", "--offers", table]
    assert main(both) == ExitCode.BAD_INPUT
    assert "--on and --offers both name the machines" in capsys.readouterr().err
    cost = ["--on", "8xH100", "--objective", "MinimizeCost", "--steps", "9"]
    assert main(["plan", profile, *cost]) == ExitCode.BAD_INPUT
    assert "needs prices, which --on has none of" in capsys.readouterr().err
    twice = ["plan", profile, "--on", "8xH100", "--on", "8xH100-80GB"]
    assert main(twice) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.startswith("plimsoll: --on: ")
    assert main(["plan", profile, "--on", "2xL4", "--on", "3xT4"]) == ExitCode.BAD_INPUT
    assert "the profile has no times for L4-24GB" in capsys.readouterr().err
    emulated = a_profile_file(tmp_path)
    assert main(["plan", emulated, "--on", "8xH100"]) == ExitCode.BAD_INPUT
    assert "--on names GPUs" in capsys.readouterr().err


def test_a_grid_is_tables_a_record_and_part_of_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unasked only with a page, which is one of a dry run."""
    page, file = tmp_path / "page.html", tmp_path / "solution.json"
    asked = words(tmp_path, "--report", str(page), "--solution", str(file))
    assert main(asked) == ExitCode.DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "other counts and micro-batches:" in captured.out
    assert captured.out.endswith(f"report: {page}\n")
    grid = load(file, Solution).grid
    assert grid is not None
    shown = page.read_text()
    assert "What if" in shown
    assert "a dry run, not launched" in shown
    assert "uid" not in shown
    assert main([*asked, "--no-grid"]) == ExitCode.DONE
    assert "other counts" not in capsys.readouterr().out
    assert load(file, Solution).grid is None
    assert "What if" not in page.read_text()
    assert main(words(tmp_path, "--grid", "-o", "json")) == ExitCode.DONE
    printed = Solution.from_json(json.loads(capsys.readouterr().out), "Solution")
    assert printed.grid is not None
    assert printed.grid.cells == grid.cells


def test_a_cell_is_what_planning_with_its_count_and_batch_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked for by --gpus and --micro-batch; the cell of the plan is the plan."""
    file = tmp_path / "solution.json"
    few = ("--max-gpus", "3")
    main(words(tmp_path, *few, "--grid", "--solution", str(file)))
    answer = load(file, Solution)
    assert answer.grid is not None
    for cell in answer.grid.cells:
        fixed = ["--gpus", str(cell.num_gpus), "--micro-batch", str(cell.micro_batch)]
        capsys.readouterr()
        code = main(words(tmp_path, *few, *fixed, "-o", "json"))
        printed = json.loads(capsys.readouterr().out)
        verdicts = certified(printed)
        assert verdicts[cell.num_gpus] is cell.verdict
        if cell.plan is None:
            continue
        assert code == ExitCode.DONE
        found = Solution.from_json(printed, "Solution").plan
        own = (answer.plan.num_gpus, answer.plan.micro_batch)
        is_own = (cell.num_gpus, cell.micro_batch) == own
        expected = answer.plan if is_own else found
        assert cell.plan == FrontierPoint.of(expected, 0)


def certified(printed: dict[str, Any]) -> dict[int, Verdict]:
    """Find the verdict on each count of an answer that was printed."""
    path = "certificate"
    certificate = Certificate.from_json(printed[path], path)
    return {count.num_gpus: count.verdict for count in certificate.counts}


def test_a_grid_of_nothing_that_fits_is_shown_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how far each cell is from fitting."""
    page = tmp_path / "page.html"
    asked = words(tmp_path, "--report", str(page), "--max-gpus", "2")
    assert main(asked) == ExitCode.NO_PLAN
    assert "fails >= " in capsys.readouterr().out
    assert "No plan fits" in page.read_text()
    assert "What if" in page.read_text()


def test_seconds_of_a_grid_need_a_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no time at all leaves the plan alone."""
    assert main(words(tmp_path, "--grid-seconds", "3")) == ExitCode.USAGE
    assert "--grid-seconds: needs --grid" in capsys.readouterr().err
    assert main(words(tmp_path, "--grid", "--grid-seconds", "0")) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "not searched: 0 µs were allowed; --grid-seconds allows more" in output
