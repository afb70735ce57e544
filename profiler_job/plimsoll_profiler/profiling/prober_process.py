"""The prober as seen from outside: started with a request, and asked for probes."""

from __future__ import annotations

import json

from plimsoll_profiler.errors import ProbingFailedError
from plimsoll_profiler.probing.messages import Frame, ProbeRequest, ProbeResult
from plimsoll_profiler.profiling.document_process import (
    DocumentProcess,
    ProcessKilledError,
)
from plimsoll_profiler.profiling.request import ProfileRequest


class ProberProcess(DocumentProcess):
    """A prober that runs; a context manager that ends it."""

    def __init__(self, request: ProfileRequest) -> None:
        """Start it and read what it knows of the workload.

        Raises:
            BadWorkloadError: it cannot use the entry point.
            ProbingFailedError: it ended for another reason.
        """
        super().__init__(
            "prober",
            request,
            *(request.entrypoint, request.arguments),
            *(request.device_kind, request.source),
            json.dumps(request.micro_batches),
            json.dumps(request.tensor_degrees),
        )
        try:
            self.frame = self.read(Frame)
        except ProcessKilledError:
            self.end()
            raise ProbingFailedError("the prober was killed as it started") from None
        except BaseException:
            self.end()
            raise

    def ask(self, request: ProbeRequest) -> ProbeResult:
        """Let it probe.

        Raises:
            ProcessKilledError: the kernel killed it.
            ProbingFailedError: it ended for another reason.
        """
        self.send(request)
        return self.read(ProbeResult)
