"""`plimsoll offers` as people and scripts use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_planner.records.offer import Offer

pytestmark = pytest.mark.usefixtures("wide_terminal")
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "offers.csv")


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts nothing."""
    monkeypatch.setenv("COLUMNS", "160")


def test_a_table_lists_the_cheapest_device_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line for each offer under a header, cheapest first."""
    assert main(["offers", EXAMPLE]) == ExitCode.DONE
    header, first, *others, caption = capsys.readouterr().out.splitlines()
    assert caption.strip() == "prices in USD"
    assert header.split()[:2] == ["OFFER", "DEVICE"]
    assert first.split()[0] == "l4-1"
    assert "22.5 GiB" in first
    assert first.split()[-2:] == ["0.28", "0.28"]
    assert len(others) == 9
    assert others[-1].split()[0] == "h100-8"


def test_eighty_columns_hold_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the smallest usual terminal nothing is cut or wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["offers", EXAMPLE]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)


def test_two_currencies_stand_in_the_cells(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Amounts in different currencies are never shown bare."""
    table = Path(EXAMPLE).read_text().replace("23034,USD", "23034,EUR")
    (tmp_path / "two.csv").write_text(table)
    assert main(["offers", str(tmp_path / "two.csv")]) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "0.28 EUR" in output
    assert "48.00 USD" in output


def test_json_is_the_offers_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines read what the planner reads."""
    assert main(["offers", EXAMPLE, "-o", "json"]) == ExitCode.DONE
    values = json.loads(capsys.readouterr().out)
    offers = [Offer.from_json(value, "offer") for value in values]
    assert offers[0].name == "l4-1"


def test_without_a_table_this_machine_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person with a laptop sees what they have."""
    assert main(["offers"]) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "emulated process" in output
    assert "REGION" not in output
    assert "NODE/H" not in output


def test_filters_narrow_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    """By part of the product's name and by least memory."""
    options = ["--product", "a100", "--min-memory", "80GiB"]
    assert main(["offers", EXAMPLE, *options]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()[1:-1]
    assert {line.split()[0] for line in lines} == {"a100-80-8"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["offers", "no.csv"], ExitCode.BAD_INPUT, "no.csv: No such file or directory"),
        (["offers", "/"], ExitCode.BAD_INPUT, "/: Is a directory"),
        (["offers", "a\nb"], ExitCode.BAD_INPUT, "a\\nb: No such file"),
        (
            ["offers", "/dev/zero"],
            ExitCode.BAD_INPUT,
            "/dev/zero: larger than 64 MiB",
        ),
        (["offers", "/bin/true"], ExitCode.BAD_INPUT, "/bin/true: not text in UTF-8"),
        (["offers", "/dev/null"], ExitCode.BAD_INPUT, "InstanceType is missing"),
        (["offers", EXAMPLE, "--product", "z"], ExitCode.FAILED, "none of 10 offers"),
        (
            ["offers", "--min-memory", "40"],
            ExitCode.USAGE,
            "got '40', allowed is a number and its unit, as in 40GiB",
        ),
        (["offers", "--min-memory", "0MiB"], ExitCode.USAGE, "allowed is 1 byte or"),
        (["offers", "--min-memory", "1 gb"], ExitCode.USAGE, "got '1 gb'"),
        (["offers", "--min-memory", "9" * 400 + "TiB"], ExitCode.USAGE, "got '999"),
        (["ofers"], ExitCode.USAGE, "Did you mean 'offers'?"),
        (["offers", "-o", "yaml"], ExitCode.USAGE, "'yaml' is not one of"),
        (["--nonsense"], ExitCode.USAGE, "No such option"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    arguments: list[str],
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Name and value, and no traceback."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("plimsoll: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """With --debug, wherever it stands, the traceback comes before the line."""
    for words in (["--debug", "offers", "no.csv"], ["offers", "no.csv", "--debug"]):
        assert main(words) == ExitCode.BAD_INPUT
    captured = capsys.readouterr().err
    assert "Traceback" in captured
    assert captured.splitlines()[-1].startswith("plimsoll: no.csv")


@pytest.mark.parametrize("arguments", [["--help"], ["offers", "--help"], []])
def test_help_is_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help goes to the reader, also when nothing was asked; it is no error."""
    assert main(arguments) == ExitCode.DONE
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: plimsoll")
    assert captured.err == ""


def test_nothing_in_a_table_is_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names from somebody's file are shown as they stand."""
    table = Path(EXAMPLE).read_text().replace("l4-1,", "[red]a[/b]:smile:,")
    (tmp_path / "odd.csv").write_text(table)
    assert main(["offers", str(tmp_path / "odd.csv")]) == ExitCode.DONE
    assert "[red]a[/b]:smile:" in capsys.readouterr().out


def test_a_narrow_terminal_loses_columns_not_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Region and terms go first; prices stay whole."""
    monkeypatch.setenv("COLUMNS", "55")
    assert main(["offers", EXAMPLE]) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "REGION" not in output
    assert output.splitlines()[-2].split()[-2:] == ["48.00", "6.00"]


def test_equal_prices_are_sorted_by_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two devices at one price the larger one comes first."""
    header = "InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,Price"
    (tmp_path / "t.csv").write_text(f"{header}\na,small,1,1024,1\nb,large,1,2048,1\n")
    assert main(["offers", str(tmp_path / "t.csv")]) == ExitCode.DONE
    assert "large" in capsys.readouterr().out.splitlines()[1]


def test_a_broken_driver_is_a_warning(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest is listed, and the reader learns what is missing."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho mismatch; exit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert main(["offers"]) == ExitCode.DONE
    captured = capsys.readouterr()
    assert "emulated process" in captured.out
    assert captured.err.startswith(
        "plimsoll: no CUDA devices listed: nvidia-smi failed"
    )


@pytest.mark.parametrize(
    ("redirect", "environment", "message"),
    [
        (">&-", {}, "the output is closed"),
        (">/dev/full", {"PYTHONUNBUFFERED": ""}, "output: [Errno 28] No space left"),
        (">/dev/full", {"PYTHONUNBUFFERED": "1"}, "output: [Errno 28] No space left"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(
    redirect: str, environment: dict[str, str], message: str
) -> None:
    """A full disk, or nothing behind stdout, is no traceback."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m plimsoll_cli offers {EXAMPLE} {redirect}"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_terminal_without_the_letters_gets_others(tmp_path: Path) -> None:
    """Names from somebody's file may need letters that the terminal lacks."""
    table = Path(EXAMPLE).read_text().replace("l4-1,", "\N{GREEK SMALL LETTER MU}-1,")
    (tmp_path / "greek.csv").write_text(table)
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll_cli", "offers", str(tmp_path / "greek.csv")],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
    assert "?-1" in done.stdout


def test_the_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts find every code where they look first."""
    main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for code in ExitCode:
        assert str(code.value) in text


def test_a_reader_that_leaves_is_no_error() -> None:
    """`plimsoll offers | head` ends quietly."""
    command = f"{sys.executable} -m plimsoll_cli offers {EXAMPLE} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_starts_without_torch_and_fast_libraries_only() -> None:
    """Neither torch nor kopf nor the database is imported for a table."""
    code = (
        "import sys, plimsoll_cli.__main__; "
        "print([m for m in ('torch', 'kopf', 'sqlalchemy', 'kubernetes', 'numpy') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
