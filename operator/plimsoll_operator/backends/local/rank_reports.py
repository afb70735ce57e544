"""Reports of ranks while they train: lines of JSON, a file for each rank.

In: the folder of a task. Out: observations, steps and failures. A line that is not
whole yet is left for the next time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_operator.backends.commands import report_of
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.task import FullDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """One step, as rank 0 reports it."""

    step: int
    """Steps finished."""
    loss: float
    step_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsaved:
    """A checkpoint that could not be saved."""

    message: str
    waits: bool
    """Training is over, and the ranks wait for room."""


class Report:
    """The report of one rank, read as it grows."""

    def __init__(self, path: Path, rank: int) -> None:
        """Read from the beginning."""
        self._path = path
        self._rank = rank
        self._read_bytes = 0
        self.observation: Observation | None = None
        """The latest."""
        self.full_device: FullDevice | None = None
        self.steps: list[StepResult] = []
        self.unsaved: Unsaved | None = None
        """Of the latest save, where that has failed."""

    def read(self) -> None:
        """Read what has come since the last time."""
        for line in self._new_lines():
            with suppress(InvalidInputError, LookupError, TypeError, ValueError):
                self._take(line)  # else of another release: it could mean anything

    def _take(self, line: dict[str, Any]) -> None:
        """Take the report in one line."""
        match line.get("event"):
            case "observation":
                self.observation = Observation.from_json(
                    line["observation"], str(self._path)
                )
            case "step":
                self.steps.append(
                    StepResult(
                        step=int(line["step"]),
                        loss=float(line["loss"]),
                        step_s=float(line["step_s"]),
                    )
                )
            case "unsaved":
                self.unsaved = Unsaved(
                    message=str(line["message"]), waits=bool(line.get("waits"))
                )
            case "checkpoint":
                self.unsaved = None
            case "failure" if "asked_bytes" in line:
                self.full_device = FullDevice(
                    rank=self._rank,
                    phase=Phase(line["phase"]),
                    asked_bytes=int(line["asked_bytes"]),
                )
            case _:
                pass

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        """Yield whole lines."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            try:
                found: object = json.loads(line)
            except ValueError:
                continue  # torn by a full disk
            if isinstance(found, dict):
                yield found


class WorkerGroupReports:
    """The reports of all ranks of a worker group."""

    def __init__(self, folder: Path, num_ranks: int) -> None:
        """Read the reports in the folder of a task."""
        self.ranks = [Report(report_of(folder, n), n) for n in range(num_ranks)]

    def read(self) -> None:
        """Read what has come since the last time."""
        for report in self.ranks:
            report.read()

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The latest of each rank that has reported."""
        found = (report.observation for report in self.ranks)
        return tuple(one for one in found if one is not None)

    @property
    def full_device(self) -> FullDevice | None:
        """The first rank that ran out of device memory."""
        found = (report.full_device for report in self.ranks)
        return next((one for one in found if one is not None), None)

    @property
    def unsaved(self) -> Unsaved | None:
        """The latest checkpoint of the worker group, where it could not be saved."""
        return self.ranks[0].unsaved

    @property
    def steps(self) -> list[StepResult]:
        """Of the worker group."""
        return self.ranks[0].steps
