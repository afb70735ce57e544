"""Entry points: run one command line; errors are one line and an exit code.

`plimsoll` is one, `kubectl-plimsoll` the other: kubectl runs a program of that name on
the PATH for `kubectl plimsoll`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from plimsoll_cli.errors import ExitCode

DEBUG = "--debug"


def main(arguments: Sequence[str] | None = None, *, reads_cluster: bool = False) -> int:
    """Run one command line and return its exit code.

    If it `reads_cluster`, it is a plugin of kubectl: `--cluster` is implied.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    try:
        # Imported here, for Ctrl-C is answered also while click and rich are loaded.
        from plimsoll_cli.dispatch import run  # noqa: PLC0415

        words = [word for word in words if word != DEBUG]
        return run(words, debug=debug, reads_cluster=reads_cluster)
    except KeyboardInterrupt:
        print("plimsoll: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


def kubectl_main() -> int:
    """Run the words that follow `kubectl plimsoll`."""
    return main(reads_cluster=True)


if __name__ == "__main__":
    sys.exit(main())
