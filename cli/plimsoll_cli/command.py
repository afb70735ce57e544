"""The `plimsoll` command: its verbs are the modules of `verbs`.

In: nothing. Out: a group of click. Called by `dispatch`. A new verb is a new module
with a command of its name; it is imported when it is used, so that `--help` stays
quick.
"""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from plimsoll_cli import verbs
from plimsoll_cli.errors import ExitCode
from plimsoll_planner import __version__

EXIT_CODES = "Exit codes: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode
)
LONGEST_SUMMARY = 60
"""Columns of a line of the list of verbs."""


class VerbGroup(click.Group):
    """The verbs, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Names of the verbs, in order."""
        return [
            module.name.replace("_", "-")
            for module in pkgutil.iter_modules(verbs.__path__)
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None where there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(f"{verbs.__name__}.{name}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a line; a name that is none is compared with all verbs."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.NoSuchCommand(
                error.command_name, possibilities=names, ctx=ctx
            ) from None

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the verbs with what they do, without a verb being loaded."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, summary(name)) for name in self.list_commands(ctx)]
            )


def summary(name: str) -> str:
    """Summary of a verb: the first sentence of its function, read from the source."""
    name = name.replace("-", "_")
    spec = find_spec(f"{verbs.__name__}.{name}")
    tree = ast.parse(Path(str(spec and spec.origin)).read_text("utf-8"))
    function = next(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    text = ast.get_docstring(function)
    return click.Command(name, help=text).get_short_help_str(LONGEST_SUMMARY)


@click.group(cls=VerbGroup, epilog=EXIT_CODES, invoke_without_command=True)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="plimsoll")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def plimsoll(context: click.Context, debug: bool) -> None:
    """Find the fewest GPUs a training job fits on, prove it, and launch it that way."""
    del debug  # taken off the command line by main, wherever it stands
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
