"""Write constraints.txt anew: every version with its hashes, no address.

Run by `make constraints`, with uv on the PATH. The lock that uv makes in a temporary
folder names every file; the sum of their sizes per extra goes into the header, where
the set-up reads how much it is about to fetch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from packaging.markers import Marker
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = Path("planner/plimsoll_planner/version.py")
EXTRAS = ("local", "dev")
HEADER = """\
# Made by `make constraints`; every version with its hashes, for Python 3.11 to 3.13.
# What an extra fetches at most on this machine's platform and Python:
"""


def uv(*arguments: str, folder: Path) -> str:
    """Run one uv command in `folder` and return what it prints."""
    done = subprocess.run(  # noqa: S603 - the pinned uv of the environment
        [Path(sys.executable).parent / "uv", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@cache
def content_bytes(address: str) -> int:
    """Size of a file on the index, by asking for its header only."""
    request = Request(address, method="HEAD")  # noqa: S310 - from the lock of uv
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
        return int(answer.headers["Content-Length"])


def wheel_bytes(package: dict[str, Any]) -> int:
    """Size of the wheel that this interpreter would take, 0 without one."""
    rank = {tag: place for place, tag in enumerate(sys_tags())}
    fitting = []
    for wheel in package.get("wheels", []):
        tags = parse_wheel_filename(Path(wheel["url"]).name)[3]
        places = [rank[tag] for tag in tags if tag in rank]
        if places:
            fitting.append((min(places), wheel["url"]))
    return content_bytes(min(fitting)[1]) if fitting else 0


def download_bytes(extra: str, folder: Path) -> int:
    """Bytes of all wheels that `extra` brings on this machine."""
    lock = tomllib.loads((folder / "uv.lock").read_text())
    packages = {(p["name"], p.get("version")): p for p in lock["package"]}
    listing = uv(
        *("export", "--frozen", "--extra", extra, "--no-emit-project", "--no-hashes"),
        *("--no-header", "--no-annotate", "--quiet"),
        folder=folder,
    )
    total = 0
    for line in listing.splitlines():
        pin, _, marker = line.partition(";")
        name, _, version = pin.strip().partition("==")
        if not marker or Marker(marker.strip()).evaluate():
            total += wheel_bytes(packages[name, version])
    return total


def main() -> None:
    """Lock in a temporary folder, then write the file whole."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("pyproject.toml", "README.md", "LICENSE", VERSION_FILE):
            target = folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, target)
        uv("lock", "--quiet", folder=folder)
        sizes = [
            f"# download {extra}: {download_bytes(extra, folder) / 1e9:.1f} GB\n"
            for extra in EXTRAS
        ]
        pins = uv(
            *("export", "--frozen", "--all-extras", "--no-emit-project"),
            *("--no-header", "--no-annotate", "--quiet"),
            folder=folder,
        )
    (ROOT / "constraints.txt").write_text(HEADER + "".join(sizes) + pins)


if __name__ == "__main__":
    main()
