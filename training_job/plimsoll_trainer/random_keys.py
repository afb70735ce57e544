"""Random numbers that depend on what is computed, never on where.

A layer's weights depend on the seed and the layer; its dropout on the seed, the step,
the micro-batch's first sample and the layer. So a model is the same under every plan
with the same micro-batch, and a recomputed layer draws what it drew before without
anyone saving the generator's state.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from plimsoll_trainer.errors import WorkloadError

ODD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: multiplying by it spreads small numbers."""
MASK = 2**64 - 1


def random_key(*parts: int) -> int:
    """Mix whole numbers into one of 64 bits; their order matters."""
    key = 0
    for part in parts:
        key = ((key ^ (part & MASK)) * ODD) & MASK
        key ^= key >> 29
    return key


def seed_device(device: torch.device, key: int) -> None:
    """Start the default generator of a device at `key`."""
    generator_of(device).manual_seed(key)


def generator_of(device: torch.device) -> torch.Generator:
    """Default generator of a device."""
    if device.type == "cuda":
        found: torch.Generator = torch.cuda.default_generators[device.index or 0]
        return found
    return torch.default_generator


def seed_process(key: int) -> None:
    """Start every default generator of this process at `key`: torch, Python, numpy.

    A process that nobody seeds begins at random, so ranks would draw different numbers.
    """
    torch.manual_seed(key)
    random.seed(key)
    np.random.seed(key % 2**32)  # noqa: NPY002 - their code may draw from it


@contextmanager
def no_hidden_draws() -> Iterator[None]:
    """Within it, a model is captured, and only what torch draws is seen.

    Raises:
        WorkloadError: Python or numpy drew numbers, which the graph has as constants.
    """
    before = hidden_state()
    yield
    if hidden_state() != before:
        raise WorkloadError(
            "the model draws random numbers from Python or numpy, which would be the "
            "same in every step once it is captured: draw them by torch"
        )


def hidden_state() -> tuple[object, str]:
    """State of the generators of Python and numpy."""
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - theirs
