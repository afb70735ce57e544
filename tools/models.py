"""Writes docs/models.md: which models of the installed `transformers` can be read.

In: the survey of all causal language models, and the models that are bundled. Out: a
table of each, and why the others are refused. Run by `make models`, which takes two
minutes: with a new release of `transformers`, or where adapters have changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from plimsoll_profiler.reading.survey import Finding, survey
from plimsoll_trainer.huggingface.configurations import bundled
from tools.formats import ROOT, table

TARGET = ROOT / "docs" / "models.md"
ADDRESS = re.compile(r"\(?https?://\S+\)?")
"""In messages of libraries; the page has none of them."""
SHARED = {"all": "all layers", "some": "some layers", "none": "-"}
LONGEST_REASON = 200
"""Letters."""
HOW = """\
`plimsoll support MODEL` shows how one model is read, `plimsoll support --all` reads all
kinds.

## By name

`plimsoll plan` knows the sizes of these models, each from public code or a paper. Their
weights are not here, and nobody asks the hub.
"""


def page(findings: Sequence[Finding]) -> str:
    """The page."""
    return "\n".join(lines(findings)) + "\n"


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield its lines."""
    read = [one for one in findings if one.reading is not None]
    refused = [one for one in findings if one.refusal]
    failed = len(findings) - len(read) - len(refused)
    libraries = f"transformers {version('transformers')}, torch {version('torch')}"
    yield f"# Models\n\nMade by `make models` with {libraries}; do not edit.\n"
    yield HOW
    yield from table(("model", "kind", "parameters", "sizes from"), bundled_rows())
    yield (
        f"\n## By kind\n\nOf {len(findings)} kinds of causal language models in "
        f"`transformers`, each with its default sizes, {len(read)} are read, "
        f"{len(refused)} are refused with a reason, {failed} fail otherwise.\n"
    )
    header = ("kind", "layers", "kinds of layer", "shared by tensor groups")
    yield from table(header, read_rows(read))
    yield "\n## Refused\n"
    rows = ((f"`{one.model_type}`", reason(one.refusal)) for one in refused)
    yield from table(("kind", "reason"), rows)


def bundled_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each model that is bundled."""
    for name, one in bundled().items():
        kind, source = one["configuration"]["model_type"], one["source"]
        yield f"`{name}`", f"`{kind}`", f"{one['parameters']:,}", source


def read_rows(read: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind that is read."""
    for one in read:
        assert one.reading is not None  # noqa: S101 - see `page`
        count = sum(layer.count for layer in one.reading.layers)
        kinds = len(one.reading.layers)
        yield f"`{one.model_type}`", str(count), str(kinds), SHARED[one.reading.shared]


def reason(text: str) -> str:
    """A refusal as a cell."""
    line = " ".join(ADDRESS.sub("", text).split()).replace("|", "or")
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."


if __name__ == "__main__":
    TARGET.write_text(page(list(survey())))
