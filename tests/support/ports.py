"""Ports for servers that tests start.

The kernel gives clients that connect any port of a range of its own (32768 to 60999 on
Linux). A server that is started on one of those a moment after it was seen free finds
it taken now and then, beside other tests. So these come from below.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
RANGE = range(12_000, 30_000)
"""Also below the ports of Kubernetes' services."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on at this moment."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = secrets.choice(RANGE)  # tests seed what is random otherwise
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
    return found
