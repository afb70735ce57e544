"""`plimsoll support`: which models are known, and how one of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import TYPE_CHECKING

import click
from rich.progress import track

from plimsoll_cli.options.model import task_option, trust_option
from plimsoll_cli.options.types import MODEL
from plimsoll_cli.output.console import Output, at_work, output_option, print_json, say
from plimsoll_cli.output.tables import print_table, table_of

if TYPE_CHECKING:
    from plimsoll_profiler.reading.readings import Reading
    from plimsoll_profiler.reading.survey import Finding

SHARE = {
    "all": "share all layers",
    "some": "share some layers",
    "none": "have layers whole",
}
LONGEST_REASON = 90
"""Letters of a reason in a table."""


@click.command()
@click.argument("model", required=False, type=MODEL)
@click.option(
    "--all",
    "is_survey",
    is_flag=True,
    help="Read every kind of model of the installed transformers and torchvision, each "
    "with its default sizes; takes minutes.",
)
@task_option
@trust_option
@output_option
def support(
    model: str | None,
    is_survey: bool,
    task: str | None,
    trust_remote_code: bool | None,
    output: str,
) -> None:
    """List the models that are known by name, or show how MODEL is read.

    MODEL is the folder or file of a config.json, a name of the list, org/name of the
    hub, or torchvision:NAME.
    """
    if model is not None and is_survey:
        raise click.UsageError("--all reads all models: leave MODEL away, or --all")
    if model is None and task is not None:
        raise click.UsageError("--task is of one model: name it, or leave --task away")
    is_json = output == Output.JSON
    if is_survey:
        show_survey(is_json=is_json)
    elif model is None:
        show_bundled(is_json=is_json)
    else:
        show_reading(
            model, task, trust_remote_code=bool(trust_remote_code), is_json=is_json
        )


def show_bundled(*, is_json: bool) -> None:
    """Print the models that are known by name."""
    # Imported here, for the other verbs do without transformers.
    from plimsoll_profiler.reading.readings import known_models  # noqa: PLC0415

    models = known_models()
    if is_json:
        print_json(models)
        return
    rows = [
        {
            "MODEL": name,
            "KIND": one["configuration"]["model_type"],
            "PARAMETERS": f"{one['parameters']:,}",
            "SIZES FROM": one["source"],
        }
        for name, one in models.items()
    ]
    table = table_of(rows, left=("MODEL", "KIND", "SIZES FROM"))
    print_table(table, less_important=("SIZES FROM",))


def show_reading(
    model: str, task: str | None, *, trust_remote_code: bool, is_json: bool
) -> None:
    """Print how one model is read."""
    from plimsoll_profiler.reading.readings import read_model  # noqa: PLC0415

    with at_work(f"reading {model}"):
        found = read_model(model, task, trust_remote_code=trust_remote_code)
    if is_json:
        print_json(asdict(found))
        return
    say(
        f"{model}: {found.model_type}, {found.num_parameters:,} parameters, "
        f"{found.family}",
        "",
    )
    rows = [
        {
            "LAYER": one.kind,
            "COUNT": str(one.count),
            "PARAMETERS": f"{one.num_parameters:,}",
            "TENSOR GROUPS": "share it" if one.can_split else "have it whole",
            "SEQUENCES": "split" if one.can_split_sequence else "whole",
        }
        for one in found.layers
    ]
    table = table_of(rows, left=("LAYER", "TENSOR GROUPS", "SEQUENCES"))
    print_table(table, less_important=("SEQUENCES",))
    say("", *notes_on(found))


def notes_on(found: Reading) -> list[str]:
    """Notes on a model, beside its layers."""
    head = (
        "in pieces, where the last layer recomputes"
        if found.has_loss_in_pieces
        else "at once"
    )
    return [
        *(f"shared: {tie}" for tie in found.ties),
        *(
            [f"head and loss take the tokens of a sample {head}"]
            if found.family.takes_tokens
            else []
        ),
        *([f"tensor groups: {found.not_split}"] if found.not_split else []),
    ]


def show_survey(*, is_json: bool) -> None:
    """Print which models of the installed transformers can be read."""
    from plimsoll_profiler.reading.survey import num_kinds, survey  # noqa: PLC0415

    count = num_kinds()
    found = list(track(survey(), "reading", count, transient=True, disable=is_json))
    if is_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        {
            "FAMILY": one.family.value,
            "KIND": one.model_type,
            "LAYERS": str(sum(x.count for x in one.reading.layers)),
            "KINDS OF LAYER": str(len(one.reading.layers)),
            "TENSOR GROUPS": SHARE[one.reading.shared],
        }
        for one in found
        if one.reading is not None
    ]
    table = table_of(rows, left=("FAMILY", "KIND", "TENSOR GROUPS"))
    print_table(table, less_important=("KINDS OF LAYER",))
    say("", *survey_lines(found))


def survey_lines(found: Sequence[Finding]) -> list[str]:
    """Counts, and why the others cannot be read."""
    lines = [counts_line("all", found)]
    for family in dict.fromkeys(one.family for one in found):
        of_family = [one for one in found if one.family == family]
        lines.append(counts_line(family.value, of_family))
        for one in of_family:
            if one.refusal:
                lines.append(f"refused {one.model_type}: {short(one.refusal)}")
            if one.fault:
                lines.append(f"FAILED {one.model_type}: {short(one.fault)}")
    return lines


def counts_line(family: str, found: Sequence[Finding]) -> str:
    """How many kinds of a family are read, and how many are not."""
    read = sum(one.reading is not None for one in found)
    refused = sum(bool(one.refusal) for one in found)
    return (
        f"{family}: read {read} of {len(found)} kinds of models, refused {refused}, "
        f"failed {len(found) - read - refused}"
    )


def short(text: str) -> str:
    """A reason as long as a line."""
    return shorten(text, LONGEST_REASON)
