"""A small chain that does in a pod what a test orders: waits, fails, takes memory.

Mounted into pods as the module `steered`, beside a folder `/orders` that the test
writes to. An order is a file `<plan>-train`, `<plan>-profile` or `<plan>-rehearsal` in
there, read at every step; where there is none nothing happens. It is data, not code:
profiles stay valid.

    {"pause_s": 0.2}              every step takes so much longer
    {"raise_at": 7}               an error of the application at that step, and later
    {"host_bytes": 4294967296}    memory of the host, taken and used
    {"start_bytes": 943718400}    the same, but once, before the first step
    {"device_bytes": 2000000}     somebody else takes all but so much of the device
    {"slow_s": 0.01}              rank 1 takes so much longer for each layer

The first rank writes each step that it begins to `/orders/<host>.steps`, and whoever
computes losses writes them, with their step, to `/orders/<host>.losses`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.emulated.device import EmulatedDevice, is_emulated_device
from plimsoll_trainer.workload import AdamW, Workload

ORDERS = Path("/orders")
HOST = re.compile(r"(.+-(?:train|profile|rehearsal))-.+")
"""Of a pod: the name of its Job begins with that of its plan, and what it is for."""
WIDTH, DEPTH, NUM_CLASSES = 256, 6, 8
CHUNK_BYTES = 2**20
LATEST = [0]
"""Step that a batch was made of last."""


def workload(*, variant: int = 0) -> Workload:
    """Build the chain; another variant is the same one, and is profiled anew."""
    del variant
    given = order()
    obey_at_once(given)
    take(given.get("start_bytes", 0))
    middle = partial(layer, WIDTH, WIDTH)
    return from_factories(
        {
            "first": partial(layer, 32, WIDTH),
            **{f"middle.{place}": middle for place in range(DEPTH)},
            "last": partial(nn.Linear, WIDTH, NUM_CLASSES),
        },
        loss=loss,
        batch=batch,
        optimizer=AdamW(learning_rate=1e-3),
    )


def layer(wide_in: int, wide_out: int) -> nn.Module:
    """Build one layer."""
    return nn.Sequential(nn.Linear(wide_in, wide_out), nn.GELU(), Passing())


class Passing(nn.Module):
    """Passes on what it gets, on rank 1 as slowly as is ordered."""

    def forward(self, x: Tensor) -> Tensor:
        """The same."""
        if os.environ.get("RANK") == "1":
            time.sleep(order().get("slow_s", 0.0))
        return x


def batch(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make random points; the class of each is its largest coordinate."""
    given, LATEST[0] = order(), step
    write_down(step, first)
    time.sleep(given.get("pause_s", 0.0))
    if step >= given.get("raise_at", step + 1):
        raise ValueError("no sample of this step")
    obey_at_once(given)
    samples = []
    for sample in range(first, first + count):
        torch.manual_seed(1000 * step + sample)
        samples.append(torch.randn(16, 32))
    x = torch.stack(samples)
    return x, x[..., :NUM_CLASSES].argmax(dim=-1)


def loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Compare: logits [samples, points, classes], classes [samples, points]."""
    found = functional.cross_entropy(logits.flatten(0, 1), classes.flatten())
    is_real = type(found) is Tensor  # not a tensor without numbers
    if is_real and "RANK" in os.environ and ORDERS.is_dir():
        with (ORDERS / f"{socket.gethostname()}.losses").open("a") as losses:
            losses.write(f"{LATEST[0]} {float(found).hex()}\n")
    return found


def order() -> dict[str, Any]:
    """Orders for this pod now."""
    found = HOST.fullmatch(socket.gethostname())
    try:
        name = found[1] if found is not None else ""
        given: dict[str, Any] = json.loads((ORDERS / name).read_text() or "{}")
    except OSError:  # no such file; not in a pod that is steered
        return {}
    return given


def obey_at_once(given: dict[str, Any]) -> None:
    """Take memory."""
    take(given.get("host_bytes", 0))
    if "device_bytes" in given and is_emulated_device():
        EmulatedDevice().set_cap(given["device_bytes"])


def take(num_bytes: int) -> None:
    """Take memory of the host, use it, and give it back."""
    chunks: list[bytearray] = []
    while len(chunks) * CHUNK_BYTES < num_bytes:
        chunks.append(bytearray(os.urandom(1) * CHUNK_BYTES))


def write_down(step: int, first: int) -> None:
    """Report to the test which steps the first rank of this pod begins."""
    if os.environ.get("RANK") == "0" and first == 0 and ORDERS.is_dir():
        with (ORDERS / f"{socket.gethostname()}.steps").open("a") as steps:
            steps.write(f"{step}\n")
