"""Fake ingest server: takes or refuses the reports of a pod."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeIngest:
    """Reports that have come in, and the answers to them."""

    url: str = ""
    reports: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Those that were taken: path and content."""
    tokens: set[str] = field(default_factory=set[str])
    answers: Callable[[str], int | bytes] = lambda _: 204
    """By path: a status, or bytes that are sent before the connection is reset."""
    sent_back: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By path: what reports that are taken are answered with."""
    tries: int = 0

    def at(self, path: str) -> list[Any]:
        """Reports that have come to a path."""
        return [content for where, content in self.reports if where == path]


@contextmanager
def a_fake_ingest(port: int = 0) -> Iterator[FakeIngest]:
    """Serve until the block ends."""
    ingest = FakeIngest()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            ingest.tries += 1
            ingest.tokens.add(self.headers["Authorization"])
            status = ingest.answers(self.path)
            if status == 204:
                ingest.reports.append((self.path, json.loads(body)))
            if isinstance(status, bytes):
                self._break_off(status)
                return
            text = b"" if status == 204 else b'{"error": "not so"}'
            if status == 204 and self.path in ingest.sent_back:
                status, text = 200, ingest.sent_back[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _break_off(self, sent: bytes) -> None:
            self.wfile.write(sent)
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self.connection.close()
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    ingest.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield ingest
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
