"""A split layer against the whole one: the same numbers, on real ranks.

One layer of each kind that is split runs forward and backward, whole and shared by T
ranks, in fp32 and with the random weights of its seed. The ranks are forks of this
process, over gloo, and each has the whole layer as well. Compared are the output, the
gradient of the input and those of all parameters. Where sequences are split as well,
each rank is given its part of what enters, and of the gradient of what leaves; parts of
sums are added up as a step does.

In: a workload, a variant, kinds of layers. Out: which kind differs, in what and by how
much; kinds that are too large to be tried. Called by `tensor_groups`, before anything
runs backward in this process: in forks of one that has, torch refuses to, and nothing
is compared.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import inf
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from plimsoll_planner.records.model_profile import Precision, Variant
from plimsoll_profiler.counting.work_counter import count_work
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.boundaries import Boundaries
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.collectives import add_parts
from plimsoll_trainer.engine.gradients import attach_gradients, gradient_of
from plimsoll_trainer.engine.layer_runs import run_layer
from plimsoll_trainer.engine.split_tensors import here, parameters_here
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import THEIR_ERRORS, located
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.sequence_parallel import SEQUENCE
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import Workload

CONTEXT = multiprocessing.get_context("fork")
CPU = torch.device("cpu")
TOLERANCE = 1e-4
"""Of the largest number of a tensor; sums in another order are 1e-6 off in fp32."""
SMALL_GRADIENT = 1e-2
"""Of the largest gradient of the layer: one below it, as that of a sum added to all
keys, may be nothing but rounding, and is held to this in the place of its own."""
MOST_NUMBERS, MOST_FLOP = 10**8, 2e10
"""Parameters and work of the forward pass up to which a layer is tried: about 3 s."""
TIMEOUT_S = 60.0
"""For all ranks; a rank that waits for another one for ever would do so in training."""
CAUSE_S = 1.0
"""For ranks that have died to say so, after the first one."""
LOST_A_PEER = "Connection closed by peer"
UNLIKE_TRACES = "compared"
"""Name of the mesh. Torch knows forms of splits by their mesh, with the rank of it, and
those of traces in this process are of rank 0: another name makes another mesh."""
PARTIAL = "let parallelize add up what is partial once, and a bias once"
PARTIAL_SEQUENCE = (
    "let parallelize_sequence add up what is partial once, and used_on_parts or "
    "used_on_whole say which part of the sequence a parameter is used on"
)
DRAWN = (
    "it draws other random numbers than the whole layer: let it drop out only where "
    "all ranks have all numbers"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A layer that is tried, and what enters it whole."""

    index: int
    incoming: TensorSpec
    parts_enter: bool
    """Whether each rank is given its part of the sequence."""
    parts_leave: bool
    by_sequence: bool


def compare_splits(
    workload: Workload, variant: Variant, indices: Sequence[int], shapes: Boundaries
) -> tuple[str, list[int]]:
    """Why a split of some layer is not that layer, and which layers are too large.

    Of a layer that is too large nothing is known; an empty reason is of all others.
    """
    alike = replace(
        workload, precision=Precision.FP32, gradient_precision=Precision.FP32
    )
    by_sequence = variant.sequence_parallel
    found = {
        i: trial_of(alike, i, shapes.between[i], by_sequence=by_sequence)
        for i in indices
    }
    trials = [trial for trial in found.values() if trial is not None]
    too_large = [index for index, trial in found.items() if trial is None]
    if not trials:
        return "", too_large
    answer = first_answer(alike, variant.tensor_degree, trials)
    return ("", list(indices)) if answer is None else (answer, too_large)


def trial_of(
    workload: Workload, index: int, whole: TensorSpec, *, by_sequence: bool
) -> Trial | None:
    """Trial of a layer; None if it is too large, or not for fp32."""
    dtype = torch.float32 if whole.dtype.is_floating_point else whole.dtype
    incoming = TensorSpec(whole.shape, dtype)
    try:
        with FakeTensorMode():
            layer = build_layer(workload, index, CPU)
            work = count_work(partial(layer, incoming.empty(CPU)))
    except Exception:  # noqa: BLE001 - their code, which may be for one type alone
        return None
    numbers = sum(parameter.numel() for parameter in layer.parameters())
    is_small = numbers <= MOST_NUMBERS and work.flop <= MOST_FLOP
    last = len(workload.layers) - 1
    enter, leave = by_sequence and index > 0, by_sequence and index < last
    return Trial(index, incoming, enter, leave, by_sequence) if is_small else None


def first_answer(
    workload: Workload, degree: int, trials: Sequence[Trial]
) -> str | None:
    """Why some trial differs, from the rank that is first; None if nobody could try."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(degree):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            args = (workload, trials, rank, degree, Path(folder) / "store", theirs)
            process = CONTEXT.Process(target=be_rank, args=args, daemon=True)
            process.start()
            theirs.close()
            ranks.append((process, ours))
        try:
            answer = first_cause([ours for _, ours in ranks])
        except EOFError:  # killed, as when memory is short
            answer = None
        finally:
            for process, ours in ranks:
                process.kill()
                process.join()
                ours.close()
    return answer


def first_cause(ends: list[Connection]) -> str | None:
    """First answer of a rank that has lost no other one; the first, if all have."""
    lost = ""
    while ready := wait(ends, CAUSE_S if lost else TIMEOUT_S):
        for end in cast("list[Connection]", ready):
            ends.remove(end)
            answer = cast("str | None", end.recv())
            if not answer or LOST_A_PEER not in answer:
                return answer
            lost = lost or answer
    return lost or (
        f"its ranks wait for each other for {TIMEOUT_S:g} s: let all ranks that share "
        "a layer run the same collectives"
    )


def be_rank(
    workload: Workload,
    trials: Sequence[Trial],
    rank: int,
    degree: int,
    store: Path,
    out: Connection,
) -> None:
    """Join the group, try, send the answer; runs in a fork."""
    torch.set_num_threads(1)
    answer: str | None = ""
    name = ""
    try:
        torch.autograd.backward(torch.ones(1, requires_grad=True).sum())
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=degree,
            timeout=timedelta(seconds=TIMEOUT_S),
        )
        world, names = dist.group.WORLD, (UNLIKE_TRACES,)
        assert world is not None  # noqa: S101 - joined above
        mesh = DeviceMesh.from_group(world, "cpu", mesh_dim_names=names)
        for trial in trials:
            name = workload.layers[trial.index].name
            if answer := difference(workload, trial, mesh):
                answer = f"layer {name!r} on {degree} ranks gives {answer}"
                break
    except THEIR_ERRORS as error:
        is_theirs = bool(name) and not is_out_of_memory(error)
        text = f"layer {name!r} on {degree} ranks: {located(error)}"
        answer = text if is_theirs else None
    out.send(answer)


def difference(workload: Workload, trial: Trial, mesh: DeviceMesh) -> str:
    """Difference of a split layer from the whole one, in words; empty: none."""
    gaps = gaps_of(workload, trial, mesh, trains=True)
    what, largest = max(gaps.items(), key=lambda gap: gap[1])
    if largest <= TOLERANCE:
        return ""
    still = gaps_of(workload, trial, mesh, trains=False)
    advice = PARTIAL_SEQUENCE if trial.by_sequence else PARTIAL
    if max(still.values()) <= TOLERANCE or draws_always(workload, trial):
        advice = DRAWN
    off = f"off by {largest:.2g} of its largest" if largest < inf else "or none"
    return f"another {what} than whole, {off}: {advice}"


def draws_always(workload: Workload, trial: Trial) -> bool:
    """Whether the whole layer draws random numbers when it is not trained, too."""
    layer = build_layer(workload, trial.index, CPU).train(False)
    with torch.no_grad():
        one, other = (
            run_layer(layer, CPU, key, input_of(workload, trial)) for key in (1, 2)
        )
    return not torch.equal(one, other)


def gaps_of(
    workload: Workload, trial: Trial, mesh: DeviceMesh, *, trains: bool
) -> dict[str, float]:
    """Relative gap of every tensor, the largest of all ranks."""
    whole, part = (
        build_layer(
            workload, trial.index, CPU, one, sequence_parallel=trial.by_sequence
        ).train(trains)
        for one in (None, mesh)
    )
    x = input_of(workload, trial)
    own_x = own(x, mesh) if trial.parts_enter else x
    y, dy, dx = run(whole, x, None)
    if trial.parts_leave:
        y, dy = own(y, mesh), own(dy, mesh)
    if trial.parts_enter and dx is not None:
        dx = own(dx, mesh)
    part_y, _, part_dx = run(part, own_x, dy)
    add_parts(parameters_here(part), mesh.get_group())
    pairs = {"output": (part_y, y)}
    if dx is not None and part_dx is not None:
        pairs["gradient of its input"] = (part_dx, dx)
    gaps = {what: gap(one, other) for what, (one, other) in pairs.items()}
    gaps |= gradient_gaps(whole, part, mesh)
    agreed = torch.tensor(list(gaps.values()), dtype=torch.float64)
    dist.all_reduce(agreed, dist.ReduceOp.MAX, group=mesh.get_group())
    return dict(zip(gaps, agreed.tolist(), strict=True))


def input_of(workload: Workload, trial: Trial) -> Tensor:
    """The first samples of the job, or numbers drawn alike on all ranks."""
    spec = trial.incoming
    if trial.index == 0:
        x = make_batch(workload, 0, 0, spec.shape[0])[0][0].to(spec.dtype)
        return x[tuple(slice(size) for size in spec.shape)].clone()
    x = spec.empty(CPU).zero_()
    if x.is_floating_point():
        x.normal_(generator=torch.Generator().manual_seed(1))
        x.requires_grad_()
    return x


def own(whole: Tensor, mesh: DeviceMesh) -> Tensor:
    """Part of all sequences that this rank has, a leaf as the whole one."""
    parts = whole.detach().chunk(mesh.size(), SEQUENCE)
    part = parts[mesh.get_local_rank()].clone()
    return part.requires_grad_(whole.requires_grad)


def run(
    layer: nn.Module, x: Tensor, dy: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Output of a layer, its gradient and that of the input, after both passes.

    The gradient of the output is `dy`, or else drawn.
    """
    attach_gradients(parameters_here(layer), torch.float32)
    x.grad = None
    y = run_layer(layer, CPU, 1, x.view_as(x))  # it may write to what enters
    if dy is None:
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    if y.requires_grad:
        torch.autograd.backward(y, dy)
    return y.detach().clone(), dy, x.grad


def gradient_gaps(
    whole: nn.Module, part: nn.Module, mesh: DeviceMesh
) -> Iterator[tuple[str, float]]:
    """Yield the gap of each parameter's gradient, as far as this rank has it."""
    parts = dict(part.named_parameters())
    expected = {
        name: grad
        for name, parameter in whole.named_parameters()
        if (grad := gradient_of(parameter)) is not None
    }
    largest = max((float(one.abs().max()) for one in expected.values()), default=0.0)
    for name, grad in expected.items():
        mine: Tensor | None = parts.get(name)
        found = None if mine is None else gradient_of(here(mine))
        if mine is None or found is None:
            yield f"gradient of {name}", inf
        else:
            own = part_of(grad, mine, mesh)
            yield f"gradient of {name}", gap(found, own, SMALL_GRADIENT * largest)


def part_of(tensor: Tensor, like: Tensor, mesh: DeviceMesh) -> Tensor:
    """The part of a whole tensor that this rank has of another one."""
    if not isinstance(like, DTensor):
        return tensor
    split = distribute_tensor(tensor, mesh, like.placements, src_data_rank=None)
    return split.to_local()


def gap(found: Tensor, expected: Tensor, least: float = 0.0) -> float:
    """Largest difference of two tensors, of the largest number of one, or `least`."""
    if found.shape != expected.shape:
        return inf
    if not expected.numel() or not expected.isfinite().all():
        return 0.0  # nothing can be known from it
    largest = max(float(expected.abs().max()), least)
    off = float((found - expected).abs().max())
    return off / largest if largest else (inf if off else 0.0)
