"""`--emit`: the question of a command line as a manifest.

In: the model, the options, the problem that was made of them. Out: YAML in a file.
Called by `plan`, which calls the model so in its report as well. A model trains from
fresh weights, or with `--train-data` from those in its folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from plimsoll_cli.options.files import write_text
from plimsoll_cli.options.model import ENTRYPOINTS, Training, profile_in, request_of
from plimsoll_cli.options.named_devices import table_on
from plimsoll_operator.api.manifest import LONGEST_NAME
from plimsoll_operator.api.manifest_text import AskedWorkload, manifest_text
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.problem import Problem
from plimsoll_profiler.reading.tasks import Family

EMIT = "--emit"
TRAIN_DATA = "--train-data"
FINETUNE = "plimsoll_trainer.huggingface:finetune"
WEIGHT_FILES = "*.safetensors"


def check_emitted(
    path: Path | None,
    model: str,
    train_data: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Refuse, before anything is searched, a question that no manifest can ask.

    Raises:
        InvalidInputError: says what is missing.
        UsageError: there is data, and no manifest to name it in.
    """
    if path is None:
        if train_data:
            raise click.UsageError(f"{TRAIN_DATA}: needs {EMIT} beside it")
        return
    if profile_in(model) is not None:
        raise InvalidInputError(
            f"{EMIT}: {model} is a profile, which does not say how its workload is "
            "built: name the model"
        )
    if options["steps"] is None:
        raise InvalidInputError(f"{EMIT}: a training has so many steps: give --steps")
    offers: Path | None = options["offers"]
    if offers is not None and offers.suffix.casefold() == ".json":
        raise InvalidInputError(
            f"{EMIT}: a manifest has its machines as a table: give --offers as CSV, or "
            "--on"
        )
    check_weights(model, train_data, num_blocks=options["blocks"])


def check_weights(
    model: str, train_data: Sequence[str], *, num_blocks: int | None
) -> None:
    """Refuse to pass over weights, and to fine-tune what has none.

    Raises:
        InvalidInputError: names the option to give, or to leave away.
    """
    folder = Path(model)
    if not train_data:
        if folder.is_dir() and any(folder.glob(WEIGHT_FILES)):
            raise InvalidInputError(
                f"{EMIT}: {model} has weights, and the manifest would train fresh "
                f"ones: give {TRAIN_DATA} FILE to fine-tune these, or name its "
                "config.json to begin with fresh ones"
            )
        return
    if not folder.is_dir() and (folder.exists() or "/" not in model):
        raise InvalidInputError(
            f"{TRAIN_DATA}: {model} has sizes alone, and a fine-tune begins with "
            "weights: name the folder that has them, or org/name of the hub"
        )
    if num_blocks is not None:
        raise InvalidInputError(
            f"--blocks: a fine-tune has all blocks of {model}; leave it away, or leave "
            f"{TRAIN_DATA} away"
        )


def emit(
    path: Path,
    asked: AskedWorkload,
    problem: Problem,
    offers: Path | None,
) -> None:
    """Write the manifest."""
    machines = offers and offers.read_text("utf-8-sig")
    table = machines or table_on(problem.offers)
    write_text(path, manifest_text(asked, problem, table))


def asked_workload(
    model: str, training: Training, train_data: Sequence[str]
) -> AskedWorkload:
    """The workload that a manifest names.

    Raises:
        InvalidInputError: the model is of a kind that is not fine-tuned.
    """
    request = request_of(model, training)
    entrypoint, args = request.entrypoint, json.loads(request.arguments)
    if train_data:
        if entrypoint != ENTRYPOINTS[Family.TEXT_GENERATION]:
            raise InvalidInputError(
                f"{TRAIN_DATA}: {model} is no causal language model, and no other is "
                f"fine-tuned; leave {TRAIN_DATA} away to train fresh weights"
            )
        data = train_data[0] if len(train_data) == 1 else list(train_data)
        entrypoint = FINETUNE
        args = {"model": args.pop("model"), "data": data, **args}
    return AskedWorkload(name=name_of(model), entrypoint=entrypoint, args=args)


def name_of(model: str) -> str:
    """Name of a plan for a model: what is left of its own that a name can have."""
    words = re.findall(r"[a-z0-9]+", called(model).casefold())
    name = re.sub(r"^[^a-z]+", "", "-".join(words))
    return name[:LONGEST_NAME].strip("-") or "model"


def called(model: str) -> str:
    """Own name of a model: a file's without its ending, else all of it, dots too."""
    path = Path(model)
    if path.is_file():
        return path.stem
    return (path.resolve().name if path.exists() else model).rpartition("/")[2]
