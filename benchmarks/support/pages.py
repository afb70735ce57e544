"""Pages of results: a table with what it rests on, in Markdown.

In: prose and tables. Out: docs/benchmarks/NAME.md. Called by benches whose rows are
worth reading one by one; NAME.txt beside this module is what no result changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.frame import ROOT, Circumstances, circumstances
from benchmarks.support.families import Family, num_parameters
from plimsoll_planner.units import at_least

PAGES = ROOT / "docs" / "benchmarks"
HERE = Path(__file__).parent


def write_page(name: str, prose: str, tables: Iterable[tuple[str, str]]) -> Path:
    """Write a page of several tables, each with its heading; return its path."""
    parts = [prose.rstrip(), around(circumstances())]
    parts += [f"## {heading}\n\n{table}" for heading, table in tables]
    PAGES.mkdir(parents=True, exist_ok=True)
    path = PAGES / f"{name}.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def prose(
    name: str, families: Mapping[str, Family], *, states_b: bool = True, **numbers: int
) -> str:
    """The page's text before its tables: its template, with the sizes of families.

    `states_b` is whether each family's plans have its own b.
    """
    shapes = "\n".join(
        f"- {family}: {one.shape}; {one.depth} blocks of those that grow, "
        f"{num_parameters(family, one.depth) / 1e6:.4g} M parameters"
        + (f"; b = {one.micro_batch}" if states_b else "")
        for family, one in families.items()
    )
    text = (HERE / f"{name}.txt").read_text()
    return text.format(shapes=shapes, **numbers)


def around(known: Circumstances) -> str:
    """Date, versions and machine, in one sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in known.versions.items())
    machine = known.machine
    return (
        f"Measured {known.date[:10]} with {versions}, on {machine['cores']} cores of "
        f"{machine['processor']} with {at_least(int(machine['memory_bytes']))}."
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
