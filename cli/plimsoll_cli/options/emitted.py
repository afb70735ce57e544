"""`--emit`: the question of a command line as a manifest.

In: the model, the options, the problem that was made of them. Out: YAML in a file.
Called by `plan`, which calls the model so in its report as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll_cli.options.files import write_text
from plimsoll_cli.options.model import Training, profile_in, request_of
from plimsoll_cli.options.named_devices import table_on
from plimsoll_operator.api.manifest import LONGEST_NAME
from plimsoll_operator.api.manifest_text import AskedWorkload, manifest_text
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.problem import Problem

EMIT = "--emit"


def check_emitted(path: Path | None, model: str, options: Mapping[str, Any]) -> None:
    """Refuse, before anything is searched, a question that no manifest can ask.

    Raises:
        InvalidInputError: says what is missing.
    """
    if path is None:
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


def emit(
    path: Path, model: str, training: Training, problem: Problem, offers: Path | None
) -> None:
    """Write the manifest."""
    request = request_of(model, training)
    asked = AskedWorkload(
        name=name_of(model),
        entrypoint=request.entrypoint,
        args=json.loads(request.arguments),
    )
    machines = offers and offers.read_text("utf-8-sig")
    table = machines or table_on(problem.offers)
    write_text(path, manifest_text(asked, problem, table))


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
