"""Entry point: runs one command line; errors are one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from plimsoll_cli.errors import ExitCode

DEBUG = "--debug"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    try:
        # Imported here, for Ctrl-C is answered also while click and rich are loaded.
        from plimsoll_cli.dispatch import run  # noqa: PLC0415

        return run([word for word in words if word != DEBUG], debug=debug)
    except KeyboardInterrupt:
        print("plimsoll: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
