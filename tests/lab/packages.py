"""The Debian packages that tests need, and installing those that are missing.

Called by `prepare` (installs, as root) and by the fixtures (skip, with what to run).
Real nodes need them, and the store's tests PostgreSQL; the control plane alone needs
none of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.lab import cache
from tests.lab.errors import LabError

NEEDED = (
    "buildah",  # the project's images, without a daemon
    "busybox-static",  # the small test image and the pods' pause process
    "containerd",
    "containernetworking-plugins",  # bridge and host-local; brings iptables
    "iproute2",
    "mmdebstrap",  # the base image
    "nftables",  # kube-proxy's tool
    "postgresql",  # a server for the store's tests; brings the user that it runs as
    "prometheus",  # judges the chart's rules and dashboards
    "runc",
)


def missing() -> list[str]:
    """Packages of `NEEDED` that are not installed, in that order.

    Raises:
        LabError: this is not Debian, nor anything like it.
    """
    if not shutil.which("dpkg-query"):
        raise LabError(
            "real nodes need Debian's packages, and this machine has no dpkg: run the "
            "tests with `-m 'not nodes'`, or in a Debian virtual machine"
        )
    form = "${Package} ${db:Status-Status}\n"
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", form, *NEEDED],
        capture_output=True,
        text=True,
        check=False,  # it fails when it does not know one of them
    ).stdout
    return [name for name in NEEDED if f"{name} installed\n" not in found]


def install(names: list[str]) -> None:
    """Install packages with apt-get, one session at a time.

    Raises:
        LabError: not root, or apt-get failed.
    """
    if os.geteuid():
        raise LabError(
            f"packages are missing: run `sudo apt-get install {' '.join(names)}` "
            "or `sudo make test`"
        )
    with cache.locked("packages"):  # apt-get waits for another install, but not update
        _install(names)


def _install(names: list[str]) -> None:
    """Update the lists and install; the caller holds the lock."""
    quiet = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")
    for command in (
        [*quiet, "update"],
        [*quiet, "install", "-y", "--no-install-recommends", *names],
    ):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise LabError(
                f"`{' '.join(command)}` failed: {last} (run it by hand, then try again)"
            )
