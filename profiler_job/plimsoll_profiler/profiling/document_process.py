"""A process of ours that writes documents: started, read, and what its end means.

In: a request, and the name and words of a process that `plimsoll_profiler.start` knows.
Out: its documents, one from each line of its stdout; its last line on stderr says why
it ended, if not well. `ProberProcess` is one that is asked besides.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Self

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import AnyDocument, Document, from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_profiler.entrypoint_path import require_module
from plimsoll_profiler.errors import (
    BadWorkloadError,
    EntryPointTooLargeError,
    ProbingFailedError,
    ProfilerError,
)
from plimsoll_profiler.process_environment import command_of, environment_of
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.errors import is_theirs

KILLED = -9
"""Exit status of a process that the kernel ended, as it does when memory is short."""


class ProcessKilledError(Exception):
    """Caught by whoever reads: what was asked for is lost with the process."""


class DocumentProcess:
    """A process that runs; a context manager that ends it."""

    def __init__(self, name: str, request: ProfileRequest, *words: str) -> None:
        """Start it as the device of a request.

        Args:
            name: of the process; `plimsoll_profiler.start` knows it.
            request: it works for.
            words: of its command line.

        Raises:
            BadWorkloadError: there is no module for the entry point.
            NoEmulatedDeviceError: the library of the device cannot be built.
        """
        require_module(request.entrypoint)
        is_trace = request.source is Source.TRACED  # which has no cap
        cap_bytes = 0 if is_trace else request.device_memory_bytes
        extra = environment_of(request.device_kind, cap_bytes)
        self._name = name
        self._stderr: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - see close
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            (*command_of(name), *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=os.environ | extra,
        )

    def send(self, document: Document) -> None:
        """Write a line to it."""
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - asked for above
        try:
            pipe.write(to_text(document) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # its last words are read below

    def read(self, kind: type[AnyDocument]) -> AnyDocument:
        """Its next document.

        Raises:
            ProcessKilledError: the kernel killed it.
            ProbingFailedError: it ended for another reason, or before it wrote one.
        """
        found = next(self.documents(kind), None)
        if found is None:
            raise self._reason(ExitCode.DONE)
        return found

    def documents(self, kind: type[AnyDocument]) -> Iterator[AnyDocument]:
        """Yield its documents until it ends well.

        A line without its end is of a process that was killed as it wrote.

        Raises:
            ProcessKilledError: the kernel killed it.
            ProbingFailedError: it ended for another reason.
        """
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101 - asked for above
        while (line := pipe.readline()).endswith("\n"):
            yield from_text(line, kind)
        status = self._process.wait()
        if status == KILLED:
            raise ProcessKilledError
        if status != ExitCode.DONE or line:
            raise self._reason(status)

    def _reason(self, status: int) -> ProfilerError:
        """Error with the reason why it ended."""
        self._stderr.seek(0)
        text = self._stderr.read()
        if os.environ.get(DEBUG_VARIABLE):
            sys.stderr.write(text)
        return reason_of(self._name, status, text)

    def __enter__(self) -> Self:
        """The process itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.end()

    def end(self) -> None:
        """Kill it, if it still runs."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()


def reason_of(name: str, status: int, stderr: str) -> ProfilerError:
    """Error with the reason why a process ended, by its exit status and stderr.

    A status below 0 is that of the signal that ended it.
    """
    lines = stderr.strip().splitlines() or [f"it wrote no reason, exit status {status}"]
    if status < 0:
        places = [f"{file}:{line}" for file, line in FRAME.findall(stderr)]
        theirs = [place for place in places if is_theirs(place)]
        where = "".join(f" at {place}" for place in (theirs or places)[:1])
        return BadWorkloadError(
            f"the workload's code ended its process with "
            f"{signal.Signals(-status).name}{where}; --debug shows where from"
        )
    if status == ExitCode.ENTRY_POINT_OUT_OF_MEMORY:
        return EntryPointTooLargeError(lines[-1])
    if status in (ExitCode.BAD_WORKLOAD, ExitCode.DEVICE_OUT_OF_MEMORY):
        return BadWorkloadError(lines[-1])
    return ProbingFailedError(f"the {name} ended: {lines[-1]}")


FRAME = re.compile(r'File "([^"]+)", line (\d+)')
"""In what faulthandler writes, the innermost first."""
