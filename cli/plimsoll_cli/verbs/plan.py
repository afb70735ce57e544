"""`plimsoll plan`: the fewest (or cheapest) devices for a profile, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options.emitted import (
    EMIT,
    TRAIN_DATA,
    asked_workload,
    called,
    check_emitted,
)
from plimsoll_cli.options.emitted import emit as write_manifest
from plimsoll_cli.options.files import require_places, write, write_text
from plimsoll_cli.options.grid import grid_limit_s, grid_options
from plimsoll_cli.options.model import (
    model_options,
    profile_of,
    require_measured,
    training_of,
)
from plimsoll_cli.options.problem import read_problem
from plimsoll_cli.options.question import question_options
from plimsoll_cli.options.types import MODEL, PATH, WholeNumber
from plimsoll_cli.output.answer_tables import (
    ALTERNATIVES_LESS_IMPORTANT,
    alternatives_table,
    plan_line,
)
from plimsoll_cli.output.console import (
    Output,
    at_work,
    console,
    output_option,
    print_json,
    say,
)
from plimsoll_cli.output.frontier_plot import curve_picture, legend
from plimsoll_cli.output.frontier_table import (
    LESS_IMPORTANT,
    curve_lines,
    curve_of,
    curve_table,
)
from plimsoll_cli.output.grid_search import with_grid
from plimsoll_cli.output.grid_table import (
    grid_lines,
    kind_less_important,
    kind_table,
    kind_title,
    kinds_of,
)
from plimsoll_cli.output.placement_table import print_plan
from plimsoll_cli.output.profiling import with_progress
from plimsoll_cli.output.rate_floor import RateFloor
from plimsoll_cli.output.tables import print_table
from plimsoll_planner.engines import GRAPH
from plimsoll_planner.records.frontier import FEWEST_SPEEDS, NUM_SPEEDS
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import gpus_text
from plimsoll_planner.text.explain import (
    certificate_lines,
    ending_text,
    infeasible_lines,
    why_text,
)
from plimsoll_planner.text.plans import training_text
from plimsoll_planner.text.space import space_text

if TYPE_CHECKING:
    from plimsoll_planner.search.replayed import ReplayedAnswer

MOST_SPEEDS = 100
"""That `--frontier` looks at; a picture shows no more."""


@click.command()
@click.argument("model", type=MODEL)
@model_options
@question_options()
@click.option("--out", type=PATH, help="Write the plan here, as JSON.")
@click.option(
    "--solution",
    type=PATH,
    help="Write the whole answer with its certificate here, as JSON.",
)
@click.option(
    EMIT,
    type=PATH,
    help="Write the manifest that asks this here, for `plimsoll run` and `kubectl "
    "apply`; for a model of transformers.",
)
@click.option(
    TRAIN_DATA,
    multiple=True,
    metavar="FILE",
    help="Data to fine-tune the weights of MODEL on, as the manifest names it; several "
    "times for several files.",
)
@click.option(
    "--replay",
    metavar="ENTRYPOINT",
    help="Replay the plan's ranks with this workload (package.module:function), and "
    "search again where they hold something else.",
)
@click.option(
    "--report",
    type=PATH,
    help="Write a page about the answer here: memory, schedule, proof, alternatives.",
)
@grid_options("with --report")
@click.option(
    "--frontier",
    is_flag=True,
    help="Search on: how much less memory as many GPUs need at lower speeds.",
)
@click.option(
    "--frontier-points",
    type=WholeNumber(min=FEWEST_SPEEDS, max=MOST_SPEEDS),
    help="How many speeds --frontier looks at; more take longer.  "
    f"[default: {NUM_SPEEDS}]",
)
@output_option
def plan(
    model: str,
    out: Path | None,
    solution: Path | None,
    emit: Path | None,
    train_data: tuple[str, ...],
    replay: str | None,
    report: Path | None,
    output: str,
    **options: Any,
) -> None:
    """Find the fewest GPUs that the training of MODEL fits on, and prove it.

    MODEL is a profile that `plimsoll profile` has written; or a model of transformers:
    the folder or file of its config.json, a name that `plimsoll support` lists, or
    org/name of the hub.
    """
    training, listed = training_of(options), options["offers"]
    require_measured(model, options["engine"])
    check_emitted(emit, model, train_data, options | {"blocks": training.num_blocks})
    require_places(
        {"--out": out, "--solution": solution, "--report": report, EMIT: emit},
        inputs=(Path(model), *filter(None, (listed,)), *options["overhead"]),
    )
    more = more_of(options, has_page=report is not None, has_replay=replay is not None)
    asked = None if emit is None else asked_workload(model, training, train_data)
    problem = read_problem(profile_of(model, training, with_progress), options)
    if emit is not None and asked is not None:
        write_manifest(emit, asked, problem, listed)
    found: ReplayedAnswer | None = None
    if replay is None:
        with at_work("searching"):
            answer = answer_to(problem)
    else:
        found = replayed_answer(problem, replay)
        problem, answer = found.problem, found.answer
    answer = with_more(problem, answer, more)
    if report is not None:
        write_text(report, page_of(called(model), problem, answer))
    if out is not None and isinstance(answer, Solution):
        write(out, answer.plan)
    if solution is not None:
        write(solution, answer)
    if output == Output.JSON:
        print_json(answer.to_json())
    else:
        show(problem, answer)
        say(*replay_lines(found) if found else ())
        show_more(problem, answer, more)
        say(*([f"report: {report}"] if report is not None else []))
    if isinstance(answer, Infeasible) or answer.is_proven_unfit:
        click.get_current_context().exit(ExitCode.NO_PLAN)


@dataclass(frozen=True, kw_only=True, slots=True)
class More:
    """Searches that follow the answer, if they are asked for."""

    num_speeds: int | None
    """Of memory against speed; None: not asked for."""
    grid_s: float | None
    """Seconds for a grid; None: not asked for."""


def more_of(options: dict[str, Any], *, has_page: bool, has_replay: bool) -> More:
    """The options of what is searched besides, taken out of what click has parsed.

    Raises:
        UsageError: says which of them to leave away.
    """
    frontier, num_speeds = options.pop("frontier"), options.pop("frontier_points")
    check_frontier(is_asked=frontier, num_speeds=num_speeds, has_replay=has_replay)
    if frontier and options["engine"] == GRAPH.engine:
        raise click.UsageError(
            f"--frontier is of layers, and engine {GRAPH.engine} places operators; "
            "leave one of them away"
        )
    return More(
        num_speeds=(num_speeds or NUM_SPEEDS) if frontier else None,
        grid_s=grid_limit_s(
            is_asked=options.pop("grid"),
            seconds=options.pop("grid_seconds"),
            is_usual=has_page,
        ),
    )


def with_more(
    problem: Problem, answer: Solution | Infeasible, more: More
) -> Solution | Infeasible:
    """The answer with what else was asked for."""
    if more.num_speeds is not None and isinstance(answer, Solution):
        with at_work("searching at other speeds"):
            answer = with_frontier(problem, answer, more.num_speeds)
    if more.grid_s is not None:
        answer = with_grid(problem, answer, more.grid_s)
    return answer


def check_frontier(*, is_asked: bool, num_speeds: int | None, has_replay: bool) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: says which one to leave away.
    """
    if num_speeds is not None and not is_asked:
        raise click.UsageError("--frontier-points: needs --frontier beside it")
    if is_asked and has_replay:
        raise click.UsageError(
            "--frontier is of predicted peaks, and --replay corrects those of one "
            "plan; leave one of them away"
        )


def answer_to(problem: Problem) -> Solution | Infeasible:
    """Search; imported here, for the other verbs need no numpy."""
    from plimsoll_planner.search.answer import solve  # noqa: PLC0415 - see above

    return solve(problem)


def with_frontier(problem: Problem, answer: Solution, num_speeds: int) -> Solution:
    """Search as many GPUs at other speeds; imported here for the same reason."""
    from plimsoll_planner.search.frontier import frontier_of  # noqa: PLC0415

    return replace(answer, frontier=frontier_of(problem, answer.plan, num_speeds))


def page_of(name: str, problem: Problem, answer: Solution | Infeasible) -> str:
    """Page about an answer; imported here, for other plans need no templates."""
    from plimsoll_cli.report.page import report_html  # noqa: PLC0415 - see above
    from plimsoll_cli.state.run_record import planned_record  # noqa: PLC0415

    return report_html(planned_record(name, problem, answer))


def replayed_answer(problem: Problem, entrypoint: str) -> ReplayedAnswer:
    """Search and replay in turns, with a line for what is under way."""
    from plimsoll_planner.search.replayed import solve_with_replay  # noqa: PLC0415
    from plimsoll_profiler.ranks.replay_process import replay_plan  # noqa: PLC0415

    with Console(stderr=True).status("searching") as status:

        def advance(done: int, total: int) -> None:
            status.update(f"replaying ranks ({done} of {total})")

        def replay(best: HybridPlan) -> Replay:
            return replay_plan(best, problem.profile, entrypoint, advance)

        return solve_with_replay(problem, replay)


def replay_lines(found: ReplayedAnswer) -> list[str]:
    """Lines about the result of the replay."""
    if not found.rounds:
        return []
    last = found.rounds[-1]
    noun = "stage" if last.plan.placement is None else "device"
    if found.is_certified:
        again = len(found.rounds) - 1
        rounds = f", after {again} searches with wider intervals" if again else ""
        return [
            f"replayed on torch {last.replay.torch_version}: every rank agrees{rounds}"
        ]
    return [
        f"replay disagrees: a rank of {noun} {one.stage} holds {one.replayed_bytes:,} "
        f"bytes, predicted {one.predicted.lower_bytes:,} to "
        f"{one.predicted.upper_bytes:,}; this plan is not certified"
        for one in last.disagreements
    ]


def show(problem: Problem, answer: Solution | Infeasible) -> None:
    """Print the answer for people."""
    lines = [f"warning: {warning}" for warning in answer.warnings]
    lines = [f"searched: {space_text(answer.certificate.space)}", *lines]
    if isinstance(answer, Infeasible):
        say(*infeasible_lines(answer), *lines)
        return
    best, steps = answer.plan, problem.num_steps
    count = gpus_text(best.num_gpus, best.offers)
    say(f"{count} ({ending_text(answer)})", plan_line(best))
    say(*([training_text(best, steps)] if steps else []))
    say(why_text(problem, answer), *certificate_lines(answer.certificate), "")
    memory = problem.limits.usable_bytes(best.offers[0].device_memory_bytes)
    print_plan(best, memory)
    say("", *lines)
    if answer.alternatives:
        say("", "what else could be had:")
        print_table(
            alternatives_table(
                answer.alternatives, steps, RateFloor.of(answer, problem)
            ),
            less_important=ALTERNATIVES_LESS_IMPORTANT,
        )


def show_more(problem: Problem, answer: Solution | Infeasible, more: More) -> None:
    """Print what was searched besides the answer."""
    if more.num_speeds is not None and isinstance(answer, Solution):
        show_frontier(answer)
    show_grid(problem, answer)


def show_frontier(answer: Solution) -> None:
    """Print memory against speed: a picture, a table, sentences."""
    say("", "memory against speed:")
    if answer.frontier is None:
        count = gpus_text(answer.plan.num_gpus, answer.plan.offers)
        say(f"no plan of {count} fits for sure, at no speed")
        return
    page, curve = console(), curve_of(answer.frontier, answer.plan)
    if picture := curve_picture(curve, page.width):
        for line in ["", *picture]:
            page.print(line, soft_wrap=True)
        say(legend(curve), "")
    print_table(curve_table(curve), less_important=LESS_IMPORTANT)
    say("", *curve_lines(curve))


def show_grid(problem: Problem, answer: Solution | Infeasible) -> None:
    """Print other counts and micro-batches, a table for each kind of device."""
    if answer.grid is None:
        return
    say("", "other counts and micro-batches:")
    for kind in kinds_of(answer, problem):
        say("", kind_title(kind))
        print_table(kind_table(kind), less_important=kind_less_important(kind))
    say("", *grid_lines(answer.grid))
