"""Report of the lines and branches that the unit tests covered, all rooms together.

In: the data that each part of the gate `all` left. Out: coverage's own table.
"""

from __future__ import annotations

import subprocess
import sys

from tools.gates import BUILD, COVERED_BY


def main() -> int:
    """Combine and report; 0 when both worked."""
    coverage = (sys.executable, "-m", "coverage")
    files = [str(path) for path in BUILD.glob(f"{COVERED_BY}*")]
    combined = subprocess.run(  # noqa: S603 - our own files
        [*coverage, "combine", "--quiet", *files], check=False
    )
    reported = subprocess.run([*coverage, "report"], check=False)  # noqa: S603
    return combined.returncode or reported.returncode


if __name__ == "__main__":
    sys.exit(main())
