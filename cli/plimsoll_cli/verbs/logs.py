"""`plimsoll logs`: output of the processes of a plan."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.options.home import home_option
from plimsoll_cli.options.types import COUNT, WholeNumber
from plimsoll_cli.output.console import Output, output_option
from plimsoll_cli.state.state_dir import open_existing
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_planner.records.task import END

POLL_S = 0.2
LOOK_S, MOST_QUIET = 1.0, 2
"""Between checks of what is alive, and how many in a row may find nothing: a task
has its folder just before it has processes."""


@click.command()
@click.argument("name")
@click.option("--attempt", type=COUNT, help="Which attempt.  [default: the latest]")
@click.option("--rank", type=WholeNumber(min=0), help="Which rank.  [default: all]")
@click.option(
    "--of",
    "kind",
    type=click.Choice([kind.value for kind in TaskKind]),
    default=TaskKind.TRAIN.value,
    show_default=True,
    help="Training, or what prepared it.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on until it ends.")
@home_option
@output_option
def logs(
    name: str,
    attempt: int | None,
    rank: int | None,
    kind: str,
    follow: bool,
    home: Path,
    output: str,
) -> None:
    """Show the output of the ranks of NAME, each line with its rank.

    As JSON each line is an object of its own.
    """
    if attempt is not None and kind != TaskKind.TRAIN:
        raise click.UsageError("--attempt is of --of train; leave one of them away")
    found = asyncio.run(logs_of(home.absolute(), name, TaskKind(kind), attempt))
    pattern = "*" if rank is None else str(rank)
    if rank is not None and rank >= found.num_ranks:
        raise NothingMatchesError(
            f"--rank: {found.what} has no rank {rank}, its last is "
            f"{found.num_ranks - 1}"
        )
    growth, read = Growth(found), dict[str, int]()
    while True:
        folder = found.folder
        is_over = not (follow and growth.goes_on(folder))
        with suppress(FileNotFoundError):  # moved meanwhile
            for path in log_files(folder, pattern):
                read[path.name] = show(
                    path,
                    read.get(path.name, 0),
                    to_end=is_over,
                    as_json=output == Output.JSON,
                )
        if is_over and (folder.is_dir() or folder == found.kept):
            return
        if not is_over:
            time.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Logs:
    """Folders of the logs of a process."""

    processes: TaskProcesses
    """Of the plan."""
    running: Path
    """While the process runs; then they are kept elsewhere."""
    kept: Path
    what: str
    """Names the process."""
    num_ranks: int

    @property
    def folder(self) -> Path:
        """Folder of the logs now."""
        return self.running if self.running.is_dir() else self.kept


class Growth:
    """Watches whether logs may still grow."""

    def __init__(self, logs: Logs) -> None:
        """Begin to watch."""
        self._logs = logs
        self._next_s = time.monotonic() + LOOK_S
        self._quiet = 0
        """Checks in a row that found nothing of the process alive."""

    def goes_on(self, folder: Path) -> bool:
        """Whether more may come; where all was killed nobody writes that down."""
        if folder == self._logs.kept or (folder / END).exists():
            return False
        if time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + LOOK_S
            is_alive = folder in self._logs.processes.alive()
            self._quiet = 0 if is_alive else self._quiet + 1
        return self._quiet < MOST_QUIET


async def logs_of(root: Path, name: str, kind: TaskKind, attempt: int | None) -> Logs:
    """The logs of the newest process of a kind, or of one attempt.

    Raises:
        NothingMatchesError: there are none.
    """
    async with open_existing(root) as home:
        plan = await home.plan(name)
        place = home.folder.plan(plan.uid)
        attempts = await home.store.attempts.of(plan.uid)
    processes = TaskProcesses(place.tasks)
    found = [
        *place.root.glob(f"children/{kind}-*"),
        *place.root.glob(f"logs/{kind}-*"),
    ]
    newest = max(found, key=begun_s, default=None)
    if newest is None:
        raise NothingMatchesError(f"{name} has no logs of {kind}: none has run for it")
    subject = newest.name.removeprefix(f"{kind}-")
    if attempt is not None and f"{kind}-{attempt}" not in {one.name for one in found}:
        raise NothingMatchesError(
            f"--attempt: there is no attempt {attempt} of {name}; the latest is "
            f"{subject}"
        )
    subject = subject if attempt is None else str(attempt)
    trains = kind is TaskKind.TRAIN
    return Logs(
        processes=processes,
        running=processes.folder(kind, subject),
        kept=processes.logs(kind, subject),
        what=f"attempt {subject}" if trains else kind.value,
        num_ranks=attempts[int(subject) - 1].plan.num_gpus if trains else 1,
    )


def begun_s(folder: Path) -> float:
    """Age of the folder of a process; one that is gone is the oldest.

    It was moved meanwhile, and where it lies now is listed as well.
    """
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def log_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files of output, by rank."""
    for suffix in ("out", "err"):
        found = folder.glob(f"{pattern}.{suffix}")
        yield from sorted(found, key=lambda path: int(path.stem))


def show(path: Path, read_bytes: int, *, to_end: bool, as_json: bool) -> int:
    """Print a file from `read_bytes` on; return how much of it was read.

    A last line that is not whole is printed only `to_end`.
    """
    with path.open("rb") as file:
        file.seek(read_bytes)
        text = file.read()
    shown = text if to_end else text[: text.rfind(b"\n") + 1]
    for line in shown.decode(errors="replace").splitlines():
        words = {"rank": int(path.stem), "stream": path.suffix[1:], "line": line}
        click.echo(json.dumps(words) if as_json else f"[{path.stem}] {line}")
    return read_bytes + len(shown)
