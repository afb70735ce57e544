"""The container images of the nodes, made from Debian packages without a registry.

Out: one archive in the cache that holds four images, for `ctr images import`:

    localhost/pause:1     what keeps a pod's namespaces alive
    localhost/busybox:1   a shell and a few tools, 2 MB
    localhost/base:1      this machine's own Debian release with its Python, 165 MB
    localhost/torch:1     the same, and its Python finds torch

Called by `prepare`, `up` and the fixtures. torch itself is in none of them: importing
an image of 1.6 GB costs each node half a minute, and every container is given the
host's own copy for nothing (host_packages.py).

Measured on 2 cores: 22 s.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.lab import archives, cache
from tests.lab.archives import Image
from tests.lab.cache import Cached
from tests.lab.errors import LabError
from tests.lab.host_packages import PACKAGES

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
BASE = "localhost/base:1"
TORCH = "localhost/torch:1"
ARCHIVE = "images.tar"

BASE_PACKAGES = ("ca-certificates", "libpython3-stdlib", "python3-minimal")
BUSYBOX_TOOLS = ("cat", "echo", "hostname", "nslookup", "sh", "sleep", "tail", "wget")


def find_images() -> Path | None:
    """Archive of all images if it is in the cache."""
    folder = cache.find(key())
    return folder / ARCHIVE if folder else None


def make_images() -> Cached:
    """Folder of the archive, made now if need be; needs root to be made.

    Raises:
        LabError: a read-only cache folder, or mmdebstrap failed.
    """
    return cache.make_once(key(), _make)


def key() -> str:
    """Name of the archive in the cache, by all it is made from."""
    recipe = [Path(each).read_bytes() for each in (__file__, archives.__file__)]
    parts = [*recipe, _release().encode(), PACKAGES.encode()]
    return f"images-{cache.digest(parts)}"


def _release() -> str:
    """Code name of this machine's release, such as bookworm.

    The base image is of the same one, so that the host's Python finds its C library.
    """
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        busybox = _busybox_root(Path(scratch) / "busybox")
        base = _base_root(Path(scratch) / "base.tar")
        images = (
            # Nothing to reap: containers of a pod have their own process namespaces.
            Image(
                name=PAUSE, layers=(busybox,), command=("/bin/tail", "-f", "/dev/null")
            ),
            Image(name=BUSYBOX, layers=(busybox,)),
            Image(name=BASE, layers=(base,)),
            Image(name=TORCH, layers=(base, _torch_root(Path(scratch) / "torch"))),
        )
        archives.write_archive(folder / ARCHIVE, images)


def _busybox_root(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir(mode=0o1777)
    program = shutil.which("busybox")
    if not program:
        raise LabError("busybox is missing: run `sudo make test`, which installs it")
    shutil.copy(program, root / "bin/busybox")
    for tool in BUSYBOX_TOOLS:
        (root / "bin" / tool).symlink_to("busybox")
    return root


def _torch_root(root: Path) -> Path:
    # Debian's Python of any version reads this folder; no virtual environment does.
    folder = root / "usr/lib/python3/dist-packages"
    folder.mkdir(parents=True)
    (folder / "host.pth").write_text(f"{PACKAGES}\n")
    return root


def _base_root(archive: Path) -> Path:
    done = subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase"),
            "--dpkgopt=force-unsafe-io",  # it is thrown away if the machine fails
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            f"--include={','.join(BASE_PACKAGES)}",
            *(_release(), str(archive), *map(str, _apt_sources(_release()))),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LabError(
            f"mmdebstrap failed: {last} (does `apt-get update` work on this machine?)"
        )
    return archive


def _apt_sources(release: str) -> list[Path]:
    """Files in which this machine's apt has sources for `release`."""
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    found = [path for path in files if path.is_file() and release in _suites(path)]
    if not found:
        raise LabError(
            f"no source for {release} in {apt}: let `apt-get update` work first"
        )
    return found


def _suites(path: Path) -> set[str]:
    """Suites that a file of apt sources names, in either of its forms."""
    lines = [line.split() for line in path.read_text().splitlines()]
    if path.suffix == ".sources":
        return {word for line in lines if line[:1] == ["Suites:"] for word in line[1:]}
    return {word for line in lines if line[:1] == ["deb"] for word in line[1:]}
