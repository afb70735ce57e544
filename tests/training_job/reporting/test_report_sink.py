"""Reports are written, or lost with one line; nobody ever waits for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_trainer.reporting import report_sink
from plimsoll_trainer.reporting.report_sink import BackgroundSink, file_sink

PATIENCE_S = 60.0


@pytest.fixture
def warnings() -> list[str]:
    """The warnings."""
    return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr(report_sink, "WAIT_BEFORE_RETRY_S", (0.01, 0.01))


def a_sink(deliver: report_sink.Deliver, warnings: list[str]) -> BackgroundSink:
    """A sink with room for all that a test puts in."""
    return BackgroundSink("here", deliver, most_waiting=200, warn=warnings.append)


@pytest.mark.usefixtures("quick")
def test_a_target_that_recovers_loses_nothing(warnings: list[str]) -> None:
    """Two failures, then it is taken; in order."""
    got: list[bytes] = []
    faults = [OSError("full"), OSError("full")]

    def deliver(message: bytes) -> None:
        if faults:
            raise faults.pop()
        got.append(message)

    sink = a_sink(deliver, warnings)
    sink.put(b"one")
    sink.put(b"two")
    end_s = time.monotonic() + PATIENCE_S
    while len(got) < 2 and time.monotonic() < end_s:
        time.sleep(0.01)
    sink.close(PATIENCE_S)
    assert (got, warnings) == ([b"one", b"two"], [])


def test_a_dead_target_is_one_line(warnings: list[str]) -> None:
    """The first loss is reported, later ones are not; handing over takes no time."""

    def deliver(_: bytes) -> None:
        raise OSError("away")

    sink = a_sink(deliver, warnings)
    begin_s = time.monotonic()
    for _ in range(100):
        sink.put(b"x")
    assert time.monotonic() - begin_s < sum(report_sink.WAIT_BEFORE_RETRY_S)
    sink.close(PATIENCE_S)
    assert warnings == [
        "reports to here are lost: OSError: away; training goes on without them"
    ]


def test_a_target_that_never_answers_holds_nobody(warnings: list[str]) -> None:
    """Closing waits as long as it was allowed, no longer."""
    go = threading.Event()
    sink = a_sink(lambda _: assert_true(go.wait(PATIENCE_S)), warnings)
    begin_s = time.monotonic()
    sink.put(b"x")
    sink.close(0.2)
    assert time.monotonic() - begin_s < PATIENCE_S / 2
    go.set()
    sink.close(PATIENCE_S)
    assert warnings == []


def assert_true(is_so: bool) -> None:
    """Fail unless it is so."""
    assert is_so


def test_only_the_newest_wait(warnings: list[str]) -> None:
    """A target that is slow gets the latest messages; older ones are lost."""
    go, got = threading.Event(), list[bytes]()

    def deliver(message: bytes) -> None:
        go.wait(PATIENCE_S)
        got.append(message)

    sink = BackgroundSink("slow", deliver, most_waiting=2, warn=warnings.append)
    for text in (b"1", b"2", b"3", b"4", b"5"):
        sink.put(text)
    go.set()
    sink.close(PATIENCE_S)
    assert got[-2:] == [b"4", b"5"]
    assert len(got) <= 3


def test_ranks_append_whole_lines(tmp_path: Path, warnings: list[str]) -> None:
    """Several writers share one file."""
    path = tmp_path / "report.jsonl"
    sinks = [file_sink(path, warnings.append) for _ in range(3)]
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
def test_a_file_that_cannot_be_written_is_one_line(
    name: str, warnings: list[str]
) -> None:
    """A full disk or a wrong path."""
    sink = file_sink(Path(name), warnings.append)
    for _ in range(5):
        sink.put(b"line")
    sink.close(PATIENCE_S)
    (line,) = warnings
    assert line.startswith(f"reports to {name} are lost: ")
