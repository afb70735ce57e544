"""The project's own images, built by the Dockerfiles that users build by.

In: the name of an image. Out: a docker-archive of it in the cache, named by a digest of
all it is made from. Called by `prepare` and by the fixtures `operator_image` and
`runtime_image`. They have the names that manifests and the chart's values call them by,
and stand on the lab's own bases, for no registry can be asked.

Measured on 2 cores: operator (450 MB) 65 s at first and 8 s after an edit of its code,
runtime (166 MB) 30 s and 5 s; a node takes them in within 9 s and 3 s. Of what the
operator adds to its base, the client of Kubernetes is 126 MB, and numpy 73 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab import cache, images
from tests.lab.cache import Cached
from tests.lab.errors import LabError
from tools.images import BUILDAH, PREFIX, ROOT, command, name_of, sources

BASES = {"examples": images.TORCH}
"""Base of an image, if it is not the usual one."""
ARCHIVE = "image.tar"
NUM_KEPT = 4
"""Archives of an image that stay; other checkouts may be using the latest ones."""


def image_name(image: str) -> str:
    """Name under which nodes know an image."""
    return name_of(image, PREFIX)


def find_archive(image: str) -> Path | None:
    """Archive of an image if it is in the cache."""
    folder = cache.find(_key(image))
    return folder / ARCHIVE if folder else None


def make_archive(image: str) -> Cached:
    """Folder of an image's archive, built now if need be; needs root.

    Raises:
        LabError: buildah is missing, or failed.
    """
    made = cache.make_once(_key(image), lambda folder: _make(image, folder))
    if made.made_in_s is not None:
        _forget_old(image)
    return made


def _key(image: str) -> str:
    return f"project-{image}-{cache.digest(_parts(image))}"


def _parts(image: str) -> Iterator[bytes]:
    """Yield all that an image depends on."""
    yield images.key().encode()
    yield " ".join(command(image, BUILDAH, _names(image))).encode()
    for source in sources(image):
        files = [source] if source.is_file() else sorted(source.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(ROOT)).encode()
                yield file.read_bytes()


def _names(image: str) -> dict[str, str]:
    """Variables of an image: its base, and the prefix of its name."""
    return {"BASE_IMAGE": BASES.get(image, images.BASE), "PREFIX": PREFIX}


def _make(image: str, folder: Path) -> None:
    if not shutil.which("buildah"):
        raise LabError("buildah is missing: run `sudo make test`, which installs it")
    base = images.make_images().folder / images.ARCHIVE
    # A store of its own: what the user has built by hand is not touched.
    store = cache.root() / "buildah"
    where = ("--root", f"{store}/root", "--runroot", f"{store}/run")
    program = ("buildah", *where, "--storage-driver", "overlay")
    names = _names(image)
    _run([*program, "pull", "--quiet", f"docker-archive:{base}:{names['BASE_IMAGE']}"])
    _run(command(image, (*program, *BUILDAH[1:]), {**os.environ, **names}))
    name = image_name(image)
    target = f"docker-archive:{folder / ARCHIVE}:{name}"
    _run([*program, "push", "--quiet", "--disable-compression", name, target])


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stderr.strip() or done.stdout).splitlines()[-5:])
        raise LabError(f"`{' '.join(words[:1])} ... {words[-1]}` failed:\n{last}")


def _forget_old(image: str) -> None:
    """Remove archives that were made before the latest ones: one is made per edit."""
    made = [p for p in cache.root().glob(f"project-{image}-*") if p.is_dir()]
    for folder in sorted(made, key=lambda path: path.stat().st_mtime)[:-NUM_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
