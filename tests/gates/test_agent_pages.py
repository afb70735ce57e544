"""llms.txt and the skill: each line of a shell that they name is one that exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from plimsoll_cli.command import plimsoll

ROOT = Path(__file__).parents[2]
PAGES = ("llms.txt", "skills/plimsoll/SKILL.md")
VERBS = plimsoll.list_commands(click.Context(plimsoll))


def lines_in(page: str) -> list[str]:
    """Command lines of a page."""
    text = (ROOT / page).read_text("utf-8")
    quoted = re.findall(r"`(plimsoll [a-z][^`]*)`", text)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    return quoted + [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.parametrize("page", PAGES)
def test_every_line_is_one_that_exists(page: str) -> None:
    """Its verb, and each of its options."""
    lines = lines_in(page)
    assert len(lines) > 5
    for line in lines:
        _, verb, *words = shlex.split(line.replace("...", ""))
        command = plimsoll.get_command(click.Context(plimsoll), verb)
        assert command is not None, line
        known = {option for each in command.params for option in each.opts}
        asked = {word for word in words if word.startswith("-")}
        assert asked <= known, line


@pytest.mark.parametrize("page", PAGES)
def test_questions_are_complete(page: str) -> None:
    """Machines are named; a manifest needs the steps of its training as well."""
    for line in lines_in(page):
        _, verb, *words = shlex.split(line)
        if verb in ("compare", "solve") or (verb == "plan" and "..." not in line):
            assert "--on" in words, line
        if "--emit" in words:
            assert "--steps" in words, line


@pytest.mark.parametrize("page", PAGES)
def test_every_page_that_is_named_is_there(page: str) -> None:
    """Links, and pages that the text names."""
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"(?:docs/)[a-z-]+\.md|README\.md", text)
    assert named
    for path in named:
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_json(verb: str) -> None:
    """For programs, and for those who ask on behalf of somebody."""
    command = plimsoll.get_command(click.Context(plimsoll), verb)
    assert command is not None
    [output] = [one for one in command.params if one.name == "output"]
    assert isinstance(output.type, click.Choice)
    assert "json" in output.type.choices
