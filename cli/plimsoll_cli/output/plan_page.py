"""Lines about a plan: `run` prints them at the end, `describe` at any time.

In: a `RunRecord`. Out: lines and tables for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_cli.output.answer_tables import plan_line
from plimsoll_cli.output.console import console, say
from plimsoll_cli.output.memory_bars import memory_bars
from plimsoll_cli.output.placement_table import print_plan
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.api.status import CheckpointsStatus, ConditionType, Status, Truth
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.rules.summary import step_fault
from plimsoll_planner.overhead.built_in import basis_text, widening_lines
from plimsoll_planner.records.solution import Infeasible
from plimsoll_planner.text.counts import counted
from plimsoll_planner.text.explain import certificate_lines
from plimsoll_planner.text.space import space_text
from plimsoll_planner.units import number_text
from plimsoll_planner.vocabulary import IN_SPEC


def plan_lines(record: RunRecord) -> Iterator[str]:
    """Yield what is planned, in a line, where there is an answer."""
    planned = record.status.condition(ConditionType.PLANNED)
    if planned is not None and planned.message:
        yield planned.message


def checkpoint_lines(record: RunRecord) -> Iterator[str]:
    """Yield the folder of the checkpoints, where the ranks save."""
    if saves := saves_text(record.status):
        yield f"checkpoints in {saves}"


def saves_text(status: Status) -> str:
    """Claim and folder of the checkpoints; empty where nothing is saved."""
    saves = status.checkpoints
    return "" if saves is None else folder_text(saves, saves.folder)


def weights_text(status: Status) -> str:
    """Claim and folder of the trained weights; empty until they are written."""
    saves = status.checkpoints
    if saves is None or saves.weights is None:
        return ""
    return folder_text(saves, saves.weights)


def weight_lines(status: Status) -> Iterator[str]:
    """Yield the folder of the trained weights, once they are written."""
    if weights := weights_text(status):
        yield f"trained weights: {weights}"


def folder_text(saves: CheckpointsStatus, folder: str) -> str:
    """A folder, with the claim that it lies in, if it lies in one."""
    claim = f"claim {saves.claim_name}, folder " if saves.claim_name else ""
    return claim + folder


def outcome_lines(record: RunRecord) -> Iterator[str]:
    """Yield how a plan ended, or where it stands, in a few lines."""
    if record.losses:
        (_, first), (step, last) = record.losses[0], record.losses[-1]
        change = f"{number_text(first, 3)} -> {number_text(last, 3)}"
        yield f"trained {counted(step, 'step')}, loss {change}"
    has_trained = any(one.num_steps for one in record.observations)
    if record.status.observed is not None and has_trained:
        error = record.status.observed.error_percent
        yield f"worst error of the predicted peaks {float(f'{error:.2g}'):g} %"
        if record.plan is not None:
            yield from filter(None, [step_fault(record.plan, record.status.observed)])
    yield from weight_lines(record.status)
    ended = record.status.condition(ConditionType.SUCCEEDED)
    if ended is not None and ended.reason == "PlanOnly":
        yield "a dry run: spec.launch.policy is PlanOnly, and nothing was launched"
    if ended is not None and ended.status is Truth.FALSE:
        message = f": {ended.message}" if ended.message else ""
        if ended.message not in plan_lines(record):
            yield f"failed: {ended.reason}{message}"
        is_unusable = ended.reason == RESPONSES[Ending.UNUSABLE_CHECKPOINT].reason
        if record.saved_step is not None and not is_unusable:
            yield (
                f"step {record.saved_step} is saved: `plimsoll run` goes on from "
                "there, with --anew it begins again"
            )
    if isinstance(record.answer, Infeasible) and record.problem is not None:
        yield from widening_lines(record.problem)
    if record.is_left:
        yield record.next_step


def show_answer(record: RunRecord) -> None:
    """Print the plan, how full its devices are, and why there is no smaller one."""
    best = record.plan
    if best is None:
        return
    page = console()
    say("", plan_line(best))
    if record.problem is not None:
        memory = record.problem.limits.usable_bytes(best.offers[0].device_memory_bytes)
        print_plan(best, memory)
        if record.observations:
            say("")
            for line in memory_bars(best, record.observations, memory, page.width):
                page.print(line, soft_wrap=True)
        say(basis_text(best.offers[0], record.problem.overheads, best))
    if record.answer is not None:
        certificate = record.answer.certificate
        space = f"searched: {space_text(certificate.space)}"
        warnings = [f"warning: {text}" for text in record.answer.warnings]
        lines = (*certificate_lines(certificate), space, *warnings)
        say("", *lines, "", words=IN_SPEC)
