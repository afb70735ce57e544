"""Termination message and exit code of a pod.

In: the `End` of its processes. Out: the termination message, at most 4,096 bytes of it,
and the exit code of the container.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from plimsoll_planner.exit_codes import DECISIVE, ExitCode
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.task import End

MOST_BYTES = 4096
"""Of a termination message; the kubelet cuts what is longer, and JSON with it."""
CUTS = (1024, 400, 160, 60, 0)
"""Characters of each process's last line, as long as the whole is too long."""
SIGNAL_BASE = 128
"""As shells report a process that a signal ended."""


def leave(end: End, path: Path) -> int:
    """Write the termination message; return the exit code."""
    with contextlib.suppress(OSError):  # the operator gets it as well
        path.write_text(message_of(end))
    return exit_code_of(end)


def message_of(end: End) -> str:
    """An end that is short enough; the first that failed is cut last."""
    text = ""
    for most in CUTS:
        text = to_text(shortened(end, most))
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def shortened(end: End, most: int) -> End:
    """The end with shorter last lines of its processes."""
    first = end.first or 0
    exits = tuple(
        replace(one, said=one.said[: max(most, CUTS[1] if place == first else 0)])
        for place, one in enumerate(end.exits)
    )
    return replace(end, exits=exits, message=end.message[: CUTS[0]])


def exit_code_of(end: End) -> int:
    """Exit code of the container, from those of all processes."""
    statuses = [one.status for one in end.exits]
    if not any(statuses):
        return ExitCode.DONE
    for code in DECISIVE:
        if code in statuses:
            return code
    place = end.first if end.first is not None else 0
    failed = [s for s in statuses if s not in (ExitCode.DONE, ExitCode.CHECKPOINTED)]
    if not failed:
        return ExitCode.CHECKPOINTED
    status = statuses[place] if statuses[place] in failed else failed[0]
    return status if status > 0 else SIGNAL_BASE - status
