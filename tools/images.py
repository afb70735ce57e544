"""Builds the project's container images. Called by `make images` and by the lab.

In: names of images, and from the environment BASE_IMAGE (what they stand on), PREFIX
(of their names) and what pip and uv read there. Out: PREFIX + name + version in the
store of the builder. Runs on the standard library alone.

Docker builds where its daemon answers, else buildah, which needs none.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILES = {
    "operator": Path("operator/Dockerfile"),
    "runtime": Path("training_job/Dockerfile"),
    "examples": Path("examples/Dockerfile"),
}
USUAL = ("operator", "runtime")
"""Images for a cluster; the examples stand on an image with torch, of many GB."""
PREFIX = "registry.example/plimsoll/"
"""Of the names that chart and examples have: no registry is ever called so (RFC 2606),
and what is not on a node already cannot come from a stranger."""
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE")
"""Either names the authorities that an index is trusted by."""
PASSED_ON = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INSECURE_HOST"),
)
"""Sources of packages; stages that are thrown away see them, no image keeps them."""
AUTHORITIES = "/run/secrets/ca"
DOCKER = ("docker", "build")
BUILDAH = ("buildah", "bud", "--isolation=chroot", "--layers")
"""Isolation by chroot also works inside a container."""


class ImageError(Exception):
    """An image cannot be built; the text is one line for the terminal."""


def version() -> str:
    """Version that images are tagged with."""
    found = runpy.run_path(str(ROOT / "planner/plimsoll_planner/version.py"))
    return str(found["__version__"])


def name_of(image: str, prefix: str) -> str:
    """Whole name of an image."""
    return f"{prefix}{image}:{version()}"


def sources(image: str) -> list[Path]:
    """Files and folders of the tree that an image is made from."""
    dockerfile = ROOT / DOCKERFILES[image]
    found = [dockerfile, ROOT / ".dockerignore"]
    for words in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile.read_text(), re.M):
        for word in words.split():
            found += sorted(ROOT.glob(word))
    return found


def find_builder() -> tuple[str, ...]:
    """Words that begin a build here.

    Raises:
        ImageError: there is neither a Docker daemon nor buildah.
    """
    if shutil.which("docker"):
        # `docker version` and others also succeed without a daemon.
        asked = subprocess.run(["docker", "info"], capture_output=True, check=False)  # noqa: S607 - the user's own
        if asked.returncode == 0:
            return DOCKER
    if shutil.which("buildah"):
        return BUILDAH
    raise ImageError(
        "no Docker daemon answers and buildah is missing: start the one "
        "or `apt-get install` the other"
    )


def command(
    image: str, builder: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """Command that builds an image; to be run in `ROOT`."""
    arguments = {"VERSION": version()}
    for name in ("BASE_IMAGE", *PASSED_ON):
        if environment.get(name):
            arguments[name] = environment[name]
    authorities = next(filter(None, map(environment.get, CERTIFICATES)), None)
    if authorities:
        arguments |= dict.fromkeys(CERTIFICATES, AUTHORITIES)
    return [
        *builder,
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *([f"--secret=id=ca,src={authorities}"] if authorities else []),
        f"--tag={name_of(image, environment.get('PREFIX', PREFIX))}",
        f"--file={DOCKERFILES[image]}",
        ".",
    ]


def main() -> int:
    """Build what is asked for; 0 when all of it was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", nargs="*", metavar="IMAGE", default=USUAL)
    asked = parser.parse_args().images
    if unknown := set(asked) - set(DOCKERFILES):
        known = ", ".join(DOCKERFILES)
        print(f"images: no image {unknown.pop()!r}; there are {known}", file=sys.stderr)
        return 2
    try:
        builder = find_builder()
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for image in asked:
        words = command(image, builder, os.environ)
        if subprocess.run(words, cwd=ROOT, check=False).returncode:  # noqa: S603 - ours
            print(f"images: {image} was not built, see above", file=sys.stderr)
            return 1
        print(f"built {name_of(image, os.environ.get('PREFIX', PREFIX))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
