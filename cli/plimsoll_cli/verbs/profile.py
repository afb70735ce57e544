"""`plimsoll profile`: cost of a workload, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click
from rich.table import Table

from plimsoll_cli.options.files import require_places, write
from plimsoll_cli.options.types import PATH, ByteQuantity, JsonObject
from plimsoll_cli.output.console import Output, console, output_option
from plimsoll_cli.output.profiling import with_progress
from plimsoll_cli.output.tables import format_bytes, format_flop, print_table, table_of
from plimsoll_planner.engines import GRAPH_MICRO_BATCHES, TENSOR_DEGREES
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.carried_bytes import carried_bytes
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    ProbeOutcome,
)
from plimsoll_planner.text.counts import counted
from plimsoll_planner.text.explain import uncounted_text
from plimsoll_planner.units import number_text
from plimsoll_profiler.profiling.request import MICRO_BATCHES, ProfileRequest

LESS_IMPORTANT = ("RECOMPUTED", "FLOP", "PARAMETERS", "FORWARD", "BACKWARD", "SAVED")


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between them."""

    name = "numbers"

    def __init__(self, fewest: int, example: str) -> None:
        """Take so many or more."""
        self.fewest, self.example = fewest, example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Different numbers from 1 on, in order."""
        if isinstance(value, tuple):
            return cast("tuple[int, ...]", value)
        words = str(value).split(",")
        found = {int(word) for word in words if word.strip().isdecimal()}
        if len(found) < max(len(words), self.fewest) or min(found) < 1:
            self.fail(f"got {value}, allowed are {self.example}", param, ctx)
        return tuple(sorted(found))


@click.command()
@click.argument("entrypoint")
@click.option(
    "--args",
    "arguments",
    type=JsonObject(),
    default="{}",
    help="Keyword arguments of the entry point, as a JSON object.",
)
@click.option(
    "--device",
    type=click.Choice([kind.value for kind in DeviceKind]),
    default=DeviceKind.CUDA.value,
    show_default=True,
    help="What the job will train on.",
)
@click.option(
    "--source",
    type=click.Choice([Source.TRACED.value, Source.MEASURED.value]),
    default=Source.TRACED.value,
    show_default=True,
    help="Trace without the device, or measure on one that is here.",
)
@click.option(
    "--micro-batches",
    type=Counts(2, "several, as 1,2,4"),
    default=",".join(map(str, MICRO_BATCHES)),
    show_default=True,
    help="Samples of the probes; no plan goes below the smallest.",
)
@click.option(
    "--tensor-degrees",
    type=Counts(1, "whole numbers from 1 on, as 1,2"),
    default=",".join(map(str, TENSOR_DEGREES)),
    show_default=True,
    help="By how many GPUs layers are shared, where they can be; 1 alone is quicker.",
)
@click.option(
    "--graph-micro-batches",
    type=Counts(1, "whole numbers from 1 on, as 1,2"),
    default=(),
    metavar="NUMBERS",
    help="Samples of micro-batches whose operators are measured one by one, for plans "
    f"with --engine graph, as {','.join(map(str, GRAPH_MICRO_BATCHES))}.",
)
@click.option(
    "--memory",
    type=ByteQuantity(),
    help="Of the emulated device that measures, as in 4GiB; none: no limit.",
)
@click.option(
    "--out",
    type=PATH,
    default="profile.json",
    show_default=True,
    help="Where the profile goes.",
)
@output_option
def profile(  # noqa: PLR0913, PLR0917 - click passes each option
    entrypoint: str,
    arguments: str,
    device: str,
    source: str,
    micro_batches: tuple[int, ...],
    tensor_degrees: tuple[int, ...],
    graph_micro_batches: tuple[int, ...],
    memory: int | None,
    out: Path,
    output: str,
) -> None:
    """Find out what the layers of ENTRYPOINT (package.module:function) cost.

    Each kind of layer is run alone, at a few micro-batches: kept, recomputed, and with
    what it keeps in the memory of the machine. A trace needs no GPU: it counts bytes
    and work, and seconds are estimated later from an offer's rates. The plan is made
    from the profile by `plimsoll plan`.
    """
    is_capped = (device, source) == (DeviceKind.EMULATED, Source.MEASURED)
    if memory is not None and not is_capped:
        raise click.UsageError(
            "--memory is that of an emulated device that measures: add --device "
            "emulated --source measured, or leave it away"
        )
    request = ProfileRequest(
        entrypoint=entrypoint,
        arguments=arguments,
        device_kind=DeviceKind(device),
        source=Source(source),
        micro_batches=micro_batches,
        tensor_degrees=tensor_degrees,
        graph_micro_batches=graph_micro_batches,
        device_memory_bytes=memory or 0,
    )
    require_places({"--out": out})
    made = with_progress(request)
    write(out, made)
    if output == Output.JSON:
        click.echo(to_text(made))
    else:
        show(made, out)


def show(made: ModelProfile, out: Path) -> None:
    """Print what people want to know first: which layers weigh what."""
    print_table(cost_table(made), less_important=LESS_IMPORTANT)
    page = console()
    lost = sum(probe.outcome is not ProbeOutcome.COMPLETED for probe in made.probes)
    if lost:
        probes = counted(lost, "probe")
        page.print(f"warning: {probes} ran out of memory; intervals are wider")
    if uncounted := uncounted_text(made, is_measured=made.costs.is_timed):
        page.print(f"warning: {uncounted}")
    if made.not_compared:
        names = ", ".join(made.kinds[kind] for kind in made.not_compared)
        page.print(f"warning: splits of {names} were not compared with whole layers")
    for why, degrees in left_out(made).items():
        page.print(f"left out: tensor degree {', '.join(degrees)}: {why}")
    if made.carried.name:
        page.print(carried_text(made))
    if made.graphs:  # those that are missing here were left out
        sizes = ", ".join(str(one.micro_batch) for one in made.graphs)
        page.print(f"operators measured at micro-batch {sizes}")
    how = "timed" if made.costs.is_timed else "not timed: an offer's rates will be used"
    layers = counted(len(made.layers.name), "layer")
    page.print(f"{layers}, {how}; written to {out}")


def carried_text(made: ModelProfile) -> str:
    """How many values layers carry past others, and the most of them at a cut."""
    size = len(made.layers.name)
    crossing = carried_bytes(made.carried, size, Bound.EXPECTED, 1).crossing
    cut = int(crossing.argmax())
    most, name = format_bytes(int(crossing[cut])), made.layers.name[cut]
    values = counted(len(made.carried.name), "value")
    return (
        f"{values} carried past other layers: most of one sample is {most}, at {name}"
    )


def left_out(made: ModelProfile) -> dict[str, list[str]]:
    """Tensor degrees that cannot be had, by why."""
    found: dict[str, list[str]] = {}
    for one in made.not_split:
        sequences = " with split sequences" if one.sequence_parallel else ""
        found.setdefault(one.why, []).append(f"{one.tensor_degree}{sequences}")
    return found


def cost_table(made: ModelProfile) -> Table:
    """One row for each kind of layer and way to share it, at one sample."""
    rows = [cells(made, row, kind) for row, kind in enumerate(made.costs.kind)]
    table = table_of(rows, left=("KIND",))
    table.columns[0].max_width, table.columns[0].no_wrap = 40, False
    where = ", on each device that shares a layer" if len(made.variants) > 1 else ""
    table.caption = (
        f"bytes and work of one sample{where}; STATE: parameters, gradients, buffers "
        "and optimizer; PEAK: of the backward pass; FLOP: of both passes"
    )
    return table


def cells(made: ModelProfile, row: int, kind: int) -> dict[str, str]:
    """Cells of one kind of layer."""
    costs = made.costs
    boundary = costs.boundary.at(row, 1).expected_bytes
    parameters, gradients = costs.parameter_bytes[row], costs.gradient_bytes[row]
    buffers, optimizer = costs.buffer_bytes[row], costs.optimizer_bytes[row]
    saved = costs.kept.saved.at(row, 1).expected_bytes
    recomputed = costs.recomputed.saved.at(row, 1).expected_bytes
    peak = costs.kept.backward_transient_at_end.at(row, 1).expected_bytes
    work = (costs.forward_work, costs.backward_work)
    flop = sum(w.flop_constant[row] + w.flop_per_sample[row] for w in work)
    timed = {"FORWARD": costs.forward, "BACKWARD": costs.backward}
    variant = made.variants[costs.variant[row]]
    shared = {"TENSOR": str(variant.tensor_degree), "SEQUENCES": str(variant.sequences)}
    return {
        "KIND": made.kinds[kind],
        "LAYERS": str(made.layers.kind.count(kind)),
        **(shared if len(made.variants) > 1 else {}),
        "PARAMETERS": format_bytes(parameters),
        "STATE": format_bytes(parameters + gradients + buffers + optimizer),
        "SAVED": format_bytes(saved + boundary),
        "RECOMPUTED": format_bytes(recomputed + boundary),
        "PEAK": format_bytes(peak),
        "FLOP": format_flop(flop),
    } | {
        name: f"{number_text(1000 * seconds.at(row, 1).expected_s, 3)} ms"
        for name, seconds in timed.items()
        if seconds
    }
