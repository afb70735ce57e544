"""The container images of the nodes, made from Debian packages without a registry.

Out: one archive in the cache that holds three images, for `ctr images import`:

    localhost/pause:1     what keeps a pod's namespaces alive
    localhost/busybox:1   a shell and a few tools, 2 MB
    localhost/base:1      this machine's own Debian release with its Python, 210 MB

Called by `prepare`, `up` and the fixtures; `write_archive` also serves tests that need
an image of their own. torch is in none of them: importing an image of 1.6 GB costs each
node half a minute, mounting the host's copy costs nothing (host_python.py).

Measured on 2 cores: 21 s.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cache
from tests.lab.cache import Cached
from tests.lab.errors import LabError

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
BASE = "localhost/base:1"
ARCHIVE = "images.tar"

BASE_PACKAGES = ("ca-certificates", "libpython3-stdlib", "python3-minimal")
BUSYBOX_TOOLS = "cat echo hostname id ls nc nslookup sh sleep true wget".split()
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """What one image consists of."""

    name: str
    layers: tuple[Path, ...]
    """Each the folder that becomes /, or a tar of one."""
    command: tuple[str, ...] = ()


def find_images() -> Path | None:
    """Return the archive of all images if it is in the cache."""
    folder = cache.find(_key())
    return folder / ARCHIVE if folder else None


def make_images() -> Cached:
    """Return the folder of the archive, made now if need be; needs root to be made.

    Raises:
        LabError: a read-only cache folder, or mmdebstrap failed.
    """
    return cache.make_once(_key(), _make)


def write_archive(path: Path, images: Sequence[Image]) -> None:
    """Write images as a docker-archive, uncompressed: containerd takes it as it is."""
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as scratch,
        tarfile.open(path, "w") as archive,
    ):
        known: dict[Path, str] = {}
        manifest = []
        for image in images:
            for layer in image.layers:
                if layer not in known:
                    known[layer] = _add_layer(archive, layer, Path(scratch))
            digests = [known[layer] for layer in image.layers]
            config = json.dumps(_config(image, digests)).encode()
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add_bytes(archive, config_name, config)
            layers = [f"{digest}.tar" for digest in digests]
            manifest.append(
                {"Config": config_name, "RepoTags": [image.name], "Layers": layers}
            )
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def _key() -> str:
    recipe = Path(__file__).read_bytes()
    return f"images-{cache.digest([recipe, _release().encode()])}"


def _release() -> str:
    """Return the code name of this machine's release, such as bookworm.

    The base image is of the same one, so that the host's Python finds its C library.
    """
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        busybox = _busybox_root(Path(scratch) / "busybox")
        base = _base_root(Path(scratch) / "base.tar")
        images = (
            # Nothing to reap: containers of a pod have their own process namespaces.
            Image(name=PAUSE, layers=(busybox,), command=("/bin/tail", "-f", "/dev/null")),
            Image(name=BUSYBOX, layers=(busybox,)),
            Image(name=BASE, layers=(base,)),
        )
        write_archive(folder / ARCHIVE, images)


def _busybox_root(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir(mode=0o1777)
    program = shutil.which("busybox")
    if not program:
        raise LabError("busybox is missing: run `sudo make test`, which installs it")
    shutil.copy(program, root / "bin/busybox")
    for tool in (*BUSYBOX_TOOLS, "tail"):
        (root / "bin" / tool).symlink_to("busybox")
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
            *(_release(), archive, *_apt_sources(_release())),
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
    """Return the files in which this machine's apt has sources for `release`."""
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    found = [path for path in files if path.is_file() and release in _suites(path)]
    if not found:
        raise LabError(
            f"no source for {release} in {apt}: let `apt-get update` work first"
        )
    return found


def _suites(path: Path) -> set[str]:
    """Return the suites that a file of apt sources names, in either of its forms."""
    lines = [line.split() for line in path.read_text().splitlines()]
    if path.suffix == ".sources":
        return {word for line in lines if line[:1] == ["Suites:"] for word in line[1:]}
    return {word for line in lines if line[:1] == ["deb"] for word in line[1:]}


def _config(image: Image, digests: Sequence[str]) -> dict[str, object]:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    return {
        "architecture": architecture or platform.machine(),
        "os": "linux",
        "config": {"Cmd": list(image.command) or None, "Env": [f"PATH={PATH}"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{digest}" for digest in digests],
        },
        "history": [{} for _ in digests],
    }


def _add_layer(archive: tarfile.TarFile, layer: Path, scratch: Path) -> str:
    """Add a layer under its digest and return that."""
    packed = layer
    if layer.is_dir():
        packed = scratch / "layer.tar"
        with tarfile.open(packed, "w") as tar:
            tar.add(layer, arcname=".", filter=_owned_by_root)
    with packed.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    archive.add(packed, arcname=f"{digest}.tar", filter=_owned_by_root)
    return digest


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
