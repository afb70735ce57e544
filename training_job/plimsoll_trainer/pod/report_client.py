"""Client of the operator's ingest: a request is repeated until it is answered.

In: a body and its path. Out: the operator has accepted it or refused it, or the time is
over. The operator may be away for minutes; no training waits for it. The token is read
anew for each request, because the kubelet renews it.

    2xx                            accepted
    400 403 404 409 413 422        refused: it would be refused again
    anything else, or no answer    repeated: after 1 s, then twice as long, up to 30 s

What is no HTTP, or breaks off, is no answer: a proxy or a dying replica sends such. An
operator that is away refuses connections; packets that nobody answers and names that
nobody resolves are what a NetworkPolicy leaves of a connection. That is reported as the
pod starts, and the operator is then waited for less long.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from plimsoll_planner.errors import one_line

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The operator is in the cluster; proxies that an image sets lead out of it."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
CLOSING_WAIT_S = 5.0
"""Between tries of a report once the ranks have ended: their end is sent after it."""
ANSWER_S = 20.0
"""For the answer to one request."""
CONNECT_S = 5.0
"""For the first connection, which only finds out whether there can be one."""
POLL_S = 0.2
LARGEST_BYTES = 32 * 2**20
"""Of the answer to a report, at most: a plan of many stages."""
SMALL_BYTES = 4096
"""Of an error's body, at most."""
REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)

Warn = Callable[[str], None]


@dataclass
class Deadline:
    """Until when requests are repeated; a pod that is being removed has less time."""

    at_s: float = math.inf
    """On the monotonic clock."""

    def within(self, seconds: float) -> None:
        """Bring it forward, at most that far ahead; never back."""
        self.at_s = min(self.at_s, time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.at_s - time.monotonic()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Outcome of one try."""

    is_taken: bool = False
    refusal: str = ""
    """Reason to refuse it for good; empty if it may be tried again."""
    fault: str = ""
    """Reason that it was not taken this time."""
    body: bytes = b""
    """Sent back, if it was taken."""


@dataclass(kw_only=True)
class ReportClient:
    """Sends reports and results to one operator."""

    url: str
    """Of its ingest; without a path."""
    token: Path
    was_reached: bool = False
    """Somebody has answered, or refused a connection."""
    cut_off: str = ""
    """Reason that nobody has, as far as was tried; empty if not tried, or over."""

    def try_to_connect(self, warn: Warn) -> None:
        """Find out whether the address can be reached at all, and say if it cannot."""
        where = urlsplit(self.url)
        try:
            address = (where.hostname or "", where.port or http.client.HTTP_PORT)
            socket.create_connection(address, CONNECT_S).close()
        except (OSError, ValueError) as error:
            self._note_fault(error)
        else:
            self._note_answer()
        if self.cut_off:
            warn(self.cut_off)

    def _note_answer(self) -> None:
        """Remember that there is a way to the operator."""
        self.was_reached, self.cut_off = True, ""

    def _note_fault(self, fault: object) -> None:
        """Note what a failed connection shows about the way to the operator."""
        if isinstance(fault, ConnectionError):  # refused: by a Service without pods
            self._note_answer()
        elif isinstance(fault, OSError) and not self.was_reached:
            self.cut_off = unreached_text(self.url, fault)

    def send(self, path: str, body: bytes) -> Answer:
        """Try once."""
        headers = {"Content-Type": "application/json"}
        try:
            token = self.token.read_text().strip()
            request = urllib.request.Request(  # noqa: S310 - set by the operator
                self.url + path,
                data=body,
                headers=headers | {"Authorization": f"Bearer {token}"},
            )
            with DIRECT.open(request, timeout=ANSWER_S) as reply:
                self._note_answer()
                body = reply.read(LARGEST_BYTES)
        except urllib.error.HTTPError as error:
            self._note_answer()
            reason = f"{error.code}: {reason_in(error)}"
            if error.code in REFUSALS:
                return Answer(refusal=reason)
            return Answer(fault=reason)
        except urllib.error.URLError as error:  # no connection
            self._note_fault(error.reason)
            return Answer(fault=self.cut_off or f"{type(error).__name__}: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return Answer(fault=f"{type(error).__name__}: {error}")
        return Answer(is_taken=True, body=body)

    def send_until(
        self, path: str, body: bytes, deadline: Deadline, warn: Warn
    ) -> Answer:
        """Try until it is taken or refused, or the time is over; once in any case.

        Why it takes longer is a warning, once.
        """
        wait_s, has_warned = FIRST_WAIT_S, False
        while True:
            answer = self.send(path, body)
            if not answer.fault or deadline.left_s <= 0:
                return answer
            if not has_warned:
                warn(f"the operator takes no {path} yet ({answer.fault}); trying on")
                has_warned = True
            retry = Deadline()
            retry.within(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            while retry.left_s > 0 and deadline.left_s > 0:
                time.sleep(POLL_S)  # and no longer: the deadline may come forward
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def unreached_text(url: str, fault: object) -> str:
    """Message that an address cannot be reached, and what to look for."""
    where = urlsplit(url)
    service, *others = (where.hostname or "").split(".")
    is_service = len(others) > 1 and others[1] == "svc"
    what = f"Service {service} of namespace {others[0]}" if is_service else service
    return (
        f"the operator's address {url} cannot be reached from this pod ({fault}): look "
        "for a NetworkPolicy that keeps this pod (egress, DNS as well) from "
        f"{what}, TCP port {where.port}, or its own that keeps this namespace out "
        "(ingress)"
    )


def reason_in(error: urllib.error.HTTPError) -> str:
    """Reason that a request was not accepted, in the operator's words if they come."""
    try:
        text = error.read(SMALL_BYTES)
    except (OSError, http.client.HTTPException):
        return error.reason
    try:
        reason = str(json.loads(text)["error"])
    except (ValueError, LookupError, TypeError):
        reason = text.decode(errors="replace")
    return one_line(reason)[:500] or error.reason
