"""The `plimsoll` command: verbs, exit codes, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from plimsoll_cli.errors import ExitCode, exit_code_of
from plimsoll_cli.offers import offers
from plimsoll_planner import __version__
from plimsoll_planner.errors import PlimsollError

EXIT_CODES = "Exit codes: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode
)


@click.group(epilog=EXIT_CODES)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="plimsoll")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def plimsoll(debug: bool) -> None:
    """Find the fewest GPUs a training job fits on, prove it, and launch it that way."""


plimsoll.add_command(offers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        plimsoll.main(args=words, prog_name="plimsoll", standalone_mode=False)
    except PlimsollError as error:
        return report(error, f"{error}", exit_code_of(error), words)
    except click.UsageError as error:
        return report(error, error.format_message(), ExitCode.USAGE, words)
    except click.Abort as error:
        return report(error, "interrupted", ExitCode.INTERRUPTED, words)
    return ExitCode.DONE


def report(
    error: Exception, text: str, code: ExitCode, arguments: Sequence[str]
) -> ExitCode:
    """Print one line on stderr; with `--debug` the traceback before it."""
    if "--debug" in arguments:
        sys.excepthook(type(error), error, error.__traceback__)
    click.echo(f"plimsoll: {text}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
