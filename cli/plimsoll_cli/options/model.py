"""The model that a question is about: a profile, or what one is made of.

    profile.json                  as `plimsoll profile` has written it
    Qwen3-8B, ./qwen, org/model   a model of `transformers`: profiled by a trace
    torchvision:resnet50          a classifier of `torchvision`, likewise

In: what was typed. Out: a `ModelProfile`. Called by `plan`, `compare` and `solve`. A
profile of a model is kept in the user's cache: it is the same until the model, the
options or any of the installed code changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from plimsoll_cli.options.files import read, write
from plimsoll_cli.options.types import COUNT
from plimsoll_planner.cache_folder import cache_folder
from plimsoll_planner.engines import GRAPH, GRAPH_MICRO_BATCHES
from plimsoll_planner.errors import InvalidInputError, PlimsollError, UnreadableError
from plimsoll_planner.records.document import read_whole
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, Precision
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.reading.tasks import Family, family_of, files_of

ENTRYPOINTS = {
    Family.TEXT_GENERATION: "plimsoll_trainer.huggingface:pretrain",
    Family.FILL_MASK: "plimsoll_trainer.huggingface:encoder",
    Family.SEQUENCE_CLASSIFICATION: "plimsoll_trainer.huggingface:encoder",
    Family.IMAGE_CLASSIFICATION: "plimsoll_trainer.huggingface:image_classifier",
    Family.TORCHVISION: "plimsoll_trainer.adapters.torchvision:image_classifier",
}
LIBRARIES = ("torch", "transformers", "peft", "torchvision")
OWN_PACKAGES = ("plimsoll_planner", "plimsoll_trainer", "plimsoll_profiler")
PROFILES = "profiles"
"""Folder of the cache."""
TRUST_REMOTE_CODE = "--trust-remote-code"
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """How a model without a profile is to be trained."""

    task: str | None = None
    sequence_length: int | None = None
    image_size: int | None = None
    num_classes: int | None = None
    num_blocks: int | None = None
    precision: str | None = None
    lora_rank: int | None = None
    trust_remote_code: bool | None = None

    @property
    def options(self) -> dict[str, object]:
        """Values by option, those that are not given as None."""
        return {
            "--task": self.task,
            "--sequence": self.sequence_length,
            "--image-size": self.image_size,
            "--classes": self.num_classes,
            "--blocks": self.num_blocks,
            "--precision": self.precision,
            "--lora": self.lora_rank,
            TRUST_REMOTE_CODE: self.trust_remote_code,
        }


def task_option(command: Command) -> Command:
    """Add the option of a model's task."""
    names = [one.value for one in Family if one is not Family.TORCHVISION]
    return click.option(
        "--task",
        type=click.Choice(names),
        help="Of a model without a profile, if not that of its configuration.",
    )(command)


def trust_option(command: Command) -> Command:
    """Add the option that lets code of a model run."""
    return click.option(
        TRUST_REMOTE_CODE,
        is_flag=True,
        default=None,
        help="Run code that comes with a model, if transformers has none for its kind.",
    )(command)


def model_options(command: Command) -> Command:
    """Add the options of a model that has no profile yet."""
    command = click.option(
        "--blocks",
        type=COUNT,
        help="Blocks of a model without a profile, if not as many as it has.",
    )(command)
    command = click.option(
        "--lora",
        type=COUNT,
        metavar="RANK",
        help="Train low-rank adapters of all linear layers, as in --lora 16, and "
        "freeze the weights; for a model without a profile.",
    )(command)
    command = click.option(
        "--precision",
        type=click.Choice([one.value for one in Precision]),
        help="Types of numbers in training, for a model without a profile.  "
        f"[default: {Precision.BF16.value}, with masters in fp32]",
    )(command)
    command = click.option(
        "--image-size",
        type=COUNT,
        help="Rows and columns of an image, for a model without a profile, if not as "
        "many as it is made for.",
    )(command)
    command = click.option(
        "--classes",
        type=COUNT,
        help="Labels that a classifier without a profile tells apart, if not as many "
        "as it is made for.",
    )(command)
    command = click.option(
        "--sequence",
        type=COUNT,
        help="Tokens in a sample, for a model without a profile.",
    )(command)
    return task_option(trust_option(command))


def training_of(options: dict[str, Any]) -> Training:
    """The options of a model, taken out of what click has parsed."""
    return Training(
        task=options.pop("task"),
        sequence_length=options.pop("sequence"),
        image_size=options.pop("image_size"),
        num_classes=options.pop("classes"),
        num_blocks=options.pop("blocks"),
        precision=options.pop("precision"),
        lora_rank=options.pop("lora"),
        trust_remote_code=options.pop("trust_remote_code"),
    )


def profile_of(
    model: str, training: Training, run: Callable[[ProfileRequest], ModelProfile]
) -> ModelProfile:
    """The profile of a model, made by `run` where none is at hand.

    Raises:
        InvalidInputError: there is no such model, or options do not go with it.
    """
    found = profile_in(model)
    if found is not None:
        for option, value in training.options.items():
            if value is not None:
                raise InvalidInputError(
                    f"{option}: {model} is a profile, which was made with one; leave "
                    "it away, or name the model"
                )
        return found
    place = cache_folder() / PROFILES / f"{cache_key(model, training)}.json"
    with suppress(PlimsollError, OSError):
        return read(place, ModelProfile)
    request = request_of(model, training)
    made = run(request)
    with suppress(PlimsollError, OSError):  # a full or closed cache is no fault
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, made)
    return made


def require_measured(model: str, engine: str) -> None:
    """Refuse to place operators of a model that would be traced for it.

    Raises:
        UsageError: says how to get a profile.
    """
    if engine == GRAPH.engine and not is_profile(Path(model)):
        raise click.UsageError(
            f"--engine {engine}: operators are placed by the seconds that each takes "
            f"on a device, and {model} is no profile. Make one there with `plimsoll "
            "profile ENTRYPOINT --source measured --graph-micro-batches "
            f"{','.join(map(str, GRAPH_MICRO_BATCHES))}`, where ENTRYPOINT makes the "
            "workload in Python, or plan with --engine plimsoll"
        )


def profile_in(model: str) -> ModelProfile | None:
    """The profile in a file; None where what was typed is no file of one.

    Raises:
        InvalidInputError: a file is neither a profile nor a configuration.
    """
    path = Path(model)
    if not is_profile(path):
        return None
    try:
        return read(path, ModelProfile)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; a configuration has a model_type") from None


def is_profile(path: Path) -> bool:
    """Whether a path is meant as a profile's, whatever is wrong with the file."""
    if path.is_dir() or not path.exists():
        return path.suffix == ".json" and not path.is_dir()
    try:
        found: object = json.loads(read_whole(path))
    except (UnreadableError, ValueError):
        return True  # its own error says what is wrong
    return not isinstance(found, dict) or "model_type" not in found


def request_of(model: str, training: Training) -> ProfileRequest:
    """Request for the profile of a model, by a trace.

    Raises:
        InvalidInputError: an option does not go with the model, or is missing.
    """
    trusts = training.trust_remote_code
    found = family_of(model, trust_remote_code=bool(trusts))
    family = found if training.task is None else Family(training.task)
    if found is Family.TORCHVISION and training.task is not None:
        family = found if not family.takes_tokens else family
    check_options(model, family, training)
    rank = training.lora_rank
    given = {
        "model": model,
        "task": family.value if family in NAMED else None,
        "sequence_length": training.sequence_length,
        "image_size": training.image_size,
        "classes": training.num_classes,
        "blocks": training.num_blocks,
        "precision": training.precision,
        "lora": None if rank is None else {"rank": rank},
        "trust_remote_code": trusts,
    }
    known = {name: value for name, value in given.items() if value is not None}
    return ProfileRequest(
        entrypoint=ENTRYPOINTS[family],
        arguments=json.dumps(known),
        device_kind=DeviceKind.CUDA,
        source=Source.TRACED,
    )


NAMED = (Family.SEQUENCE_CLASSIFICATION,)
"""Families that are not what their entry point trains by itself."""
MISPLACED: Mapping[str, tuple[Family, ...]] = {
    "--sequence": (Family.IMAGE_CLASSIFICATION, Family.TORCHVISION),
    "--image-size": (
        Family.TEXT_GENERATION,
        Family.FILL_MASK,
        Family.SEQUENCE_CLASSIFICATION,
    ),
    "--classes": (Family.TEXT_GENERATION, Family.FILL_MASK),
    "--blocks": (Family.TORCHVISION,),
    TRUST_REMOTE_CODE: (Family.TORCHVISION,),
    "--lora": tuple(one for one in Family if one is not Family.TEXT_GENERATION),
}
"""Families that an option does not go with."""


def check_options(model: str, family: Family, training: Training) -> None:
    """Refuse options that a model's family does not have, or lacks.

    Raises:
        InvalidInputError: names the option.
    """
    for option, families in MISPLACED.items():
        if training.options[option] is not None and family in families:
            raise InvalidInputError(
                f"{option}: {model} is trained for {family}, which has no such thing; "
                "leave it away"
            )
    if family.takes_tokens and training.sequence_length is None:
        raise InvalidInputError(
            f"{model} is no profile, so it is taken for a model: give the tokens of a "
            "sample, such as --sequence 8192"
        )


def cache_key(model: str, training: Training) -> str:
    """Digest of all that a profile follows from."""
    asked = json.dumps([model, training.options], sort_keys=True)
    digest = hashlib.sha256(asked.encode())
    for line in (*model_stamps(model), *library_stamps(), *code_stamps()):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def model_stamps(model: str) -> Iterator[str]:
    """Yield the content of a model's configuration and code, if they are files here."""
    for file in files_of(model):
        yield f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def library_stamps() -> Iterator[str]:
    """Yield the versions of the libraries that a profile depends on."""
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def code_stamps() -> Iterator[str]:
    """Yield size and time of each source file of ours that makes a profile."""
    for package in OWN_PACKAGES:
        spec = find_spec(package)
        root = Path(str(spec and spec.origin)).parent
        for file in sorted(root.rglob("*.py")):
            status = file.stat()
            yield f"{file.relative_to(root)} {status.st_size} {status.st_mtime_ns}"
