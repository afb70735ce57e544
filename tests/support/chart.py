"""The chart, rendered by the lab's helm, as objects to ask questions of.

In: values, on top of the chart's own. Out: objects as plain data, or helm's message.
Called by tests/charts.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import build

CHART = Path(__file__).parents[2] / "charts" / "plimsoll"
NAMESPACE = "plimsoll-system"
NAME = "plimsoll"
"""Of the release, and so of most objects."""
MONITORING = "monitoring.coreos.com/v1"
Values = dict[str, Any]
Object = dict[str, Any]


def helm(*arguments: str, values: Values | None = None) -> tuple[int, str]:
    """Run helm without a cluster; return its exit status and all that it wrote."""
    folder = build.find_binaries()
    if not folder:
        pytest.skip("the lab's helm is not built: run `python -m tests.lab prepare`")
    done = subprocess.run(
        [folder / "helm", *arguments, "--values", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr if done.returncode else done.stdout


def rendered(
    values: Values | None = None, *, apis: Sequence[str] = (), release: str = NAME
) -> list[Object]:
    """All objects of a release.

    Raises:
        AssertionError: helm refused; carries its message.
    """
    known = [f"--api-versions={api}" for api in apis]
    place = ("template", release, str(CHART), "--namespace", NAMESPACE)
    status, written = helm(*place, *known, values=values)
    assert status == 0, written
    return [each for each in yaml.safe_load_all(written) if each]


def refusal(values: Values) -> str:
    """Message of helm, which does not render these values.

    Raises:
        AssertionError: it does.
    """
    status, output = helm("template", NAME, str(CHART), values=values)
    assert status, f"rendered: {values}"
    return output


def of_kind(objects: Sequence[Object], kind: str) -> dict[str, Object]:
    """Objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def one(objects: Sequence[Object], kind: str, name: str = NAME) -> Object:
    """Object that is there."""
    return of_kind(objects, kind)[name]
