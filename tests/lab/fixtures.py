"""The lab as pytest fixtures: `control_plane`, `nodes`, `namespace`, and images.

A plugin, loaded by tests/conftest.py. Each lab is started by the first test that asks
for it and shared by the whole session. Where something is missing the test is skipped,
and the reason is the command that adds it. A failing test that used a lab shows the end
of the lab's logs.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.lab import owner, project_images
from tests.lab.cluster import Cluster
from tests.lab.errors import LabError
from tests.lab.host_packages import has_torch, python_of
from tests.lab.nodes import require as require_nodes
from tests.lab.owner import Level
from tests.lab.prepare import may_prepare, prepare, require
from tools.images import DOCKERFILES

LABS = ("control_plane", "nodes")
TAIL_LINES = 15
TAIL_BYTES = 8192


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """Real control plane without nodes; needs no root."""
    yield from _lab("control-plane")


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """Cluster of two real nodes; needs root."""
    yield from _lab("nodes")


@pytest.fixture(scope="session")
def operator_image(nodes: Cluster) -> str:
    """Name of the operator's image, which all nodes have."""
    return _on_nodes("operator", nodes)


@pytest.fixture(scope="session")
def runtime_image(nodes: Cluster) -> str:
    """Name of the image with trainer and profiler, which all nodes have."""
    return _on_nodes("runtime", nodes)


@pytest.fixture(scope="session")
def release_nodes(nodes: Cluster) -> Cluster:
    """Nodes, which have all that the chart and the examples name."""
    if not has_torch():
        pytest.skip("torch is missing: run `make test`")
    here, there = sysconfig.get_python_version(), python_of(require_nodes())
    if here != there:
        pytest.skip(
            f"nodes have Python {there}, and the packages here are for {here}: run "
            f"`make test PYTHON=python{there}`"
        )
    nodes.load_images(*map(archive_of, DOCKERFILES))
    return nodes


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """Fresh namespace of the lab that the test uses."""
    lab = next(name for name in LABS if name in request.fixturenames)
    cluster: Cluster = request.getfixturevalue(lab)
    with cluster.fresh_namespace() as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each log of the labs that a failed test used."""
    report = yield
    if report.failed:
        funcargs: dict[str, object] = getattr(item, "funcargs", {})
        for cluster in (funcargs.get(lab) for lab in LABS):
            if isinstance(cluster, Cluster):
                report.sections += [
                    (f"end of the lab's {path.name}", tail(path))
                    for path in sorted(cluster.logs.glob("*.log"))
                ]
    return report


def tail(path: Path) -> str:
    """Last lines of a log, cut to the width of a wide terminal."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = stream.read().decode(errors="replace").splitlines()
    return "\n".join(line[:200] for line in lines[-TAIL_LINES:])


def archive_of(image: str) -> Path:
    """Image of the project, built now where tests may build, else skip."""
    if may_prepare():
        project_images.make_archive(image)
    if not (archive := project_images.find_archive(image)):
        pytest.skip(f"the image of the {image} is not built: run `sudo make test`")
    return archive


def _on_nodes(image: str, nodes: Cluster) -> str:
    """Give the nodes an image of the project and return its name."""
    nodes.load_images(archive_of(image))
    return project_images.image_name(image)


def _lab(level: Level) -> Iterator[Cluster]:
    if level == "nodes" and os.geteuid():
        pytest.skip("real nodes need root: run `sudo make test`")
    if may_prepare():  # then what is missing is a failure, and no reason to skip
        prepare(lambda _: None, level=level)
    try:
        require(level)
    except LabError as error:
        pytest.skip(str(error))
    lab = owner.start(level)
    yield lab.cluster
    lab.close()
