"""Make the project's virtual environment, or find it ready. Called by the Makefile.

In: the folder of the environment, the extra to install, where torch comes from.
Out: an environment that holds the project in editable form, with every version and
hash taken from constraints.txt. Nothing is done when a stamp says that it was made
from the same files (0.1 s). Runs on the standard library alone: nothing is installed
yet.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
INPUTS = (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__).resolve())
INSTALLER = "uv"
"""Installs in parallel, checks the hashes of constraints and links from its cache."""
TORCH_ORIGINS = ("fetch", "existing")
TORCH_FOUND = "import torch; print(torch.__version__); print(torch.__file__)"
OLDEST_TORCH = (2, 11)
"""The oldest on which profiles and replays are exact."""


class SetUpError(Exception):
    """The machine lacks something; one line says what. Caught by `main`."""


def require_prerequisites() -> None:
    """Raise `SetUpError` saying what to install, unless the machine has it all."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        raise SetUpError("Plimsoll runs on Linux with glibc (Debian, Fedora, ...)")
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise SetUpError("a C compiler is missing: apt-get install gcc")
    try:
        import ensurepip  # noqa: F401, PLC0415 - Debian ships Python without it
    except ImportError:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise SetUpError(
            f"Python's venv is missing: apt-get install {package}"
        ) from None


def stamp_of(extra: str, torch: str) -> str:
    """Digest of everything that the content of the environment depends on."""
    digest = hashlib.sha256(
        f"{sys.version}|{sys.prefix}|{extra}|{torch}|{ROOT}".encode()
    )
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def recorded(pattern: str) -> str:
    """Return what constraints.txt says at the group of `pattern`."""
    found = re.search(pattern, CONSTRAINTS.read_text(), re.MULTILINE)
    if found is None:
        raise SetUpError(
            f"constraints.txt has no line like {pattern}: make constraints"
        )
    return found.group(1)


def existing_torch() -> Path:
    """Return the folder of the torch that the calling Python already has."""
    found = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", TORCH_FOUND], capture_output=True, text=True, check=False
    )
    advice = "name a Python with a newer one in PYTHON, or leave TORCH away to fetch it"
    if found.returncode:
        raise SetUpError(f"TORCH=existing, but {sys.executable} has no torch: {advice}")
    version, file = found.stdout.splitlines()
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH:
        raise SetUpError(
            f"TORCH=existing, but {sys.executable} has torch {version}, and the oldest "
            f"that works is 2.11: {advice}"
        )
    return Path(file).parents[1]


def install(env: Path, extra: str, torch: str) -> None:
    """Build the environment from nothing."""
    shutil.rmtree(env, ignore_errors=True)
    venv.create(env, with_pip=True)
    python = env / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pinned = env / "installer.txt"  # pip wants hashes in a file of their own
    pinned.write_text(recorded(rf"^({INSTALLER}==(?:.*\\\n)*.*)$") + "\n")
    run([*pip, "--require-hashes", "--requirement", str(pinned)])
    command = [str(env / "bin" / INSTALLER), "pip", "install", "--python", str(python)]
    command += ["--constraints", str(CONSTRAINTS), "--build-constraints"]
    command += [str(CONSTRAINTS), "--editable", f"{ROOT}[{extra}]"]
    if torch == "existing":
        folder = existing_torch()
        # An override whose marker never holds takes torch out of the resolution.
        override = env / "without-torch.txt"
        override.write_text("torch ; python_version < '3'\n")
        command += ["--overrides", str(override)]
        site = env / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (site / "site-packages" / "existing-torch.pth").write_text(f"{folder}\n")
    run(command)


def run(command: list[str]) -> None:
    """Run one step with its output shown; raise `SetUpError` when it fails."""
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own steps
        raise SetUpError(f"this step failed, see above: {' '.join(command)}")


def is_ready(env: Path, extra: str, torch: str | None) -> bool:
    """Tell whether the environment was made from these files, for this or for more.

    `dev` holds all of `local`; where torch came from matters only when it is asked.
    """
    stamp = env / "stamp"
    if not stamp.exists():
        return False
    enough = {"local": ("local", "dev"), "dev": ("dev",)}[extra]
    origins = (torch,) if torch else TORCH_ORIGINS
    wanted = {stamp_of(e, origin) for e in enough for origin in origins}
    return stamp.read_text() in wanted


def main() -> int:
    """Entry point; prints one line for what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", type=Path)
    parser.add_argument("extra", choices=["local", "dev"])
    parser.add_argument("--torch", choices=TORCH_ORIGINS)
    args = parser.parse_args()
    if is_ready(args.env, args.extra, args.torch):
        return 0
    torch = args.torch or "fetch"
    try:
        require_prerequisites()
        if torch == "fetch":
            size = recorded(rf"^# download {args.extra}: ([0-9.]+) GB$")
            print(
                f"Setting up {args.env.name}: fetches up to {size} GB (torch with its "
                "CUDA libraries), less what is cached; TORCH=existing reuses the torch "
                "that PYTHON has.",
                flush=True,
            )
        install(args.env, args.extra, torch)
    except (SetUpError, OSError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    (args.env / "stamp").write_text(stamp_of(args.extra, torch))
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
