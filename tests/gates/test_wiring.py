"""How the parts of each gate are wired: interpreter, order, effort, what may fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import bootstrap, gates
from tools.part_queue import Part

ROOT = Path(__file__).parents[2]


def wiring(gate: str) -> Mapping[str, Part]:
    """Parts of a gate by their names, which are all different."""
    parts = {part.name: part for part in gates.GATES[gate]}
    assert len(parts) == len(gates.GATES[gate])
    return parts


UNITS = {part.name for part in gates.UNITS}
ON_THE_CHECKOUT = {"wheel", "every Python", "lab tests", "long tests"} | {
    "tests of the tree",
    *("quick: trainer", "quick: operator"),
}


@pytest.mark.parametrize("gate", gates.GATES)
def test_each_part_runs_on_its_python(gate: str) -> None:
    """Unit tests on the installed wheel, which they wait for; all else on this one."""
    for name, part in wiring(gate).items():
        if name in UNITS:
            assert part.command[:3] == ("build/wheel/bin/python", "-m", "pytest")
            assert part.after == ("installed wheel",)
            assert part.after[0] in wiring(gate)
        elif name in ON_THE_CHECKOUT:
            assert part.command[:3] == (sys.executable, "-m", "pytest")
        else:
            assert "pytest" not in part.command
    assert wiring(gate).keys() >= UNITS or gate not in {"test", "all"}


def test_each_part_waits_for_what_it_needs() -> None:
    """Tests of the lab for its preparation, coverage for all that is covered."""
    needs = {
        "lab tests": ("lab",),
        "long tests": ("lab",),
        "coverage": tuple(part.name for part in gates.UNITS),
        **dict.fromkeys(UNITS, ("installed wheel",)),
    }
    for gate in gates.GATES:
        for name, part in wiring(gate).items():
            assert part.after == needs.get(name, ()), (gate, name)
            assert set(part.after) <= wiring(gate).keys(), (gate, name)


def test_each_gate_says_how_hard_its_tests_search() -> None:
    """Whatever the caller's environment has."""
    searching = {*UNITS, "lab tests"}
    for gate in gates.GATES:
        for name, part in wiring(gate).items():
            quick = "quick" if gate == "check" else "ci"
            usual = "nightly" if gate == "all" and name in searching else quick
            is_asked = name in UNITS | ON_THE_CHECKOUT | {"oldest torch"}
            expected = usual if is_asked else None
            assert part.environment.get("PLIMSOLL_DRAWS") == expected, (gate, name)


@pytest.mark.parametrize("value", ["", "true"])
def test_the_lab_alone_may_be_missing_and_not_in_ci(value: str) -> None:
    """Everything else must pass wherever it runs."""
    ask = (
        "from tools.gates import GATES; "
        "print({p.name for ps in GATES.values() for p in ps if p.may_fail})"
    )
    done = subprocess.run(
        (sys.executable, "-c", ask),
        cwd=ROOT,
        env=os.environ | {"CI": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ("set()" if value else "{'lab'}")


def test_the_whole_runs_on_the_oldest_torch() -> None:
    """By make's own target, in an environment of its own."""
    command = wiring("all")["oldest torch"].command
    assert command[:3] == ("make", "--no-print-directory", "test-torch")
    assert f"TORCH={bootstrap.oldest('torch')}" in command
