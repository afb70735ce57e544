"""Fixtures of tests on a lab's API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.trainingplans import served


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that knows the kind as the chart brings it."""
    yield from served(control_plane)
