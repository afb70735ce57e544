"""Runs small models once on fake tensors: imported by the server that forks ranks.

Torch finds out what each operator does to a fake tensor of each shape when it first
meets it, and keeps that. More than half of what a small rank computes, 0.11 of 0.20 s
of CPU, went into finding it out anew. Only fake tensors are computed with here: no
memory of a device is taken, and no thread of torch is started, which a fork would lack.
"""

from __future__ import annotations

from itertools import product

from plimsoll_trainer.engine.boundaries import boundaries_of
from tests.support.workloads import a_gpt

WIDTHS, MICRO_BATCHES = (16, 48), (1, 2)
"""Of most tests that start ranks."""

for width, micro_batch in product(WIDTHS, MICRO_BATCHES):
    boundaries_of(a_gpt(width=width), micro_batch)
