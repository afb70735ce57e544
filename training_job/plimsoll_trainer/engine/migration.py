"""Layers that go to a neighbouring stage between two steps, with all that they hold.

    stage s        [ ... | a | b ]      ->      [ ... | a ]
    stage s + 1          [ c | ... ]    ->          [ b | c | ... ]

The destination builds the layer as at the start, makes the state of its optimizer, and
receives, in one order on both sides:

    parameters   buffers   fp32 masters   optimizer state

each into the memory where it stays. Replica d sends to replica d and part t to part t:
what they divide is divided alike on both stages. Between two steps gradients are zero
and no micro-batch is in flight, so nothing else has to move, and steps give the same
bits as if the layer had always been there: random numbers and the norm depend on the
chain alone.

In: a trainer, moves in an order in which each stage stays one run of layers. Called
between two steps, by all ranks together. Source: the live migration of vPipe (Zhao et
al., TPDS 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.revision import Move
from plimsoll_trainer.carried import carrying_layer
from plimsoll_trainer.engine.built_layer import BuiltLayer, build_trained, held_by
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.engine.stage import StageModule, StageSlice, stage_of
from plimsoll_trainer.engine.trained_layer import TrainedLayer
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import Workload


def rearrange(
    trainer: Trainer, slices: Sequence[StageSlice], moves: Sequence[Move]
) -> int:
    """Let a trainer hold other slices from the next step on.

    Ways of layers and numbers in flight change with them; what is sharded and the
    memory of optimizers stay.

    Returns:
        Bytes that this rank has sent and received.

    Raises:
        WorkloadError: a layer holds something else than where it was built first.
        ValueError: the moves do not lead to the slices.
    """
    num_bytes = move_layers(trainer, moves)
    trainer.slices, trainer.part = slices, slices[trainer.world.stage]
    if trainer.link is None and trainer.part.uses_host:
        trainer.link = HostLink(trainer.world.device)
    trainer.stage = rearranged(trainer)
    trained = trainer.trained
    trainer.trained = {n: trained[n] for n in trainer.stage.built if n in trained}
    trainer.schedule = trainer.build_schedule()
    trainer.on_phase(Phase.MIGRATION)
    return num_bytes


def unmovable(
    workload: Workload, slices: Sequence[StageSlice], moves: Sequence[Move]
) -> str | None:
    """First reason why a layer cannot move as asked; None if all can."""
    if moves and (does := carrying_layer(workload.layers)):
        return f"{does}, and layers of such a model stay on their stages"
    tied = {
        layer: name
        for tie in workload.ties
        if not tie.constant
        for layer, name in tie.places
    }
    for move in moves:
        layer = workload.layers[move.layer].name
        if layer in tied:
            return (
                f"layer {layer!r} shares {tied[layer]!r} with other layers, so it "
                "stays on its stage"
            )
        if held(slices[move.source]) != held(slices[move.destination]):
            return (
                f"layer {layer!r} cannot move from stage {move.source} to stage "
                f"{move.destination}, which divides its state otherwise or keeps it "
                "elsewhere"
            )
    return None


def grown(trainer: Trainer, moves: Sequence[Move]) -> str | None:
    """First layer of this stage that is to move and is not as it was built, if any.

    One that has made a buffer since cannot be built anew as it is.
    """
    stage = trainer.stage
    for move in moves:
        name = str(move.layer)
        if (
            name in stage.built
            and held_by(stage.layers[name]) != stage.built[name].held
        ):
            return (
                f"layer {trainer.workload.layers[move.layer].name!r} holds other "
                "parameters or buffers than when it was built: let its constructor "
                "make all that it holds"
            )
    return None


def held(part: StageSlice) -> tuple[object, ...]:
    """How a stage holds the state of its layers."""
    return part.sharding, part.optimizer_home, part.sequence_parallel


@torch.no_grad()
def move_layers(trainer: Trainer, moves: Sequence[Move]) -> int:
    """Send and receive layers; returns the bytes of both."""
    stage, num_bytes = trainer.world.stage, 0
    for move in moves:
        if move.source == stage:
            num_bytes += give(trainer, move)
        elif move.destination == stage:
            num_bytes += take(trainer, move)
    return num_bytes


def give(trainer: Trainer, move: Move) -> int:
    """Send a layer and let go of it; returns its bytes."""
    name, stage = str(move.layer), trainer.stage
    trained = trainer.trained.pop(name, None)
    tensors = list(tensors_of(stage.layers[name], stage.built[name], trained))
    exchange(trainer, move.destination, [sizes(tensors, trainer)], dist.isend)
    exchange(trainer, move.destination, tensors, dist.isend)
    stage.let_go(name)
    return bytes_of(tensors)


def take(trainer: Trainer, move: Move) -> int:
    """Build a layer and receive what it holds; returns its bytes.

    Raises:
        WorkloadError: it holds something else than where it was built first.
    """
    index, name, stage, world = (
        move.layer,
        str(move.layer),
        trainer.stage,
        trainer.world,
    )
    stage.built[name] = built = build_trained(
        *(trainer.workload, index, stage.layers, world.device),
        *(trainer.part.share(trainer.share), world.tensor_mesh),
        sequence_parallel=trainer.part.sequence_parallel,
    )
    trained = trainer.trained_layer(name, built.flat)
    layer = stage.layers[name]
    tensors = list(tensors_of(layer, built, trained))
    found = sizes(tensors, trainer)
    coming = torch.empty_like(found)
    exchange(trainer, move.source, [coming], dist.irecv)
    if trained is not None and not torch.equal(coming, found):
        trained.make_state()
        tensors = list(tensors_of(layer, built, trained))
        found = sizes(tensors, trainer)
    if not torch.equal(coming, found):
        (theirs, theirs_bytes), (ours, ours_bytes) = coming.tolist(), found.tolist()
        raise WorkloadError(
            f"layer {trainer.workload.layers[index].name!r} cannot move: it holds "
            f"{theirs} tensors of {theirs_bytes} bytes, and {ours} of {ours_bytes} as "
            "it is built: let its constructor make all that it holds"
        )
    exchange(trainer, move.source, tensors, dist.irecv)
    if trained is not None:
        trained.read_parameters()
        trainer.trained[name] = trained
    return bytes_of(tensors)


def tensors_of(
    layer: nn.Module, built: BuiltLayer, trained: TrainedLayer | None
) -> Iterator[Tensor]:
    """Yield all that this rank holds of a layer between two steps, but gradients.

    Of parameters that replicas divide, the buffer or what is kept of it.
    """
    lying = {
        id(parameter)
        for buffer in built.flat
        if buffer.values is not None
        for parameter in buffer.parameters
    }
    for buffer in built.flat:
        values = buffer.values if buffer.kept_values is None else buffer.kept_values
        if values is not None:
            yield values
    for parameter in layer.parameters():
        if id(own := here(parameter)) not in lying:
            yield own.detach()
    for tensor in layer.buffers():
        yield here(tensor)
    if trained is not None:
        yield from trained.state()


def sizes(tensors: Sequence[Tensor], trainer: Trainer) -> Tensor:
    """Number of some tensors, and their bytes, as they are sent ahead."""
    counted = [len(tensors), bytes_of(tensors)]
    return torch.tensor(counted, dtype=torch.int64, device=trainer.world.device)


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of some tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def exchange(
    trainer: Trainer,
    stage: int,
    tensors: Sequence[Tensor],
    operation: Callable[..., dist.Work | None],
) -> None:
    """Send tensors to a stage, or receive them from it where they are.

    What is not in one piece of the device's memory takes a copy.
    """
    device, group = trainer.world.device, trainer.world.pipeline_group
    pairs = [(one, in_one_piece(one, device)) for one in tensors if one.numel()]
    if not pairs:
        return
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(operation, sent, group=group, group_peer=stage)
            for _, sent in pairs
        ]
    )
    for work in works:
        work.wait()
    if operation is dist.irecv:
        for tensor, passed in pairs:
            if passed is not tensor:
                tensor.copy_(passed)


def in_one_piece(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor itself, if it is in one piece of the device's memory; else a copy."""
    if tensor.is_contiguous() and tensor.device == device:
        return tensor
    return tensor.to(device).contiguous()


def rearranged(trainer: Trainer) -> StageModule:
    """The stage of this rank's slice, of layers that are all here.

    Raises:
        ValueError: they are not those of the slice.
    """
    stage, part = trainer.stage, trainer.part
    names = sorted(stage.layers, key=int)
    after = stage_of(
        trainer.workload,
        part,
        nn.ModuleDict({name: stage.layers[name] for name in names}),
        {name: stage.built[name] for name in names},
        device=trainer.world.device,
        given_back=trainer.boundaries.given_back,
        link=trainer.link,
    )
    after.step = stage.step
    return after
