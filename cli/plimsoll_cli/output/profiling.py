"""A profile that is made while a bar says how far it is.

In: a request. Out: a profile. Called by `profile`, and where a model has none yet.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_profiler.profiling.request import ProfileRequest


def with_progress(request: ProfileRequest) -> ModelProfile:
    """Profile, with a bar on a terminal; other verbs do not wait for numpy."""
    from plimsoll_profiler.profiling.profiler import profile as run  # noqa: PLC0415 - as above

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    page = Console(stderr=True)
    quiet = not page.is_terminal
    with Progress(*columns, console=page, transient=True, disable=quiet) as bar:
        task = bar.add_task("loading the workload", total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        return run(request, advance)


def quietly(request: ProfileRequest) -> ModelProfile:
    """Profile where another line says what is under way."""
    from plimsoll_profiler.profiling.profiler import profile as run  # noqa: PLC0415 - as above

    return run(request, unseen)


def unseen(done: int, total: int, what: str) -> None:
    """Show nothing."""
