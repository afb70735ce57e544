"""Says in fields of a spec what the search says in fields of a problem.

In: errors of the planner, about a problem that a spec made: `Problem.num_steps`. Out:
the same in the words of whoever wrote the spec: `spec.training.steps`. Called where a
spec becomes a question.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.problem import renamed

PATH_OF = {
    "offers": "spec.search.offers",
    "engine": "spec.search.engine",
    "global_batch_size": "spec.training.globalBatchSize",
    "num_steps": "spec.training.steps",
    "batch_statistics": "spec.training.batchStatistics",
    "max_gpus": "spec.search.maxGPUs",
    "headroom": "spec.search.headroom",
    "max_micro_batch": "spec.search.maxMicroBatch",
    "whole_nodes": "spec.search.wholeNodes",
    "goal": "spec.search.objective",
    "rate_floor": "spec.search.rateFloor",
    "min_samples_per_s": "spec.search.minSamplesPerSecond",
    "throughput_tolerance": "spec.search.throughputTolerance",
    "deadline_s": "spec.search.deadlineSeconds",
    "num_gpus": "spec.override.gpus",
    "num_stages": "spec.override.pipeline",
    "data_degree": "spec.override.data",
    "micro_batch": "spec.override.microBatch",
    "cuts": "spec.override.cuts",
    "recomputed_layers": "spec.override.recomputedLayers",
}
"""The last part of a field's path in a problem, and where a spec has it."""


def in_spec(text: str) -> str:
    """Return a text with fields of a spec in the place of those of a problem."""
    return renamed(text, PATH_OF)


@contextmanager
def told_in_spec() -> Generator[None]:
    """Raise errors about a problem's fields as errors about those of its spec."""
    try:
        yield
    except InvalidFieldError as error:
        path, allowed = in_spec(error.path), in_spec(error.allowed)
        raise InvalidFieldError(path, error.value, allowed) from None
