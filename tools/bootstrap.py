"""Make the project's virtual environment, or find it ready. Called by the Makefile.

In: the folder of the environment, the extra to install, where torch comes from.
Out: an environment that holds the project in editable form, with every version and
hash taken from constraints.txt. Nothing is done when a stamp says that it was made
from the same files (0.1 s). Runs on the standard library alone: nothing is installed
yet.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PROJECT = ROOT / "pyproject.toml"
INPUTS = (PROJECT, CONSTRAINTS, Path(__file__).resolve())
INSTALLER = "uv"
"""Installs in parallel, checks the hashes of constraints and links from its cache."""
TORCH_ORIGINS = ("fetch", "existing")
RELEASE = re.compile(r"2\.[0-9]+(\.[0-9]+)?")
"""A torch that is asked for by its number, to test an older one."""
AT_THEIR_OLDEST = ("numpy", "transformers")
"""Beside such a torch these are as old as pyproject.toml allows."""
BESIDE_TORCH = re.compile(
    r"(torch|torchvision|triton|setuptools|nvidia-.*|cuda-.*|numpy|transformers|tokenizers"
    r"|huggingface-hub)=="
)
"""Pins of constraints.txt that are for the newest torch and transformers alone."""
TORCH_FOUND = "import torch; print(torch.__version__); print(torch.__file__)"


class SetUpError(Exception):
    """The machine lacks something; one line says what. Caught by `main`."""


def require_prerequisites() -> None:
    """Raise `SetUpError` with what to install, unless the machine has it all."""
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
    """Digest of everything that the content of the environment depends on.

    The Python that an activated environment offers and the one below it make the same
    environment; only a torch that is there already makes a difference.
    """
    python = sys.prefix if torch == "existing" else sys.base_prefix
    key = f"{sys.version}|{python}|{extra}|{torch}|{ROOT}"
    digest = hashlib.sha256(key.encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def recorded(pattern: str) -> str:
    """Value in constraints.txt at the group of `pattern`."""
    found = re.search(pattern, CONSTRAINTS.read_text(), re.MULTILINE)
    if found is None:
        raise SetUpError(
            f"constraints.txt has no line like {pattern}: make constraints"
        )
    return found.group(1)


def oldest(package: str) -> str:
    """The oldest release of a package that pyproject.toml allows."""
    found = re.search(rf'"{package}>=([0-9.]+)"', PROJECT.read_text())
    if found is None:
        raise SetUpError(f"pyproject.toml names no oldest {package}, as {package}>=2.1")
    return found.group(1)


def is_older(version: str, other: str) -> bool:
    """Whether a release is older than another one, by major and minor number."""
    parts = (list(map(int, one.split(".")[:2])) for one in (version, other))
    return next(parts) < next(parts)


def require_release(torch: str) -> None:
    """Refuse a torch that is no release, no other word that is known, or too old.

    Raises:
        SetUpError: see above.
    """
    if torch not in TORCH_ORIGINS and not RELEASE.fullmatch(torch):
        raise SetUpError(
            f"TORCH={torch!r} is neither one release, as TORCH=2.11, nor "
            "TORCH=existing, which reuses the torch that PYTHON has"
        )
    if RELEASE.fullmatch(torch) and is_older(torch, oldest("torch")):
        raise SetUpError(
            f"TORCH={torch}, and the oldest that works is {oldest('torch')}: name "
            "that or a newer one"
        )


def existing_torch(env: Path) -> Path:
    """Folder of the torch that the calling Python already has.

    Args:
        env: the environment about to be made anew, which cannot lend its own torch.
    """
    found = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", TORCH_FOUND], capture_output=True, text=True, check=False
    )
    advice = "name a Python with a newer one in PYTHON, or leave TORCH away to fetch it"
    if found.returncode:
        line = (found.stderr.strip().splitlines() or ["nothing"])[-1]
        raise SetUpError(f"TORCH=existing, but {sys.executable} says {line}: {advice}")
    # The last two lines: importing torch may print others.
    version, file = found.stdout.splitlines()[-2:]
    if is_older(version, oldest("torch")):
        raise SetUpError(
            f"TORCH=existing, but {sys.executable} has torch {version}, and the oldest "
            f"that works is {oldest('torch')}: {advice}"
        )
    if env.resolve() in Path(file).resolve().parents:
        raise SetUpError(f"TORCH=existing, but that torch is in {env} itself: {advice}")
    return Path(file).parents[1]


def pins_for(env: Path, torch: str) -> list[str]:
    """Arguments of uv that pin every version.

    Args:
        env: where files for uv may lie.
        torch: `fetch`, `existing`, or a release.
    """
    if not RELEASE.fullmatch(torch):
        return ["--constraints", str(CONSTRAINTS)]
    blocks = re.split(r"^(?=\S)", CONSTRAINTS.read_text(), flags=re.MULTILINE)
    loose = env / "constraints.txt"
    loose.write_text("".join(b for b in blocks if not BESIDE_TORCH.match(b)))
    chosen = {package: oldest(package) for package in AT_THEIR_OLDEST}
    fixed = env / "with-torch.txt"
    fixed.write_text(
        "".join(
            f"{name}=={release}.*\n"
            for name, release in {"torch": torch, **chosen}.items()
        )
    )
    return ["--constraints", str(loose), "--overrides", str(fixed)]


def install(env: Path, extra: str, torch: str, torch_folder: Path | None) -> None:
    """Build the environment from nothing.

    Args:
        env: where.
        extra: of the project.
        torch: `fetch`, `existing`, or a release.
        torch_folder: where an existing torch lies.
    """
    (env / "stamp").unlink(missing_ok=True)
    shutil.rmtree(env, ignore_errors=True)
    venv.create(env, with_pip=True)
    python = env / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pinned = env / "installer.txt"  # pip wants hashes in a file of their own
    pinned.write_text(recorded(rf"^({INSTALLER}==(?:.*\\\n)*.*)$") + "\n")
    run([*pip, "--require-hashes", "--requirement", str(pinned)])
    command = [str(env / "bin" / INSTALLER), "pip", "install", "--python", str(python)]
    command += [*pins_for(env, torch), "--build-constraints", str(CONSTRAINTS)]
    command += ["--editable", f"{ROOT}[{extra}]"]
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        # As in many images; else each start of a process would compile torch anew.
        command.append("--compile-bytecode")
    if torch_folder:
        # An override whose marker never holds takes torch out of the resolution.
        override = env / "without-torch.txt"
        override.write_text("torch ; python_version < '3'\n")
        command += ["--overrides", str(override)]
        site = env / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        path_file = site / "site-packages" / "existing-torch.pth"
        path_file.write_text(f"{torch_folder}\n")
    run(command)


def run(command: list[str]) -> None:
    """Run one step with its output shown; raise `SetUpError` when it fails."""
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own steps
        raise SetUpError(f"this step failed, see above: {' '.join(command)}")


def is_ready(env: Path, extra: str, torch: str | None) -> bool:
    """Whether the environment was made from these files, for this or for more.

    `dev` holds all of `local`; where torch came from matters only when it is asked.
    """
    stamp = env / "stamp"
    needed = (stamp, env / "bin" / "plimsoll", env / "bin" / INSTALLER)
    if not all(path.exists() for path in needed):
        return False
    enough = {"local": ("local", "dev"), "dev": ("dev",)}[extra]
    origins = (torch,) if torch else TORCH_ORIGINS  # one of a number has its own
    wanted = {stamp_of(e, origin) for e in enough for origin in origins}
    return stamp.read_text() in wanted


@contextmanager
def locked(path: Path, name: str) -> Iterator[None]:
    """Let one process at a time work on a folder; the others say whom they wait for.

    Args:
        path: of the lock.
        name: of what is done meanwhile, for those who wait.
    """
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(f"waiting for {lock.read()}, which has locked {path}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"{name} (process {os.getpid()})")
        lock.flush()
        yield


def set_up(env: Path, extra: str, torch: str | None) -> None:
    """Make the environment unless it is ready; one session at a time."""
    with locked(Path(f"{env}.lock"), f"the set-up of {env.name}"):
        if is_ready(env, extra, torch):
            return
        require_prerequisites()
        # Asked before anything is removed, so that a wrong request costs nothing.
        torch = torch or "fetch"
        folder = existing_torch(env) if torch == "existing" else None
        if folder is None:
            reuse = "; TORCH=existing reuses the torch that PYTHON has"
            print(
                f"Setting up {env.name}: fetches up to 3 GB (torch with its CUDA "
                f"libraries), less what is cached{reuse if torch == 'fetch' else ''}.",
                flush=True,
            )
        install(env, extra, torch, folder)
        (env / "stamp").write_text(stamp_of(extra, torch))


def main() -> int:
    """Entry point; prints one line for what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", type=Path)
    parser.add_argument("extra", choices=["local", "dev"])
    parser.add_argument("--torch", help="fetch, existing, or a release")
    args = parser.parse_args()
    try:
        require_release(args.torch or "fetch")
        if is_ready(args.env, args.extra, args.torch):
            return 0
        set_up(args.env, args.extra, args.torch)
    except (SetUpError, OSError, subprocess.CalledProcessError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up: interrupted; the next run starts it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
