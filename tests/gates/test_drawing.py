"""How many instances tests draw under each profile, and how long they may take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.sample_suites import run_sample

SAMPLE = """\
import pytest
from hypothesis import given, settings, strategies

from tests.support.drawing import draws

drawn = []

@pytest.fixture(autouse=True)
def limit(request):
    limit = request.node.get_closest_marker("timeout")
    print(f"{request.node.name}: {limit.args[0] if limit else 'usual'}")

@settings(max_examples=draws(10))
@given(number=strategies.integers())
def test_drawn(number):
    drawn.append(number)

@pytest.mark.timeout(60)
@given(number=strategies.integers())
def test_with_a_limit(number):
    pass

@pytest.mark.timeout(60)
def test_of_one_instance():
    print(f"drawn: {len(drawn)}")
    print(f"derandomize: {settings.default.derandomize}")
"""


def sampled(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the sample with variables of the environment."""
    sample = folder / "test_sample.py"
    return run_sample(sample, SAMPLE, "tests.support.drawing", **environment)


@pytest.mark.parametrize(
    ("profile", "in_ci", "num_drawn", "usual", "limit_s", "same"),
    [
        ("", "", 5, "usual", "60", False),
        ("quick", "true", 3, "usual", "60", True),
        ("ci", "true", 5, "usual", "60", True),
        ("nightly", "true", 200, "6000.0", "1200.0", False),
    ],
)
def test_a_profile_says_how_much_is_drawn_and_how_long_it_may_take(
    profile: str,
    in_ci: str,
    num_drawn: int,
    usual: str,
    limit_s: str,
    same: bool,
    tmp_path: Path,
) -> None:
    """A quarter in the inner loop, half for each change, 20 times at night.

    The limit grows with it. In CI the same instances are drawn each time, but at night
    others, though hypothesis itself would draw the same ones wherever CI is set.
    """
    done = sampled(tmp_path, PLIMSOLL_DRAWS=profile, CI=in_ci)
    assert done.returncode == 0, done.stdout
    assert f"drawn: {num_drawn}\n" in done.stdout
    assert f"test_drawn: {usual}\n" in done.stdout
    assert f"test_with_a_limit: {limit_s}\n" in done.stdout
    assert "test_of_one_instance: 60\n" in done.stdout
    assert f"derandomize: {same}\n" in done.stdout


def test_an_unknown_profile_is_one_line(tmp_path: Path) -> None:
    """Not a traceback."""
    done = sampled(tmp_path, PLIMSOLL_DRAWS="many")
    line = "PLIMSOLL_DRAWS='many': choose one of quick, ci, nightly, or unset it"
    assert done.returncode == 4
    assert done.stderr.strip() == f"ERROR: {line}"
