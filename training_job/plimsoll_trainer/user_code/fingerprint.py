"""Fingerprint of the code and versions here, and whether a plan was made for it.

In: the workload's entry point (`package.module:function`) and its arguments. Out: a
`Fingerprint`. The profiler records it, every replay and training process computes it
again and refuses a plan with another one before it allocates anything. The source
digest covers the files that the entry point imports (`source_files`), and models that
its arguments name (`model_files`). Torch is asked for its version through its package
metadata, not imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.pod_names import IMAGE_VARIABLE
from plimsoll_planner.records.model_profile import Fingerprint, LibraryVersion
from plimsoll_trainer.errors import ForeignFingerprintError, TrainerError
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.model_files import model_files
from plimsoll_trainer.user_code.source_files import content_of, home_of, source_files

LIBRARIES = ("bitsandbytes", "lion-pytorch", "numpy", "torchvision", "transformers")
"""Libraries whose version changes what a layer costs, where they are installed."""


def fingerprint_of(entrypoint: str, arguments: str = "{}") -> Fingerprint:
    """Fingerprint of an entry point and its arguments, a JSON object, on this machine.

    Raises:
        MissingSourceError: the entry point's source cannot be found.
        WorkloadError: the arguments are no JSON object.
    """
    given = parse_arguments(arguments)
    return Fingerprint(
        source_digest=source_digest([*source_files(entrypoint), *model_files(given)]),
        python_version=platform.python_version(),
        torch_version=installed_version("torch") or "none",
        libraries=tuple(
            LibraryVersion(name=name, version=version)
            for name in LIBRARIES
            if (version := installed_version(name))
        ),
        image=os.environ.get(IMAGE_VARIABLE, ""),
        arguments=json.dumps(given, sort_keys=True),
    )


def require_same(here: Fingerprint, planned: Fingerprint, entrypoint: str) -> None:
    """Refuse a plan of an entry point that was made for something else.

    Raises:
        ForeignFingerprintError: naming the first difference.
    """
    if here.source_digest != planned.source_digest:
        raise ForeignFingerprintError(
            "the source is not what was planned for: "
            f"{source_in_words(entrypoint, here.arguments)}; "
            "undo what has changed, or profile and plan again"
        )
    for field in type(here).__slots__:
        mine, theirs = getattr(here, field), getattr(planned, field)
        if mine != theirs:
            raise ForeignFingerprintError(
                f"profiled with {field} {theirs!r}, but here it is {mine!r}: profile "
                "and plan again"
            )


NUM_NAMED = 3


def source_in_words(entrypoint: str, arguments: str) -> str:
    """Place of a workload's source, and the files that changed last, in words."""
    imported, named = source_files(entrypoint), model_files(parse_arguments(arguments))
    latest = sorted(
        [*imported, *named], key=lambda one: one[1].stat().st_mtime, reverse=True
    )
    models = f", and the files of models that are named ({len(named)})" * bool(named)
    return (
        f"of the Python files that {entrypoint.partition(':')[0]} in "
        f"{home_of(entrypoint).root} imports ({len(imported)}, its own included)"
        f"{models}, these were written last: "
        f"{', '.join(name for name, _ in latest[:NUM_NAMED])}"
    )


def source_digest(files: Iterable[tuple[str, Path]]) -> str:
    """Digest `sha256:...` over names and contents, wherever the files lie.

    Raises:
        MissingSourceError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for name, file in files:
        content = content_of(file)
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> int:
    """Print the fingerprint of an entry point and its arguments, as JSON."""
    try:
        found = fingerprint_of(sys.argv[1], sys.argv[2])
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found.to_json()) + "\n")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
