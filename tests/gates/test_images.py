"""Building the images: which builder, with which arguments, and from which files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import images
from tools.images import BUILDAH, DOCKER, ImageError

ROOT = Path(__file__).parents[2]
each_image = pytest.mark.parametrize("image", images.DOCKERFILES)


def a_program(folder: Path, name: str, script: str) -> None:
    """Write a shell script that stands for a program of the machine."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_docker_builds_where_its_daemon_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else buildah does; without either the line says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apt-get install"):
        images.find_builder()
    a_program(tmp_path, "buildah", "")
    a_program(tmp_path, "docker", 'test "$1" != info')
    assert images.find_builder() == BUILDAH
    a_program(tmp_path, "docker", 'test "$1" = info')
    assert images.find_builder() == DOCKER


def test_images_are_named_by_prefix_and_version() -> None:
    """The version is that of the package; both can be read in the command."""
    command = images.command("runtime", DOCKER, {"PREFIX": "example/"})
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import plimsoll_planner.version as v; print(v.__version__)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    version = done.stdout.strip()
    assert command[:2] == ["docker", "build"]
    assert f"--tag=example/runtime:{version}" in command
    assert f"--build-arg=VERSION={version}" in command
    assert "--file=training_job/Dockerfile" in command
    unnamed = images.command("runtime", DOCKER, {})
    assert f"--tag=registry.example/plimsoll/runtime:{version}" in unnamed


def test_the_chart_names_what_no_stranger_can_publish() -> None:
    """As images are called unless set otherwise: on nodes of the lab, in examples."""
    chart = yaml.safe_load((ROOT / "charts/plimsoll/values.yaml").read_text())
    named = {
        "operator": chart["image"]["repository"],
        "runtime": chart["runtimeImage"]["repository"],
    }
    assert named == {name: f"{images.PREFIX}{name}" for name in images.USUAL}
    assert images.PREFIX.startswith("registry.example/")


def test_what_the_machine_says_of_packages_is_passed_on() -> None:
    """The base and the index as they are; authorities as a secret, at its own path."""
    variables = {
        "BASE_IMAGE": "localhost/base:1",
        "PIP_INDEX_URL": "https://index.example/simple",
        "SSL_CERT_FILE": "/etc/own.crt",
        "HOME": "/root",
    }
    words = images.command("operator", BUILDAH, variables)
    assert [word for word in words if word.startswith(("--build-arg", "--secret"))] == [
        f"--build-arg=VERSION={images.version()}",
        "--build-arg=BASE_IMAGE=localhost/base:1",
        "--build-arg=PIP_INDEX_URL=https://index.example/simple",
        "--build-arg=PIP_CERT=/run/secrets/ca",
        "--build-arg=SSL_CERT_FILE=/run/secrets/ca",
        "--secret=id=ca,src=/etc/own.crt",
    ]


@each_image
def test_a_dockerfile_declares_all_that_it_is_passed(image: str) -> None:
    """An argument without a declaration would be dropped in silence."""
    text = (ROOT / images.DOCKERFILES[image]).read_text()
    lines = [line.split()[1:] for line in text.splitlines() if line[:4] == "ARG "]
    declared = {word.partition("=")[0] for words in lines for word in words}
    wanted = {"BASE_IMAGE", "VERSION"}
    if "pip install" in text:
        wanted |= {*images.CERTIFICATES, *images.PASSED_ON}
    assert declared == wanted


@each_image
def test_the_sources_of_an_image_are_what_it_copies(image: str) -> None:
    """And its recipe; all of them are there."""
    found = {path.relative_to(ROOT).as_posix() for path in images.sources(image)}
    package = {
        "operator": {"operator/plimsoll_operator", "constraints.txt", "pyproject.toml"},
        "runtime": {"training_job/plimsoll_trainer", "profiler_job/plimsoll_profiler"},
        "examples": {"examples/tiny_gpt.py", "constraints.txt"},
    }
    assert package[image] | {".dockerignore"} <= found
    assert images.DOCKERFILES[image].as_posix() in found
    assert all((ROOT / name).exists() for name in found)


def test_an_unknown_image_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names those that there are; nothing is built."""
    monkeypatch.setattr(sys, "argv", ["images", "oprator"])
    assert images.main() == 2
    printed = capsys.readouterr().err
    assert (
        printed == "images: no image 'oprator'; there are operator, runtime, examples\n"
    )


def test_a_failed_build_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images built before it are named, those after it are not begun."""
    script = 'case "$*" in *operator*) echo "$*" ;; *) exit 1 ;; esac'
    a_program(tmp_path, "buildah", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["images", "operator", "runtime", "examples"])
    assert images.main() == 1
    printed = capsys.readouterr()
    built = f"{images.PREFIX}operator:{images.version()}"
    assert printed.out == f"built {built}\n"
    assert printed.err == "images: runtime was not built, see above\n"
