"""Several probers at a time, for a trace that takes longer than they take to start.

A trace runs nothing on a device, so layers are probed beside each other: each prober
takes a place, a layer of one variant, from what is left, and asks for all of it. The
first one begins; others join it after a while, as many as there are cores. Who probes
what changes no number.

Where a prober dies there may be too little memory for so many, so it means nothing: the
others end, and what is left is asked of one alone. Called by `profiler`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic

from plimsoll_profiler.profiling.document_process import ProcessKilledError
from plimsoll_profiler.profiling.findings import Findings, Place
from plimsoll_profiler.profiling.prober_process import ProberProcess

JOIN_AFTER_S = 8.0
"""About as long as another prober takes to start, for a large model."""
MOST_PROBERS = 4
"""Each holds torch and the workload: about 0.7 GiB."""


class SeveralProbers:
    """Probes of one trace, by a prober that is there and others that join it."""

    def __init__(
        self,
        found: Findings,
        first: ProberProcess,
        on_progress: Callable[[int, int, str], None],
    ) -> None:
        """Begin with nothing probed."""
        self._found, self._first, self._on_progress = found, first, on_progress
        self._left = deque(found.places)
        self._lock = threading.Lock()
        self._ends = threading.Event()
        """No prober takes another place."""

    def run(self) -> None:
        """Probe until nothing is left, but for places at which another has died.

        Raises:
            ProcessKilledError: the first one has died.
            ProbingFailedError: one has ended for another reason than memory, or does
                not find the same workload.
        """
        with ThreadPoolExecutor(MOST_PROBERS) as pool:
            begun_s = monotonic()
            others: list[Future[None]] = []
            while place := self._next():
                if not others and monotonic() - begun_s > JOIN_AFTER_S:
                    others = [pool.submit(self._join) for _ in range(num_others())]
                try:
                    self._probe(self._first, place)
                except BaseException:
                    self._ends.set()
                    raise
            for one in others:
                one.result()

    def _next(self) -> Place | None:
        """A place that is left; None: there is none, or all ends."""
        with self._lock:
            return (
                self._left.popleft() if self._left and not self._ends.is_set() else None
            )

    def _join(self) -> None:
        """Probe beside the first prober."""
        with suppress(ProcessKilledError), ProberProcess(self._found.request) as prober:
            self._found.require_same(prober.frame)
            while place := self._next():
                self._probe(prober, place)

    def _probe(self, prober: ProberProcess, place: Place) -> None:
        """Ask a prober for all of a place.

        Raises:
            ProcessKilledError: it has died; the rest of the place is left.
        """
        found = self._found
        for probe in found.open_probes([place]):
            with self._lock:
                done = len(found.results)
                self._on_progress(done, found.num_probes, found.what(probe))
            result = prober.ask(probe)
            with self._lock:
                found.results.append(result)


def num_others() -> int:
    """Probers beside the first one: one for each further core."""
    return min(len(os.sched_getaffinity(0)), MOST_PROBERS) - 1
