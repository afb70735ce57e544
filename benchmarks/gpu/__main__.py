"""`python -m benchmarks.gpu`: asks for torch and numpy, then measures (`command`).

Missing, old or broken ones are refused in one line.
"""

from __future__ import annotations

import sys
from importlib import import_module

from plimsoll_trainer.errors import IncompatibleError, described
from plimsoll_trainer.process.requirements import OLDEST, require_supported
from plimsoll_trainer.user_code.fingerprint import installed_version

FAILED, INTERRUPTED = 1, 130


def main() -> int:
    """Measure; 0 where everything that was asked for was."""
    try:
        require_loadable()
        from benchmarks.gpu.command import main as measure  # noqa: PLC0415 - loads them
    except IncompatibleError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted: nothing was measured yet", file=sys.stderr)
        return INTERRUPTED
    return measure()


def require_loadable() -> None:
    """Refuse a Python whose torch or numpy is missing, too old, or broken.

    Raises:
        IncompatibleError: names what was found, and what to do.
    """
    require_supported()
    for package in OLDEST:
        try:
            import_module(package)
        except Exception as error:
            raise IncompatibleError(
                f"{package} {installed_version(package)} of {sys.executable} does not "
                f"load ({described(error)}): install it anew, or name another Python "
                "with make gpu PYTHON=/path/to/python"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
