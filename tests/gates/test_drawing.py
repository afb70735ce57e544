"""How many instances tests draw under each profile, and how long they may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
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
"""


@pytest.mark.parametrize(
    ("profile", "num_drawn", "usual", "limit_s"),
    [
        ("quick", 3, "usual", "60"),
        ("ci", 10, "usual", "60"),
        ("nightly", 200, "6000.0", "1200.0"),
    ],
)
def test_a_profile_says_how_much_is_drawn_and_how_long_it_may_take(
    profile: str, num_drawn: int, usual: str, limit_s: str, tmp_path: Path
) -> None:
    """A quarter in the inner loop, 20 times at night; the limit grows with it."""
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE)
    plugins = ("-p", "tests.support.drawing", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", *plugins, "-c", PROJECT, sample],
        cwd=tmp_path,
        env=os.environ | {"PLIMSOLL_DRAWS": profile, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"drawn: {num_drawn}\n" in done.stdout
    assert f"test_drawn: {usual}\n" in done.stdout
    assert f"test_with_a_limit: {limit_s}\n" in done.stdout
    assert "test_of_one_instance: 60\n" in done.stdout
