"""Entry point: runs one command line; errors are one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

DEBUG = "--debug"
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    try:
        # Imported here, so that Ctrl-C is answered from the first moment.
        from plimsoll_cli.run import run  # noqa: PLC0415

        return run([word for word in words if word != DEBUG], debug=debug)
    except KeyboardInterrupt:
        print("plimsoll: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
