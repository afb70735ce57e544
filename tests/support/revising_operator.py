"""Runs the operator, which revises plans that run again and again, at random.

Its searches are in processes of their own, which import this module as well.
"""

from __future__ import annotations

import sys

from plimsoll_operator.__main__ import main
from tests.support.random_revisions import install

install()
if __name__ == "__main__":
    sys.exit(main())
