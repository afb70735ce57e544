"""Takes the pictures of a report that the documentation shows.

In: the question of `QUESTION`, answered by `plimsoll plan`; Chromium. Out: files below
docs/pictures, of one section of the page: light and dark, on a desk and on a phone.
Run by `make pictures`; seconds of the search are in them, so none is the same twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Browser

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures"
COMMAND = (sys.executable, "-m", "plimsoll_cli", "plan")
QUESTION = (
    *("Qwen3-8B", "--sequence", "8192", "--batch", "256", "--steps", "1000"),
    *("--offers", "examples/offers.csv", "--optimizer-home", "device"),
    *("--max-gpus", "8", "--grid-seconds", "300"),
)
SECTION = "grid"
"""Of the page, by the name of its heading."""
DESK, PHONE = 1000, 390
"""Widths, CSS pixels."""


def main() -> None:
    """Answer the question, then take the pictures."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "report.html"
        subprocess.run(  # noqa: S603 - the project's own command
            [*COMMAND, *QUESTION, "--report", str(page)],
            cwd=ROOT,
            check=True,
        )
        with Browser(Path(name) / "chromium") as browser:
            for width, place in ((DESK, "desk"), (PHONE, "phone")):
                for is_dark in (False, True):
                    shown = browser.open(page, width=width, is_dark=is_dark)
                    colours = "dark" if is_dark else "light"
                    target = TARGET / f"{SECTION}-{place}-{colours}.png"
                    target.write_bytes(shown.picture(SECTION))


if __name__ == "__main__":
    main()
