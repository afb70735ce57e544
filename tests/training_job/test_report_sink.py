"""Reports are delivered, or lost with one line; nobody ever waits for them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_trainer import report_sink
from plimsoll_trainer.errors import TrainerError
from plimsoll_trainer.report_sink import BackgroundSink, file_sink, http_sink

PATIENCE_S = 60.0


@pytest.fixture
def server() -> Iterator[tuple[str, list[bytes], list[int]]]:
    """A server that keeps what it gets and answers with the codes given, then 200."""
    got: list[bytes] = []
    codes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            got.append(self.rfile.read(length))
            self.send_response(codes.pop(0) if codes else 200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Stay quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/reports", got, codes
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@pytest.fixture
def said() -> list[str]:
    """The warnings."""
    return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr(report_sink, "WAIT_BEFORE_RETRY_S", (0.01, 0.01))


def test_what_is_put_arrives_in_order(
    server: tuple[str, list[bytes], list[int]], said: list[str]
) -> None:
    """Each message is one request."""
    url, got, _ = server
    sink = http_sink(url, said.append)
    sink.put(b"one")
    sink.put(b"two")
    sink.close(PATIENCE_S)
    assert (got, said) == ([b"one", b"two"], [])


@pytest.mark.usefixtures("quick")
def test_a_server_that_recovers_loses_nothing(
    server: tuple[str, list[bytes], list[int]], said: list[str]
) -> None:
    """Two refusals, then it is taken."""
    url, got, codes = server
    codes += [503, 500]
    sink = http_sink(url, said.append)
    sink.put(b"one")
    end_s = time.monotonic() + PATIENCE_S
    while len(got) < 3 and time.monotonic() < end_s:
        time.sleep(0.01)
    sink.close(PATIENCE_S)
    assert (got, said) == ([b"one"] * 3, [])


def test_a_dead_address_is_one_line(said: list[str]) -> None:
    """The first loss is said, later ones are not, and handing over takes no time."""
    sink = http_sink("http://127.0.0.1:9/", said.append)
    begin_s = time.monotonic()
    for _ in range(100):
        sink.put(b"x")
    assert time.monotonic() - begin_s < sum(report_sink.WAIT_BEFORE_RETRY_S)
    sink.close(PATIENCE_S)
    (line,) = said
    assert line.startswith("reports to http://127.0.0.1:9/ are lost: URLError: ")
    assert line.endswith("; training goes on without them")


def test_a_server_that_never_answers_holds_nobody(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits as long as it was told, no longer."""
    monkeypatch.setattr(report_sink, "POST_TIMEOUT_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = http_sink(f"http://127.0.0.1:{silent.getsockname()[1]}/", said.append)
        begin_s = time.monotonic()
        sink.put(b"x")
        sink.close(0.2)
        assert time.monotonic() - begin_s < report_sink.POST_TIMEOUT_S
        sink.close(PATIENCE_S)
    (line,) = said
    assert "timed out" in line


def test_only_the_newest_wait(said: list[str]) -> None:
    """A target that is slow gets the latest messages; older ones are lost."""
    go, got = threading.Event(), list[bytes]()

    def deliver(message: bytes) -> None:
        go.wait(PATIENCE_S)
        got.append(message)

    sink = BackgroundSink("slow", deliver, most_waiting=2, warn=said.append)
    for text in (b"1", b"2", b"3", b"4", b"5"):
        sink.put(text)
    go.set()
    sink.close(PATIENCE_S)
    assert got[-2:] == [b"4", b"5"]
    assert len(got) <= 3


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("ftp://x/", "it does not begin with"),
        ("file:///etc/passwd", "it does not begin with"),
        ("host:80", "it does not begin with"),
        ("http://", "it names no host"),
        ("http://host:many/", "Port could not be cast"),
        ("http://host:70000/", "Port out of range"),
        ("http://[::1/", "Invalid IPv6 URL"),
        ("http://host/a b", "must be escaped"),
        ("http://h\u00f6st/", "must be escaped"),
        ("http://host/\n", "must be escaped"),
    ],
)
def test_only_http_is_an_address(url: str, fault: str, said: list[str]) -> None:
    """Anything else is refused at the start, in one line."""
    with pytest.raises(TrainerError, match="is no address of HTTP") as refused:
        http_sink(url, said.append)
    assert fault in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.usefixtures("quick")
def test_a_failure_of_any_kind_is_one_line(said: list[str]) -> None:
    """Also one that nobody thought of: a label of a host name that is too long."""
    sink = http_sink(f"http://{'a' * 64}.example/", said.append)
    sink.put(b"one")
    sink.put(b"two")
    sink.close(PATIENCE_S)
    (line,) = said
    assert " are lost: UnicodeError: " in line
    assert line.endswith("; training goes on without them")


def test_ranks_append_whole_lines(tmp_path: Path, said: list[str]) -> None:
    """Several writers share one file."""
    path = tmp_path / "report.jsonl"
    sinks = [file_sink(path, said.append) for _ in range(3)]
    for turn in range(200):
        for place, sink in enumerate(sinks):
            sink.put(f"{place} {turn} {'x' * 500}".encode())
    for sink in sinks:
        sink.close(PATIENCE_S)
    lines = path.read_text().splitlines()
    assert len(lines) == 600
    assert {len(line.split()) for line in lines} == {3}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["/dev/full", "/no/such/folder/report"])
def test_a_file_that_cannot_be_written_is_one_line(name: str, said: list[str]) -> None:
    """A full disk or a wrong path."""
    sink = file_sink(Path(name), said.append)
    for _ in range(5):
        sink.put(b"line")
    sink.close(PATIENCE_S)
    (line,) = said
    assert line.startswith(f"reports to {name} are lost: ")
