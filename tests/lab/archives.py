"""Container images written straight from folders, without a builder or a registry.

In: folders or tars that become the layers. Out: a docker-archive, which containerd
imports as it is. Called by images.py, and by tests that need an image of their own.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """Content of one image."""

    name: str
    layers: tuple[Path, ...]
    """Each the folder that becomes /, or a tar of one."""
    command: tuple[str, ...] = ()


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
