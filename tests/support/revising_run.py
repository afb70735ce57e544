"""Runs `plimsoll`, and revises the plan that runs again and again, at random."""

from __future__ import annotations

import sys

from plimsoll_cli.__main__ import main
from tests.support.random_revisions import install

if __name__ == "__main__":
    install()
    sys.exit(main(sys.argv[1:]))
