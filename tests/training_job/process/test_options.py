"""A wrong command line ends at once, and says which option and why."""

from __future__ import annotations

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.process.options import Options, parse, parser

NEEDED = ("--plan", "plan.json", "--entrypoint", "m:f", "--steps", "3")


def test_what_is_left_out_is_as_the_record_says() -> None:
    """The command line and `Options` have the same defaults."""
    found = parse(NEEDED)
    assert found == Options(plan=found.plan, entrypoint="m:f", steps=3)


def test_the_help_names_every_exit_code() -> None:
    """From the enumeration, so that none is forgotten."""
    text = " ".join(parser().format_help().split())
    for code in ExitCode:
        assert f" {code.value} {code.name.lower().replace('_', ' ')}" in text


def test_memory_has_a_unit() -> None:
    """As people write it."""
    assert parse([*NEEDED, "--device-memory", "1.5KiB"]).device_memory == 1536


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "--steps: 0: at least 1 is allowed"),
        (["--checkpoint-every", "-1"], "--checkpoint-every: -1: at least 0"),
        (["--device-memory", "4GB"], "--device-memory: 4GB: an amount such as 4GiB"),
        (["--timeout-s", "nan"], "--timeout-s: nan: above 0 and up to 1e9 is allowed"),
    ],
)
def test_a_wrong_value_is_a_usage_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or allocated; one line below the usage."""
    with pytest.raises(SystemExit) as end:
        parse([*NEEDED, *words])
    assert end.value.code == 2
    assert f"error: argument {message}" in capsys.readouterr().err.splitlines()[-1]
