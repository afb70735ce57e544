"""Links between pages lead somewhere: to a file of the tree, and to a heading of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.trainingplan import anchor

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page of the tree."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split()]


def prose_of(page: Path) -> str:
    """Text of a page without its examples."""
    return FENCED.sub("", page.read_text())


def leads_nowhere(page: Path, link: str) -> bool:
    """Whether a link names no file, or no heading of its page."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return True
    headings = HEADING.findall(prose_of(target)) if heading else []
    return bool(heading) and heading not in map(anchor, headings)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there, and where a heading is named, to one of its headings."""
    links = LINK.findall(prose_of(page))
    assert [link for link in links if leads_nowhere(page, link)] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """Be it a file or a heading that is not there; examples are not looked at."""
    page = tmp_path / "page.md"
    page.write_text("# Some words\n```\n[x](example.md)\n```\n")
    dead = ("other.md", "#other", "page.md#other")
    assert all(leads_nowhere(page, link) for link in dead)
    assert not leads_nowhere(page, "page.md#some-words")
    assert LINK.findall(prose_of(page)) == []
