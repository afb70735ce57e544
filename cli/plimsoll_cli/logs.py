"""`plimsoll logs`: what the processes of a plan have said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import click

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.homes import home_option, open_old_home
from plimsoll_cli.option_types import COUNT, WholeNumber
from plimsoll_operator.brain.seen import ChildKind
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.tasks import END

POLL_S = 0.2


@click.command()
@click.argument("name")
@click.option("--attempt", type=COUNT, help="Which attempt.  [default: the latest]")
@click.option("--rank", type=WholeNumber(min=0), help="Which rank.  [default: all]")
@click.option(
    "--of",
    "kind",
    type=click.Choice([kind.value for kind in ChildKind]),
    default=ChildKind.TRAIN.value,
    show_default=True,
    help="Training, or what prepared it.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on until it ends.")
@home_option
def logs(
    name: str,
    attempt: int | None,
    rank: int | None,
    kind: str,
    follow: bool,
    home: Path,
) -> None:
    """Show what the ranks of the plan NAME have said, each line with its rank."""
    folder = asyncio.run(folder_of(home.absolute(), name, ChildKind(kind), attempt))
    pattern = "*" if rank is None else str(rank)
    if rank is not None and not list(folder.glob(f"{rank}.*")):
        raise NothingMatchesError(f"no rank {rank} in {folder}")
    read = dict.fromkeys(log_files(folder, pattern), 0)
    while True:
        is_over = not follow or (folder / END).exists() or not folder.exists()
        for path in read | dict.fromkeys(log_files(folder, pattern), 0):
            read[path] = show(path, read.get(path, 0))
        if is_over:
            return
        time.sleep(POLL_S)


async def folder_of(
    root: Path, name: str, kind: ChildKind, attempt: int | None
) -> Path:
    """Return where the newest child of a kind has its logs.

    Raises:
        NothingMatchesError: there is none.
    """
    async with open_old_home(root) as home:
        plan = await home.plan(name)
        place = home.folder.plan(plan.uid)
    children = Children(place.children)
    if kind is ChildKind.TRAIN and attempt is not None:
        choices = [f(kind, str(attempt)) for f in (children.folder, children.logs)]
    else:
        found = [
            *place.root.glob(f"children/{kind}-*"),
            *place.root.glob(f"logs/{kind}-*"),
        ]
        choices = sorted(found, key=begun_s, reverse=True)
    for folder in choices:
        if folder.is_dir():
            return folder
    which = f" {attempt}" if attempt else ""
    raise NothingMatchesError(f"{name} has no logs of {kind}{which} yet")


def begun_s(folder: Path) -> float:
    """Order the folders of children by their age."""
    return folder.stat().st_mtime


def log_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield what processes have said, by rank."""
    for suffix in ("out", "err"):
        yield from sorted(folder.glob(f"{pattern}.{suffix}"))


def show(path: Path, read_bytes: int) -> int:
    """Print what is new in a file; return how much of it was read."""
    if not path.exists():
        return read_bytes
    with path.open("rb") as file:
        file.seek(read_bytes)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        click.echo(f"[{path.stem}] {line}")
    return read_bytes + len(whole)
