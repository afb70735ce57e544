"""`plimsoll run`: from a manifest to a trained model and a report, on this machine."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options.files import require_places, write_text
from plimsoll_cli.options.grid import grid_limit_s, grid_options
from plimsoll_cli.options.home import home_option
from plimsoll_cli.options.machines import DEVICES, Machines, offers_of
from plimsoll_cli.options.manifest import read_manifest
from plimsoll_cli.options.types import COUNT, PATH, ByteQuantity
from plimsoll_cli.output.answer_tables import mesh_text
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.grid_search import with_grid
from plimsoll_cli.output.plan_page import outcome_lines, plan_lines, show_answer
from plimsoll_cli.output.run_view import BAD, DONE, RunView
from plimsoll_cli.report.page import report_html
from plimsoll_cli.state.gather import keep_answer, record_of
from plimsoll_cli.state.liveness import Liveness
from plimsoll_cli.state.resolve import resolve_plan
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.state_dir import StateDir, open_state_dir
from plimsoll_operator.api.manifest import Manifest
from plimsoll_operator.api.spec import LaunchPolicy, Rehearse
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.local.backend import LocalBackend
from plimsoll_operator.backends.local.loop import Loop, Outcome
from plimsoll_operator.backends.local.proof import ProofRun, nothing_to_run, prove
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.errors import InvalidFieldError, InvalidInputError, one_line
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import counted
from plimsoll_planner.text.explain import reason_text
from plimsoll_profiler.entrypoint_path import require_module

EXIT_CODES = """
Exit codes: 0 trained, or planned where launch.policy is PlanOnly; 1 failed, a line or
Succeeded in the JSON says why; 2 no such option; 3 the manifest or an option breaks a
rule; 4 no plan fits; 5 stopped by `plimsoll cancel` or spec.suspend; 130 stopped by
Ctrl-C or SIGTERM.
"""


@click.command(epilog=EXIT_CODES)
@click.argument("manifest", type=PATH)
@click.option(
    "--device",
    type=click.Choice(list(DEVICES)),
    help="What to train on: cpu is emulated devices, processes whose tensors are "
    "counted and capped.  [default: cuda where there is a GPU]",
)
@click.option(
    "--devices",
    "num_devices",
    type=COUNT,
    help="How many devices there are.  [default: what this machine has]",
)
@click.option(
    "--device-memory",
    "memory_bytes",
    type=ByteQuantity(),
    help="Of each emulated device, as in 1GiB.  [default: a share of what is free]",
)
@click.option(
    "--offers",
    type=PATH,
    help="Other machines than this one: CSV, or JSON of Offer.",
)
@click.option(
    "--real-device-memory",
    type=ByteQuantity(),
    help="Let emulated devices have this, whatever is planned with: shows what follows "
    "when a device has less than it says.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="First run the fullest rank alone on one device, and plan around what it "
    "shows; as launch.rehearse Always.",
)
@click.option(
    "--prove",
    "prove_it",
    is_flag=True,
    help="Then run every mesh with one device fewer, and show that it does not fit.",
)
@click.option(
    "--report",
    type=PATH,
    help="Where the report goes.  [default: in the state directory]",
)
@grid_options("where launch.policy is PlanOnly")
@click.option("--anew", is_flag=True, help="Begin again, whatever is under way.")
@home_option
@output_option
def run(
    manifest: Path,
    real_device_memory: int | None,
    rehearse: bool,
    prove_it: bool,
    report: Path | None,
    anew: bool,
    home: Path,
    output: str,
    **others: Any,
) -> None:
    """Profile, plan, prove and train as MANIFEST asks.

    MANIFEST is a file of YAML with one TrainingPlan; - is stdin. Whatever stops it, the
    same command goes on where it was. Ctrl-C and `plimsoll cancel` let the ranks save
    first; Ctrl-C a second time ends them at once, and the next run goes on from the
    last checkpoint. Where the command itself is killed the ranks train on, and the next
    run finds them.

    A plan that has failed goes on from its last checkpoint, if it has one; one that is
    done begins anew. One under way takes up what was edited; while its ranks run that
    is spec.suspend and spec.runPolicy alone, or begin with --anew.
    """
    asked = read_manifest(manifest)
    grid_s = grid_limit_s(
        is_asked=others.pop("grid"),
        seconds=others.pop("grid_seconds"),
        is_usual=asked.spec.launch.policy is LaunchPolicy.PLAN_ONLY,
    )
    if rehearse:
        launch = replace(asked.spec.launch, rehearse=Rehearse.ALWAYS)
        asked = replace(asked, spec=replace(asked.spec, launch=launch))
    if prove_it and asked.spec.launch.policy is LaunchPolicy.PLAN_ONLY:
        rule = "only with launch.policy Launch: a proof is shown by running it"
        raise InvalidFieldError("--prove", prove_it, rule)
    require_module(asked.spec.workload.entrypoint)
    require_places({"--report": report}, inputs=(manifest,))
    typed = Machines(**others)
    offers = offers_of(asked, typed)
    if real_device_memory and offers[0].device_kind is not DeviceKind.EMULATED:
        rule = "for emulated devices alone: --device cpu"
        raise InvalidFieldError("--real-device-memory", real_device_memory, rule)
    view = RunView(is_quiet=output == Output.JSON)
    if asked.spec.search.offers.config_map and typed.is_given:
        view.say("spec.search.offers is not used: the machines were typed", BAD)
    options = RunOptions(
        machines=typed,
        offers=offers,
        real_memory_bytes=real_device_memory or 0,
        report=report,
        proves=prove_it,
        anew=anew,
        grid_s=grid_s,
    )
    code = asyncio.run(run_here(home.absolute(), asked, options, view))
    if output == Output.JSON:
        print_json(view.status.to_json() | view.outcome)
        for line in failure_lines(view.status):
            click.echo(f"plimsoll: {one_line(line)}", err=True)
    click.get_current_context().exit(code)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options of a run, beside its manifest."""

    machines: Machines
    offers: tuple[Offer, ...]
    """Offers that the machines on the command line stand for."""
    real_memory_bytes: int
    """Of emulated devices that have less than is planned with; else 0."""
    report: Path | None
    proves: bool
    anew: bool
    grid_s: float | None
    """Seconds for a grid of other counts and micro-batches; None: there is none."""


async def run_here(
    root: Path, asked: Manifest, options: RunOptions, view: RunView
) -> ExitCode:
    """Bring the plan of a manifest to its end, or as far as somebody lets it.

    Raises:
        InvalidInputError: what the spec asks for is not there.
    """
    async with open_state_dir(root) as home:
        with home.folder.locked(asked.name):
            plan = await resolve_plan(
                home, asked, options.machines, options.offers, anew=options.anew
            )
            return await run_plan(home, plan, options, view)


async def run_plan(
    home: StateDir, plan: StoredPlan, options: RunOptions, view: RunView
) -> ExitCode:
    """Run a plan; see `run_here`."""
    backend = home.backend(plan, options.real_memory_bytes)
    backend.folder.make()
    loop = Loop(backend=backend, watcher=view)

    def stop() -> None:
        text = "stopping: what trains saves and leaves; Ctrl-C again ends it at once"
        view.say("ending everything at once" if loop.is_stopping else text)
        loop.stop()

    with stopping_asks(stop):
        with view:
            outcome = await loop.run()
        if outcome is Outcome.REFUSED:
            raise InvalidInputError(view.complaint)
        record = await record_of(home, loop.plan, Liveness.GONE)
        if options.grid_s is not None:
            record = await with_kept_grid(home, record, options.grid_s)
        place = options.report or backend.folder.root / "report.html"
        write_text(place, report_html(record))
    view.outcome = outcome_json(record)
    if not view.is_quiet:
        print_outcome(record, view, place)
    code = exit_code(outcome, record, loop)
    if code is ExitCode.DONE and options.proves:
        code = await show_proof_or_stop(backend, record, view)
    if outcome is Outcome.OVER and code is not ExitCode.INTERRUPTED:
        await home.store.plans.set_told(loop.plan.uid)
    return code


async def with_kept_grid(
    home: StateDir, record: RunRecord, limit_s: float
) -> RunRecord:
    """The record with a grid, which is kept, so that it is not searched again."""
    problem, answer = record.problem, record.answer
    if problem is None or answer is None or answer.grid is not None:
        return record
    answer = await asyncio.to_thread(with_grid, problem, answer, limit_s)
    await keep_answer(home.store, problem, answer)
    return replace(record, answer=answer)


def failure_lines(status: Status) -> Iterator[str]:
    """Yield why a plan has failed: a log has it beside the JSON of the output."""
    ended = status.condition(ConditionType.SUCCEEDED)
    if ended is not None and ended.status is Truth.FALSE:
        yield f"failed: {': '.join(filter(None, (ended.reason, ended.message)))}"


def outcome_json(record: RunRecord) -> dict[str, object]:
    """For machines what the status has no room for: losses and the proof."""
    found: dict[str, object] = {
        "losses": [  # JSON has no number for a loss that is none
            {"step": step, "loss": loss if math.isfinite(loss) else None}
            for step, loss in record.losses
        ]
    }
    if record.answer is not None:
        certificate = record.answer.certificate
        found["proof"] = {
            "isProof": certificate.is_proof,
            "withinFixed": certificate.space.is_fixed_by_hand,
            "fewestUnfixed": (
                record.answer.fewest_unfixed
                if isinstance(record.answer, Solution)
                else None
            ),
            "isExhaustive": certificate.is_exhaustive,
            "fewestAtFloor": certificate.fewest_at_floor,
            "fewestAtAnySpeed": certificate.fewest_at_any_speed,
            "paidGpus": certificate.paid_gpus,
            "warnings": list(record.answer.warnings),
            "counts": [
                {
                    "gpus": count.num_gpus,
                    "verdict": count.verdict,
                    "reason": reason_text(count, certificate.space),
                }
                for count in certificate.counts
            ],
        }
    return found


async def show_proof_or_stop(
    backend: LocalBackend, record: RunRecord, view: RunView
) -> ExitCode:
    """Show the proof, until somebody asks for a stop."""
    showing = asyncio.create_task(show_proof(backend, record, view))
    with stopping_asks(showing.cancel):
        try:
            return await showing
        except asyncio.CancelledError:
            view.say("the proof was stopped; the plan itself is done", BAD)
            return ExitCode.INTERRUPTED


def print_outcome(record: RunRecord, view: RunView, report: Path) -> None:
    """Print what became of a plan."""
    if not (view.is_watched and sys.stdout.isatty()):  # it is there already
        say(*plan_lines(record))
    if record.status.plan is not None and not record.attempts:
        show_answer(record)
    say(*outcome_lines(record), f"report: {report}")


async def show_proof(
    backend: LocalBackend, record: RunRecord, view: RunView
) -> ExitCode:
    """Run every mesh with one device fewer; FAILED where one of them fits after all."""
    problem, answer = record.problem, record.answer
    assert problem is not None  # noqa: S101 - what trained was planned
    assert isinstance(answer, Solution)  # noqa: S101 - and there was a plan
    if why := nothing_to_run(problem, answer):
        view.say(f"nothing to prove by running it: {why}")
        view.outcome |= {"proofRuns": [], "nothingToRun": why}
        return ExitCode.DONE
    found: list[ProofRun] = []
    async with aclosing(prove(backend, problem, answer)) as runs:
        async for one in runs:
            view.say(proof_text(one), DONE if one.holds else BAD)
            found.append(one)
    view.outcome["proofRuns"] = [
        {
            "gpus": one.plan.num_gpus,
            "mesh": mesh_text(one.plan),
            "holds": one.holds,
            "message": one.message,
        }
        for one in found
    ]
    return ExitCode.DONE if all(one.holds for one in found) else ExitCode.FAILED


def proof_text(one: ProofRun) -> str:
    """Outcome of one mesh, without advice on it."""
    message = one.message.partition(": plan with ")[0]
    return f"{counted(one.plan.num_gpus, 'device')}, {mesh_text(one.plan)}: {message}"


@contextmanager
def stopping_asks(stop: Callable[[], object]) -> Generator[None]:
    """Let Ctrl-C and SIGTERM ask for a stop."""
    events = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        events.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            events.remove_signal_handler(number)


def exit_code(outcome: Outcome, record: RunRecord, loop: Loop) -> ExitCode:
    """Exit code for the end of the loop."""
    if outcome is Outcome.STOPPED:
        return ExitCode.INTERRUPTED if loop.is_stopping else ExitCode.STOPPED
    if record.status.holds(ConditionType.SUCCEEDED):
        return ExitCode.DONE
    is_answer = isinstance(record.answer, Infeasible) and not record.attempts
    return ExitCode.NO_PLAN if is_answer else ExitCode.FAILED
