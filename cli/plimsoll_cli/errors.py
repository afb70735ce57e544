"""Errors of the command, and how each leaves the process: one line and an exit code.

    PlimsollError               (plimsoll_planner.errors)
    └── CliError                the command line itself is at fault
        ├── NothingMatchesError the filters leave nothing to show
        ├── CannotWriteError    a file that was asked for
        ├── NoSuchPlanError     the place has no plan of that name
        ├── NoAnswerError       the plan has no answer of the search yet
        ├── NoClusterError      the cluster does not show its plans
        └── PlanUnderWayError   a manifest would change a job that was launched

`run` catches `PlimsollError`; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

from enum import IntEnum

from plimsoll_planner import exit_codes
from plimsoll_planner.errors import InvalidInputError, PlimsollError


class CliError(PlimsollError):
    """The command cannot do what was asked."""


class NothingMatchesError(CliError):
    """The filters leave nothing to show."""


class CannotWriteError(CliError):
    """A file that was asked for cannot be written."""


class NoSuchPlanError(CliError):
    """The state directory, or namespace of a cluster, has no plan of that name."""


class NoAnswerError(CliError):
    """A plan has no answer of the search yet, or its place does not hold one."""


class NoClusterError(CliError):
    """A cluster does not show its plans: away, without them, or we may not."""


class PlanUnderWayError(CliError):
    """A manifest would change a job under way."""


class ExitCode(IntEnum):
    """Exit codes of the `plimsoll` command."""

    DONE = 0
    FAILED = 1
    """Something went wrong on the way; the line says what."""
    USAGE = 2
    """The command line is not one that this command has."""
    BAD_INPUT = 3
    """A file or value that was named breaks a rule."""
    NO_PLAN = 4
    """The question has an answer, and it is that no plan fits, or none of those with
    what was fixed by hand; the output says why."""
    STOPPED = 5
    """The plan was stopped and has saved; `plimsoll run` goes on."""
    INTERRUPTED = 130
    """Ctrl-C; 128 and the number of SIGINT, as shells have it."""


def exit_code_of(error: PlimsollError) -> ExitCode:
    """The exit code for an error."""
    if isinstance(error, InvalidInputError):
        return ExitCode.BAD_INPUT
    # A model that cannot be used is named alike, whichever process reads it.
    if getattr(error, "exit_code", None) is exit_codes.ExitCode.BAD_WORKLOAD:
        return ExitCode.BAD_INPUT
    return ExitCode.FAILED
