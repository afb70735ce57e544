"""The way into a pod's image: `python start.py ...` runs `plimsoll_trainer.pod ...`.

The image of the runtime has it as /runtime/start.py, beside the packages. Every
container of ours starts it with the interpreter of the user's image. Its own folder
comes before the modules of the image, here and in each process that is started from
here; what the image has stays behind it.

The kernel drops a SIGTERM to the first process of a container for as long as nothing
handles it, but not where it is blocked: then it waits. So it is blocked before anything
else is loaded; `plimsoll_trainer.pod` lets it through once there is somebody to ask.

Python 3.6 and newer understand this file, so that an old one ends with a message.
"""

import signal

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

import os
import runpy
import sys
from pathlib import Path

OLDEST = (3, 11)
INCOMPATIBLE = 88
"""`ExitCode.INCOMPATIBLE`; an old Python cannot read the module that says so."""
MAIN = "plimsoll_trainer.pod"
SHIM, SHIM_VARIABLE = "shim.so", "PLIMSOLL_SHIM"
"""The emulated device's library, built, for an image without a compiler."""


def main() -> None:
    """Hand over to the main module, or end with one line that says why not."""
    if sys.version_info < OLDEST:
        needed, found = (".".join(map(str, v[:2])) for v in (OLDEST, sys.version_info))
        sys.stderr.write(
            f"Plimsoll needs Python {needed} or newer, and {sys.executable} of this "
            f"image is {found}: train in an image with a newer one\n"
        )
        sys.exit(INCOMPATIBLE)
    folder = Path(__file__).resolve().parent
    sys.path[:0] = [str(folder)]  # not there where the image sets PYTHONSAFEPATH
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if (folder / SHIM).exists():
        os.environ.setdefault(SHIM_VARIABLE, str(folder / SHIM))
    runpy.run_module(MAIN, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
