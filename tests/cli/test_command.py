"""The verbs of the command are the modules of their package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from plimsoll_cli import verbs
from plimsoll_cli.__main__ import main
from plimsoll_cli.command import plimsoll, summary
from plimsoll_cli.dispatch import ON_A_CLUSTER
from plimsoll_cli.errors import ExitCode

NAMES = plimsoll.list_commands(click.Context(plimsoll))
VERB = '''
import click


@click.command()
def greet() -> None:
    """Say hello."""
    click.echo("hello")
'''


@pytest.mark.parametrize("name", NAMES)
def test_a_verb_has_the_name_and_the_help_of_its_module(name: str) -> None:
    """The list, which does not load it, has the first sentence of its own help."""
    command = plimsoll.get_command(click.Context(plimsoll), name)
    assert command is not None
    assert command.name == name
    assert summary(name) == command.get_short_help_str(60)


@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_a_verb_of_one_machine_names_what_it_is_on_a_cluster(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own options have nothing like it."""
    assert main([name, "tuned", "--cluster"]) == ExitCode.USAGE
    text = f"{name} is of one machine; on a cluster it is {ON_A_CLUSTER[name]}"
    assert text in capsys.readouterr().err


def test_a_new_verb_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed and run, and nothing names it."""
    (tmp_path / "greet.py").write_text(VERB)
    monkeypatch.setattr(verbs, "__path__", [*verbs.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "plimsoll_cli.verbs.greet", raising=False)
    assert main(["--help"]) == ExitCode.DONE
    assert re.search(r"  greet +Say hello\.", capsys.readouterr().out)
    assert main(["greet"]) == ExitCode.DONE
    assert capsys.readouterr().out == "hello\n"


def test_the_list_of_verbs_loads_none_of_them() -> None:
    """With all of them it took 0.8 s of CPU time, now 0.06 s."""
    code = (
        "import sys; from plimsoll_cli.__main__ import main; main(['--help']); "
        "print([m for m in ('sqlalchemy', 'numpy', 'rich', 'jinja2', 'yaml', "
        "'plimsoll_cli.verbs.run', 'plimsoll_operator') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
