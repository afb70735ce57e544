"""The report of a run as one HTML file that needs nothing besides itself.

In: a `RunRecord`. Out: text. Called by `plimsoll report --html`. Everything that is
computed stands in the views; the templates place it, and escape all of it.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from plimsoll_cli.output.scales import time_text
from plimsoll_cli.report import charts
from plimsoll_cli.report import schedule_chart as schedule
from plimsoll_cli.report.choices import choices_view
from plimsoll_cli.report.facts import attempt_rows, provenance, revision_rows
from plimsoll_cli.report.frontier import frontier_view
from plimsoll_cli.report.grid import grid_view
from plimsoll_cli.report.headline import headline_view
from plimsoll_cli.report.memory_chart import memory_view
from plimsoll_cli.report.placement import placement_view
from plimsoll_cli.report.proof import proof_view
from plimsoll_cli.report.run_charts import loss_chart, step_chart
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_planner.records.solution import Solution


def report_html(record: RunRecord) -> str:
    """The page."""
    plan, answer, problem = record.plan, record.answer, record.problem
    memory = None if plan is None else memory_view(record, plan)
    views = {
        "record": record,
        "plan": plan,
        "headline": headline_view(record, plan, memory),
        "memory": memory,
        "placement": plan and placement_view(record, plan),
        "schedule": plan and schedule.schedule_view(record.problem_of(plan), plan),
        "proof": None
        if answer is None
        else proof_view(answer, problem, plan, record.words),
        "choices": choices_view(answer, problem)
        if isinstance(answer, Solution)
        else None,
        "frontier": frontier_view(answer) if isinstance(answer, Solution) else None,
        "grid": None if answer is None else grid_view(answer, problem),
        "charts": [
            chart
            for chart in (loss_chart(record), plan and step_chart(record, plan))
            if chart
        ],
        "attempts": list(attempt_rows(record)),
        "revisions": list(revision_rows(record)),
        "facts": list(provenance(record, plan)),
        "chart_box": charts,
        "schedule_box": schedule,
        "time_text": time_text,
    }
    return environment().get_template("page.html").render(views)


def environment() -> Environment:
    """Renderer of the templates of this package."""
    return Environment(
        loader=PackageLoader("plimsoll_cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
