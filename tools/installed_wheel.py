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


def main() -> None:
    """Make the environment anew."""
    built = WHEEL.with_name("wheel-file")
    for folder in (WHEEL, built):
        shutil.rmtree(folder, ignore_errors=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built]
    subprocess.run(build, check=True)  # noqa: S603
    venv.create(WHEEL)
    python = WHEEL / "bin" / "python"
    uv = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--no-deps"]
    install = [*uv, "--python", python, *built.glob("*.whl")]
    subprocess.run(install, check=True)  # noqa: S603
    (site,) = WHEEL.glob("lib/python3*/site-packages")
    # The checkout's packages are not among them: nobody reads .pth files of these.
    libraries = [path for path in sys.path if path.endswith("-packages")]
    (site / "libraries.pth").write_text("\n".join(libraries))


if __name__ == "__main__":
    main()
