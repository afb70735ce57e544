"""The `plimsoll` command and its verbs."""

from __future__ import annotations

import click

from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs.calibrations import calibrations
from plimsoll_cli.verbs.cancel import cancel, delete
from plimsoll_cli.verbs.compare import compare
from plimsoll_cli.verbs.describe import describe
from plimsoll_cli.verbs.explain import explain
from plimsoll_cli.verbs.get import get
from plimsoll_cli.verbs.logs import logs
from plimsoll_cli.verbs.offers import offers
from plimsoll_cli.verbs.plan import plan
from plimsoll_cli.verbs.profile import profile
from plimsoll_cli.verbs.report import report
from plimsoll_cli.verbs.run import run
from plimsoll_planner import __version__

EXIT_CODES = "Exit codes: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode
)


@click.group(epilog=EXIT_CODES, invoke_without_command=True)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="plimsoll")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def plimsoll(context: click.Context, debug: bool) -> None:
    """Find the fewest GPUs a training job fits on, prove it, and launch it that way."""
    del debug  # taken off the command line by main, wherever it stands
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


AT_HOME = (run, get, describe, logs, cancel, delete, report, calibrations)
"""Verbs of plans that this machine runs."""
BY_HAND = (profile, plan, explain, compare, offers)
"""Verbs of files, one step at a time."""
for verb in (*AT_HOME, *BY_HAND):
    plimsoll.add_command(verb)
