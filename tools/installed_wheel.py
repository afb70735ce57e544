"""Build the wheel and install it alone, on top of this environment's libraries.

Out: an environment whose packages are those of the wheel, not of the checkout, in
seconds: everything else is found where it is installed already. Called by `gates`, for
the unit tests; what the wheel itself asks for is what the tests of the wheel try.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.gates import WHEEL


def run(*command: str | Path) -> None:
    """Run one step."""
    subprocess.run(command, check=True)  # noqa: S603 - our own steps


def main() -> None:
    """Make the environment anew."""
    built = WHEEL.with_name("wheel-file")
    for folder in (WHEEL, built):
        shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built)
    venv.create(WHEEL)
    python = WHEEL / "bin" / "python"
    uv, options = Path(sys.executable).parent / "uv", ("--quiet", "--no-deps")
    run(uv, "pip", "install", *options, "--python", python, *built.glob("*.whl"))
    (site,) = WHEEL.glob("lib/python3*/site-packages")
    # The checkout's packages are not among them: nobody reads .pth files of these.
    libraries = [path for path in sys.path if path.endswith("-packages")]
    (site / "libraries.pth").write_text("\n".join(libraries))


if __name__ == "__main__":
    main()
