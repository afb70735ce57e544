"""The operator's end of a pod's letters: an HTTP server that takes or refuses them."""

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
class Office:
    """Requests that have come in, and their answers."""

    url: str = ""
    letters: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Those that were taken: path and content."""
    tokens: set[str] = field(default_factory=set[str])
    answers: Callable[[str], int | bytes] = lambda _: 204
    """By path: a status, or bytes that are sent before the connection is reset."""
    tries: int = 0

    def at(self, path: str) -> list[Any]:
        """Requests that have come to a path."""
        return [content for where, content in self.letters if where == path]


@contextmanager
def an_office(port: int = 0) -> Iterator[Office]:
    """Serve until the block ends."""
    office = Office()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            office.tries += 1
            office.tokens.add(self.headers["Authorization"])
            status = office.answers(self.path)
            if status == 204:
                office.letters.append((self.path, json.loads(body)))
            if isinstance(status, bytes):
                self._break_off(status)
                return
            text = b"" if status == 204 else b'{"error": "not so"}'
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
    office.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield office
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
