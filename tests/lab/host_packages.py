"""The packages of the interpreter that runs the lab, in every container of its nodes.

In: the environment that the lab is started from. Out: a runtime specification for
containerd, which makes every container by it. Called by node_files.py.

torch is 4 GB, too much for the image store of a node. The packages lie at PACKAGES,
read-only and beside everything that an image has; `images.TORCH` alone looks there.
So a pod that needs torch says no more than the name of an image, as anywhere else.

Measured: a container starts as fast as without.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import subprocess
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

# Not at the same path as on the host: that may lie in a home folder, which a container
# without root may not enter.
# By its last folder a fingerprint knows that they are libraries, and not the workload.
PACKAGES = "/host/site-packages"
HIDDEN = ("/run", "/var/lib", "/var/log")
"""Folders of the host that nodes_init.sh covers with its own."""


def has_torch() -> bool:
    """Whether this interpreter has torch."""
    return importlib.util.find_spec("torch") is not None


def packages() -> Path:
    """Folder of this interpreter's packages."""
    return Path(sysconfig.get_path("purelib")).resolve()


def container_spec() -> dict[str, Any]:
    """Containerd's own specification of a container, with the packages in it.

    Without torch, or where nodes cannot see them, there is nothing to add.
    """
    done = subprocess.run(["ctr", "oci", "spec"], capture_output=True, check=True)
    spec: dict[str, Any] = json.loads(done.stdout)
    found = packages()
    if has_torch() and not str(found).startswith(HIDDEN):
        compile_once(found)
        mount = {"destination": PACKAGES, "type": "bind", "source": str(found)}
        spec["mounts"].append(mount | {"options": ["rbind", "ro"]})
    return spec


def python_of(archive: Path) -> str:
    """Version of the Python in an archive of images, such as 3.11.

    Packages with compiled parts are for one version alone.
    """
    with tarfile.open(archive) as images:
        layers = [one for one in images if one.name.endswith(".tar")]
        for one in layers:
            with tarfile.open(fileobj=images.extractfile(one)) as layer:
                for file in layer:
                    if file.name.endswith("/usr/bin/python3"):
                        return file.linkname.removeprefix("python")
    return ""


def compile_once(found: Path) -> None:
    """Compile all packages if their installer did not; importing torch then takes 3 s.

    Pods cannot: they see the files read-only, and would take 14 s every time.
    """
    if (found / "torch").is_dir() and not any(found.glob("torch/__pycache__/*")):
        compileall.compile_dir(found, quiet=2, workers=0)
