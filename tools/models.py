"""Writes docs/models.md: which models of the installed libraries can be read.

In: the survey of all families, and the models that are bundled. Out: a table of each,
and why the others are refused. Run by `make models`, which takes ten minutes: with a
new release of `transformers` or `torchvision`, or where adapters have changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from plimsoll_profiler.reading.survey import Finding, survey
from plimsoll_profiler.reading.tasks import Family
from plimsoll_trainer.huggingface.configurations import bundled
from tools.formats import ROOT, table

TARGET = ROOT / "docs" / "models.md"
ADDRESS = re.compile(r"\(?https?://\S+\)?| at /\S+|;? --debug shows the traceback")
"""In messages, of the web and of this machine; the page has none of them."""
SHARED = {"all": "all layers", "some": "some layers", "none": "-"}
LONGEST_REASON = 200
"""Letters."""
TITLES = {
    Family.TEXT_GENERATION: "Causal language models",
    Family.FILL_MASK: "Masked language models",
    Family.SEQUENCE_CLASSIFICATION: "Classifiers of sequences",
    Family.IMAGE_CLASSIFICATION: "Classifiers of images",
    Family.TORCHVISION: "Classifiers of torchvision",
}
NOTES = {
    Family.FILL_MASK: "Samples are not padded: every token is real.",
    Family.SEQUENCE_CLASSIFICATION: (
        "Encoders alone, with samples that are not padded. A causal model tells "
        "sequences apart by its last token before the padding, and is left out."
    ),
    Family.IMAGE_CLASSIFICATION: (
        "A model with stages has layers between them, in which it merges patches or "
        "the like."
    ),
    Family.TORCHVISION: (
        "By `torchvision:NAME`, with 1000 classes and images of 224 x 224. BatchNorm "
        "is not recomputed, and the micro-batch of such a model is for a person to "
        "choose."
    ),
}
HOW = """\
`plimsoll support MODEL` shows how one model is read, `plimsoll support --all` reads all
kinds. A model is of the family of its configuration; `--task` asks for another one.

## By name

`plimsoll plan` knows the sizes of these models, each from public code or a paper. Their
weights are not here, and nobody asks the hub.
"""


def page(findings: Sequence[Finding]) -> str:
    """The page."""
    return "\n".join(lines(findings)) + "\n"


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield its lines."""
    libraries = ", ".join(
        f"{name} {version(name)}" for name in ("transformers", "torchvision", "torch")
    )
    yield f"# Models\n\nMade by `make models` with {libraries}; do not edit.\n"
    yield HOW
    header = ("model", "kind", "task", "parameters", "sizes from")
    yield from table(header, bundled_rows())
    yield "\n## Families\n"
    header = ("family", "kinds", "read", "refused", "failed otherwise")
    yield from table(header, (count_row(family, findings) for family in Family))
    for family in Family:
        found = [one for one in findings if one.family == family]
        yield from family_lines(family, found)


def family_lines(family: Family, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines about one family."""
    yield f"\n## {TITLES[family]}\n"
    if family in NOTES:
        yield f"{NOTES[family]}\n"
    header = ("kind", "layers", "kinds of layer", "shared by tensor groups")
    yield from table(header, read_rows(findings))
    rows = [
        (f"`{one.model_type}`", reason(one.refusal or one.fault))
        for one in findings
        if one.reading is None
    ]
    if rows:
        yield "\nRefused:\n"
        yield from table(("kind", "reason"), rows)


def count_row(family: Family, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Counts of one family."""
    found = [one for one in findings if one.family == family]
    read = sum(one.reading is not None for one in found)
    refused = sum(bool(one.refusal) for one in found)
    numbers = (len(found), read, refused, len(found) - read - refused)
    return TITLES[family], *map(str, numbers)


def bundled_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each model that is bundled."""
    for name, one in bundled().items():
        kind, source = one["configuration"]["model_type"], one["source"]
        task = one.get("task", Family.TEXT_GENERATION.value)
        yield f"`{name}`", f"`{kind}`", task, f"{one['parameters']:,}", source


def read_rows(findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind that is read."""
    for one in findings:
        if one.reading is None:
            continue
        count = sum(layer.count for layer in one.reading.layers)
        kinds = len(one.reading.layers)
        yield f"`{one.model_type}`", str(count), str(kinds), SHARED[one.reading.shared]


def reason(text: str) -> str:
    """A refusal as a cell."""
    line = " ".join(ADDRESS.sub("", text).split()).replace("|", "or")
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."


if __name__ == "__main__":
    TARGET.write_text(page(list(survey())))
