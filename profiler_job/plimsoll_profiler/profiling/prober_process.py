"""The prober as seen from outside: started, asked, and what its end means."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import IO, Self

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import AnyDocument, from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_profiler.entrypoint_path import require_module
from plimsoll_profiler.errors import (
    BadWorkloadError,
    EntryPointTooLargeError,
    ProbingFailedError,
    ProfilerError,
)
from plimsoll_profiler.probing.messages import Frame, ProbeRequest, ProbeResult
from plimsoll_profiler.process_environment import command_of, environment_of
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_trainer.errors import is_theirs

KILLED = -9
"""Exit status of a process that the kernel ended, as it does when memory is short."""


class ProberDiedError(Exception):
    """Caught by `profiling`: the probe that was asked for is lost with the process."""


class ProberProcess:
    """A prober that runs; a context manager that ends it."""

    def __init__(self, request: ProfileRequest) -> None:
        """Start it and read what it knows of the workload.

        Raises:
            BadWorkloadError: it cannot use the entry point.
            ProbingFailedError: it ended for another reason.
        """
        require_module(request.entrypoint)
        is_trace = request.source is Source.TRACED  # which has no cap
        cap_bytes = 0 if is_trace else request.device_memory_bytes
        self._stderr: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - see close
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            (
                *command_of("prober"),
                *(request.entrypoint, request.arguments),
                *(request.device_kind, request.source),
                json.dumps(request.micro_batches),
                json.dumps(request.tensor_degrees),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=os.environ | environment_of(request.device_kind, cap_bytes),
        )
        try:
            self.frame = self._read(Frame)
        except ProberDiedError:
            self._end()
            raise ProbingFailedError("the prober was killed as it started") from None
        except BaseException:
            self._end()
            raise

    def ask(self, request: ProbeRequest) -> ProbeResult:
        """Let it probe.

        Raises:
            ProberDiedError: the kernel killed it.
            ProbingFailedError: it ended for another reason.
        """
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - asked for above
        try:
            pipe.write(to_text(request) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # its last words are read below
        return self._read(ProbeResult)

    def _read(self, kind: type[AnyDocument]) -> AnyDocument:
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101 - asked for above
        line = pipe.readline()
        if line:
            return from_text(line, kind)
        status = self._process.wait()
        if status == KILLED:
            raise ProberDiedError
        self._stderr.seek(0)
        text = self._stderr.read()
        if os.environ.get(DEBUG_VARIABLE):
            sys.stderr.write(text)
        raise reason_of(status, text)

    def __enter__(self) -> Self:
        """The process itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()


def reason_of(status: int, stderr: str) -> ProfilerError:
    """Error that tells why the prober ended, by its exit status and stderr.

    A status below 0 is that of the signal that ended it.
    """
    lines = stderr.strip().splitlines() or [f"it said nothing, exit status {status}"]
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
    return ProbingFailedError(f"the prober ended: {lines[-1]}")


FRAME = re.compile(r'File "([^"]+)", line (\d+)')
"""In what faulthandler writes, the innermost first."""
