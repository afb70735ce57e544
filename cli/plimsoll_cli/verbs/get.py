"""`plimsoll get`: plans of a state directory or a cluster, and where each stands."""

from __future__ import annotations

import asyncio
import time

import click

from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import format_bytes, print_table, table_of
from plimsoll_cli.state.shown_plan import ShownPlan, plan_json, state_text
from plimsoll_cli.state.source import Place, everywhere_option, place_options
from plimsoll_planner.text.plans import duration_text

LESS_IMPORTANT = ("AGE", "ATTEMPT", "ERROR", "PEAK")
LEFT = ("NAMESPACE", "NAME", "STATE")


@click.command()
@place_options
@everywhere_option
@output_option
def get(place: Place, output: str) -> None:
    """List the plans, the newest first."""
    source = place.source()
    found = asyncio.run(source.plans())
    if output == Output.JSON:
        print_json([plan_json(one) for one in found])
    elif found:
        cells = [plan_cells(one, source.spans_namespaces) for one in found]
        left = [heading for heading in LEFT if heading in cells[0]]
        print_table(table_of(cells, left=left), less_important=LESS_IMPORTANT)
    else:
        say(source.nothing)


def plan_cells(plan: ShownPlan, spans_namespaces: bool) -> dict[str, str]:
    """The cells of one plan."""
    status, observed = plan.status, plan.status.observed
    namespace = {"NAMESPACE": plan.namespace} if spans_namespaces else {}
    return {
        **namespace,
        "NAME": plan.name,
        "STATE": state_text(plan),
        "DEVICES": str(status.plan.gpus) if status.plan else "-",
        "PEAK": format_bytes(observed.peak_bytes) if observed else "-",
        "ERROR": f"{observed.error_percent:.2g} %" if observed else "-",
        "ATTEMPT": str(status.attempt or "-"),
        "AGE": duration_text(time.time() - plan.created_s),
    }
