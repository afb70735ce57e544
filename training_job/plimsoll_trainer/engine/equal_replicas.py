"""Whether ranks that hold the same tensors hold the same values, to the bit.

Every rank builds its own layers. What a workload takes from a clock, a process id or a
generator that nobody seeded differs from rank to rank, and replicas would then train
different models without a word. So they are compared once, after the checkpoint is read
and before the first step; called by `run`.

    each rank    the sum of each of its tensors; a digest of them all
    all ranks    gather the digests, and the sums of tensors tied over several stages
    on a fault   gather all sums, and name the first tensor that differs

Of a layer of which replicas divide the parameters, what each of them has built is
compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.learned import Names
from plimsoll_trainer.engine.shared_tensors import first_places, stages_of
from plimsoll_trainer.engine.split_tensors import here, is_split
from plimsoll_trainer.engine.tensor_sums import Summer
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.errors import UnequalReplicasError

Name = tuple[str, str]
"""Layer, and tensor inside it; a tied tensor goes by its first place. Of a model
without layers: nothing, and the tensor."""
Sums = Mapping[Name, object]
OF_PART = ", part "
"""Follows the name of a tensor that a tensor group shares; the rank's place in it."""
NAMES = ""
"""In the place of a tensor: the names of all tensors of a layer."""


def check_replicas(trainer: Trainer, control: Control) -> None:
    """Refuse to train where ranks disagree; all ranks call this together.

    Raises:
        UnequalReplicasError: names the first tensor that differs, and two ranks.
    """
    sums = dict(sums_of(trainer))
    tied = tied_over_stages(trainer)
    brief = {name: found for name, found in sums.items() if whole(name) in tied}
    require_equal(sums, brief, trainer.world, control)


def check_frozen(unlearned: Mapping[int, Names], control: Control) -> None:
    """Refuse to train where ranks have frozen other parameters; all ranks call this.

    Raises:
        UnequalReplicasError: names a parameter that one of two ranks has frozen.
    """
    found = [
        {(layer, name) for layer, names in one.items() for name in names}
        for one in control.gather(dict(unlearned))
    ]
    for rank, others in enumerate(found):
        if differs := sorted(found[0] ^ others):
            layer, name = differs[0]
            raise UnequalReplicasError(
                f"ranks 0 and {rank} would train different models: a gradient comes "
                f"back to {name!r} of layer {layer} on one of them alone; let layers "
                "run the same in every process: no clock, no process id, no generator "
                "without a seed"
            )


def require_equal(sums: Sums, brief: Sums, world: World, control: Control) -> None:
    """Refuse to train where ranks that hold the same have other sums of it.

    Args:
        sums: of what this rank holds.
        brief: those that ranks of other stages have as well.
        world: this rank's place; ranks of one stage and part hold the same.
        control: of all ranks.

    Raises:
        UnequalReplicasError: names the first tensor that differs, and two ranks.
    """
    text = repr(sorted(sums.items())).encode()
    stage: Name = (NAMES, f"{world.stage} {world.part}")
    digest = hashlib.blake2b(text).digest()
    if first_difference(control.gather({**brief, stage: digest})) is None:
        return
    found = first_difference(control.gather(sums))
    assert found is not None  # noqa: S101 - the digest is of these
    (layer, tensor), one, other = found
    of_layer = f" of layer {layer!r}" if layer else ""
    what = f"{tensor!r}{of_layer}" if tensor else f"what is in layer {layer!r}"
    raise UnequalReplicasError(
        f"ranks {one} and {other} would train different models: {what} "
        "differs between them; let the entry point and its factories build the same "
        "in every process: no clock, no process id, no order of a set, no generator "
        "without a seed"
    )


def whole(name: Name) -> Name:
    """Name of a tensor, of which this may be a part."""
    layer, tensor = name
    return layer, tensor.partition(OF_PART)[0]


def first_difference(of_ranks: Sequence[Sums]) -> tuple[Name, int, int] | None:
    """The first name that two ranks hold different sums of, and these ranks."""
    holders: dict[Name, int] = {}
    for rank, sums in enumerate(of_ranks):
        for name, found in sums.items():
            holder = holders.setdefault(name, rank)
            if of_ranks[holder][name] != found:
                return name, holder, rank
    return None


def tied_over_stages(trainer: Trainer) -> set[Name]:
    """Names of the tensors that several stages hold."""
    workload = trainer.workload
    return {
        tie.places[0]
        for tie in workload.ties
        if len(set(stages_of(tie, workload, trainer.slices))) > 1
    }


def sums_of(trainer: Trainer) -> Iterator[tuple[Name, object]]:
    """Yield the sum of every parameter and buffer that another rank may hold as well.

    Of a job without replicas and tensor groups that is what several stages share.
    """
    workload, world = trainer.workload, trainer.world
    summer = Summer(world.device)
    first, tied = first_places(workload), tied_over_stages(trainer)
    for index, layer in trainer.stage.layers.items():
        name = workload.layers[int(index)].name
        tensors = dict(layer.named_parameters()) | dict(layer.named_buffers())
        built = trainer.stage.built[index].sums
        yield (name, NAMES), tuple(tensors)
        for inner, tensor in tensors.items():
            place = first.get((name, inner), (name, inner))
            is_shared = world.num_replicas > 1 or place in tied
            if is_split(tensor):
                place = place[0], f"{place[1]}{OF_PART}{world.part}"
            elif world.num_parts > 1:
                is_shared = True
            if is_shared:
                yield place, built.get(inner) or summer.sum_of(here(tensor))
