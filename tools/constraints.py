"""Write constraints.txt anew: every version with its hashes, no address.

Run by `make constraints`, with the environment's uv, from a lock in a temporary folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = Path("planner/plimsoll_planner/version.py")
HEADER = """\
# Made by `make constraints`; every version with its hashes, for Python 3.11 to 3.13.
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


def main() -> None:
    """Lock in a temporary folder, then write the file whole."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("pyproject.toml", "README.md", "LICENSE", VERSION_FILE):
            target = folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, target)
        uv("lock", "--quiet", folder=folder)
        pins = uv(
            *("export", "--frozen", "--all-extras", "--no-emit-project"),
            *("--no-header", "--no-annotate", "--quiet"),
            folder=folder,
        )
    (ROOT / "constraints.txt").write_text(HEADER + pins)


if __name__ == "__main__":
    main()
