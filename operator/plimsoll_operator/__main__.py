"""`python -m plimsoll_operator`: the operator on a cluster."""

from __future__ import annotations

import asyncio
import os
import sys

from plimsoll_operator.control.app import run
from plimsoll_operator.control.configuration import configuration_from
from plimsoll_operator.telemetry.logs import configure
from plimsoll_planner.errors import PlimsollError


def main() -> int:
    """Run the operator; return the exit code."""
    try:
        configuration = configuration_from(os.environ)
        configure(configuration.log_format, configuration.log_level)
        asyncio.run(run(configuration))
    except PlimsollError as error:
        sys.stderr.write(f"plimsoll-operator: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
