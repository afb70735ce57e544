"""A record of how a module was built, from which single tensors are built again.

In: a function that builds a module. Out: the module on fake tensors, which hold no
bytes, and the operators that wrote its tensors. A layer of the chain runs those that
its own tensors follow from, in the order of the record, on torch's default device: so
it starts as the module's own code says, draws from the seed of its own, and never
builds what it does not keep. What several layers draw, such as the weights of a student
and of the teacher that is a copy, each draws from one seed. Numbers that the code asks
for, as of `linspace`, are computed from the record at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.random_keys import generator_of, random_key
from plimsoll_trainer.torch_internals.graphs import (
    NUMBER,
    arguments_of,
    draws,
    written_by,
)
from plimsoll_trainer.torch_internals.operators import (
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    convertible,
    storage_of,
    tree_iter,
    tree_map,
    without_modes,
)

MADE_OF_VALUES = torch.ops.aten.lift_fresh.default
"""Makes a tensor of values that the code has."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor as an operator saw it: its storage, and how it lies there."""

    memory: UntypedStorage
    """Kept, so that no later storage has the same key."""
    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: Tensor) -> Place:
        """Note where a tensor lies now."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        key, memory = storage_of(tensor)
        return cls(memory, key, shape, strides, int(tensor.storage_offset()))

    def within(self, base: Tensor) -> Tensor:
        """The same part of a real tensor that has the whole storage."""
        same = (tuple(base.shape), tuple(base.stride()), base.storage_offset())
        if same == (self.shape, self.strides, self.offset):
            return base
        return base.as_strided(self.shape, self.strides, self.offset)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of the record, with places for fake tensors."""

    operator: Any
    args: Any
    kwargs: dict[str, Any]
    results: tuple[Place, ...]

    @property
    def read(self) -> Iterator[Place]:
        """Places of its arguments."""
        leaves = tree_iter((self.args, self.kwargs))
        return (leaf for leaf in leaves if isinstance(leaf, Place))

    @property
    def touched(self) -> set[int]:
        """Storages that it makes, writes to, or gives a view of."""
        arguments = arguments_of(self.operator, self.args, self.kwargs)
        written = (arguments.get(name) for name in written_by(self.operator))
        found = {one.storage for one in tree_iter(list(written)) if type(one) is Place}
        return found | {place.storage for place in self.results}


@dataclass(slots=True)
class Construction:
    """Operators in the order in which they ran."""

    steps: list[Step] = field(default_factory=list)
    keys: dict[int, int] = field(default_factory=dict)
    """Seeds of steps that several layers draw, by place."""

    @torch.no_grad()
    def values_of(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Build tensors again, on torch's default device, from its random numbers."""
        places = [Place.of(tensor) for tensor in tensors]
        made: dict[int, Tensor] = {}
        for at in self._steps_for({place.storage for place in places}):
            with drawn_from(self.keys.get(at)):
                results = tensors_in(run_again(self.steps[at], made))
            for place, result in zip(self.steps[at].results, results, strict=True):
                made.setdefault(place.storage, result)
        return [place.within(made[place.storage]) for place in places]

    def _steps_for(self, storages: set[int]) -> list[int]:
        """Places of steps that the numbers in some storages follow from, in order."""
        needed, chosen = set(storages), list[int]()
        for at, step in reversed([*enumerate(self.steps)]):
            if needed & step.touched:
                needed |= {place.storage for place in step.read}
                chosen.append(at)
        return chosen[::-1]

    def share_draws(self, layers: Iterable[Sequence[Tensor]], seed: int) -> None:
        """Give steps that draw for several layers seeds of their own.

        Args:
            layers: tensors of each, which its numbers are built from.
            seed: of the workload.
        """
        users: dict[int, set[int]] = {}
        for index, tensors in enumerate(layers):
            for tensor in tensors:
                users.setdefault(storage_of(tensor)[0], set()).add(index)
        for at, step in reversed([*enumerate(self.steps)]):
            found = set[int]().union(*(users.get(one, ()) for one in step.touched))
            for place in step.read:
                users.setdefault(place.storage, set()).update(found)
            if len(found) > 1 and draws(step.operator):
                self.keys[at] = random_key(seed, at, len(self.steps))


@contextmanager
def drawn_from(key: int | None) -> Iterator[None]:
    """Within it, numbers are drawn from a seed; None: they go on."""
    if key is None:
        yield
        return
    device = torch.get_default_device()
    generator = generator_of(device)
    with host_memory():
        before = generator.get_state()
    generator.manual_seed(key)
    yield
    generator.set_state(before)


def run_again(step: Step, made: dict[int, Tensor]) -> Any:
    """Result of a step with real tensors, on torch's default device."""
    device = torch.get_default_device()

    def real(leaf: Any) -> Any:
        if isinstance(leaf, Place):
            return leaf.within(made[leaf.storage])
        if isinstance(leaf, Tensor):  # never the record's own, which would be written
            return torch.ops.aten.lift_fresh_copy.default(leaf).to(device)
        return device if isinstance(leaf, torch.device) else leaf

    args, kwargs = tree_map(real, (step.args, step.kwargs))
    if step.operator is MADE_OF_VALUES:
        return args[0]
    return step.operator(*args, **kwargs)


def tensors_in(tree: Any) -> list[Tensor]:
    """Tensors of a result, in order."""
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operator on fake tensors."""

    def __init__(self, record: Construction) -> None:
        """Add to a record."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and note it."""
        del types
        if func is NUMBER:
            return self._number(args[0])
        noted, noted_kwargs = tree_map(placed, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        results = tuple(Place.of(one) for one in tensors_in(result))
        if results:
            self._record.steps.append(Step(func, noted, noted_kwargs, results))
        return result

    def _number(self, tensor: Tensor) -> Any:
        """Number in a tensor, from the record of how it was made."""
        with without_modes():
            if not isinstance(tensor, FakeTensor):
                return tensor.item()
            return self._record.values_of([tensor])[0].item()


def placed(leaf: Any) -> Any:
    """Place of a fake tensor; anything else as it is."""
    return Place.of(leaf) if isinstance(leaf, FakeTensor) else leaf


def build_recorded(
    factory: Callable[[], object], mode: FakeTensorMode
) -> tuple[object, Construction]:
    """Build a module on fake tensors, with the record of how."""
    record = Construction()
    with torch.device("cpu"), convertible(), mode, Recorder(record):
        return factory(), record


def like(fake: Tensor, made: Tensor) -> Tensor:
    """A built tensor that is what the fake one is, and keeps no larger one alive."""
    if made.untyped_storage().nbytes() > made.nbytes:
        made = made.clone()
    if isinstance(fake, nn.Parameter):
        return nn.Parameter(made, requires_grad=fake.requires_grad)
    return made
