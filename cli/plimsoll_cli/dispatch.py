"""Runs the command and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper

import click

from plimsoll_cli.command import plimsoll
from plimsoll_cli.errors import ExitCode, exit_code_of
from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError, one_line

OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG}
"""How the terminal, the pipe or the file behind stdout can fail."""


OF_A_CLUSTER = ("get", "describe", "explain", "report")
"""Verbs that read a cluster as well."""
ON_A_CLUSTER = {
    "run": "`kubectl apply`",
    "logs": "`kubectl logs`",
    "cancel": "spec.suspend",
    "delete": "`kubectl delete`",
    "export-weights": "checkpoint.exportWeights, and `kubectl cp` out of the claim",
}
"""Verbs of one machine, and their like on a cluster."""


def run(words: Sequence[str], *, debug: bool, reads_cluster: bool = False) -> ExitCode:
    """Run a command line without the program's name; `debug` shows tracebacks.

    If it `reads_cluster`, verbs that can do so do, without being asked.
    """
    if sys.stdout is None:  # `>&-`; the next file that is opened would take its place
        text = "plimsoll: the output is closed; send what is not wanted to /dev/null"
        click.echo(text, err=True)
        return ExitCode.FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # what this terminal cannot show
    of_cluster = {verb: {"cluster": True} for verb in OF_A_CLUSTER}
    try:
        with debugging() if debug else nullcontext():
            code: object = plimsoll.main(
                args=words,
                prog_name="kubectl plimsoll" if reads_cluster else "plimsoll",
                standalone_mode=False,
                default_map=of_cluster if reads_cluster else None,
            )
        sys.stdout.flush()  # a full disk shows here, not after the last line
    except PlimsollError as error:
        return report(error, str(error), exit_code_of(error), debug=debug)
    except click.UsageError as error:
        return report(error, usage_text(error), ExitCode.USAGE, debug=debug)
    except click.Abort as error:
        return report(error, "interrupted", ExitCode.INTERRUPTED, debug=debug)
    except OSError as error:
        return report(error, described(error), ExitCode.FAILED, debug=debug)
    # A verb that ends with `context.exit(code)` hands its code over here.
    return ExitCode(code) if isinstance(code, int) else ExitCode.DONE


def usage_text(error: click.UsageError) -> str:
    """Line on a command line that is wrong."""
    verb = (error.ctx and error.ctx.info_name) or ""
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if option == "--cluster" and verb in ON_A_CLUSTER:
        there = ON_A_CLUSTER[verb]
        return f"{verb} is of one machine; on a cluster it is {there} (docs/cluster.md)"
    return error.format_message()


def described(error: OSError) -> str:
    """Line on a file or an output that failed; a broken output is not used again."""
    if error.errno not in OUTPUT_ERRORS:
        return f"{error.filename or 'this folder'}: {error.strerror}"
    # What is still buffered goes nowhere: it would fail once more at the exit.
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return f"cannot write the output: {error}"


@contextmanager
def debugging() -> Generator[None]:
    """Let the processes that are started show their tracebacks."""
    os.environ[DEBUG_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[DEBUG_VARIABLE]


def report(error: Exception, text: str, code: ExitCode, *, debug: bool) -> ExitCode:
    """Print one line on stderr, after the traceback where that is wanted."""
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    click.echo(f"plimsoll: {one_line(text)}", err=True)
    return code
