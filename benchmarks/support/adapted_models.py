"""A small language model of which low-rank adapters alone are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.adapters.causal_lm import anatomies_of, parse_config, workload_of
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.huggingface.low_rank import low_rank
from plimsoll_trainer.huggingface.prepared_layers import prepared
from plimsoll_trainer.workload import DTYPES, Workload

RANK = 4


def with_adapters(
    configuration: Mapping[str, Any],
    sequence_length: int,
    tokens_at_once: int,
    precision: Precision = Precision.FP32,
) -> Workload:
    """Give all linear layers of the blocks adapters, and freeze the weights."""
    config = parse_config(configuration)
    anatomies = anatomies_of(config, sequence_length)
    anatomy = anatomies[DTYPES[precision.of_parameters]]
    fresh = workload_of(
        anatomies,
        batch=TextCorpus(sequence_length=sequence_length).batch,
        precision=precision,
        tokens_at_once=tokens_at_once,
    )
    return prepared(
        *(fresh, anatomy),
        config=config,
        weights=None,
        adapters=low_rank({"rank": RANK}, anatomy.blocks),
        frozen=("*",),
    )
