"""Turns files and options of a command line into a `Problem`.

In: what a person typed (`question`). Out: records; everything is checked on the way,
and errors name options: `--steps` for `Problem.num_steps`. Documents that people write
themselves keep the paths of their fields. Called by `plan`, `compare` and `solve`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from plimsoll_cli.options.files import read
from plimsoll_cli.options.named_devices import ON, machines_on
from plimsoll_cli.options.offers import read_offers
from plimsoll_cli.options.question import typed
from plimsoll_planner.engines import engine_named
from plimsoll_planner.errors import (
    InvalidFieldError,
    InvalidInputError,
    UnreadableError,
    shorten,
)
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search_fields import problem_parts
from plimsoll_planner.vocabulary import IN_OPTIONS, Vocabulary

LAYERS_OF = {
    "override.recomputed_layers": "--recompute",
    "override.offloaded_layers": "--offload",
}
"""Lists of layers, by the path of their row."""
LISTS = {
    "override.cuts": ("--cuts", "first layers such as 0,9,17"),
    "override.in_flight_caps": ("--in-flight-caps", "one for each stage, as in 3,2,1"),
}
"""Lists of whole numbers, by the path of their row: option and example."""
OFFERS_ADVICE = "plimsoll offers --output json > offers.json lists this machine"
PRICELESS = (
    f"--objective: MinimizeCost needs prices, which {ON} has none of: give a table of "
    "machines with a column Price, by --offers"
)
NAMED = Vocabulary(IN_OPTIONS.names | {"offers": ON})
"""The words of the command line, if machines are named by their device."""
LAYERS = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


def read_problem(profile: ModelProfile, options: dict[str, Any]) -> Problem:
    """The question about a profile, with all that the options of `question` name.

    Raises:
        InvalidInputError: a file cannot be read, or parts do not fit together.
    """
    values, named = typed(options), options.pop("on")
    with errors_in_options(NAMED if named else IN_OPTIONS):
        if named and values["objective.goal"] is Goal.MINIMIZE_COST:
            raise InvalidInputError(PRICELESS)
        offers = machines(profile, values["offers"], named)
        for field, (option, example) in LISTS.items():
            if values[field] is not None:
                values[field] = parse_list(option, values[field], example)
        for field, option in LAYERS_OF.items():
            if values[field] is not None:
                values[field] = parse_layers(option, values[field], profile)
        parts = problem_parts(values)
        most = num_devices(offers) if named else None
        if most is not None and values["limits.max_gpus"] is None:
            most = max(most, parts["override"].least_gpus)
            parts["limits"] = replace(parts["limits"], max_gpus=most)
        overheads = (read(path, DeviceOverhead) for path in values["overheads"])
        return Problem(
            profile=profile,
            overheads=with_built_in(overheads, offers),
            offers=offers,
            engine=engine_named(values["engine"], profile.fingerprint.torch_version),
            **parts,
        )


def machines(
    profile: ModelProfile, path: Path | None, named: Sequence[str]
) -> tuple[Offer, ...]:
    """The machines of a file, or those with devices of some names.

    Raises:
        InvalidInputError: neither or both are given, or one of them is no good.
    """
    if path is not None and named:
        raise InvalidInputError(
            f"{ON} and --offers both name the machines: leave one of them away"
        )
    if path is None and not named:
        raise InvalidInputError(
            "the machines: give --on, such as --on 8xH100-80GB, or --offers with a "
            f"table; {OFFERS_ADVICE}"
        )
    if path is not None:
        return offers_for(profile, path)
    if profile.device_kind is not DeviceKind.CUDA:
        raise InvalidInputError(
            f"{ON} names GPUs, and the profile is for {profile.device_kind} devices: "
            "profile with --device cuda, or give --offers"
        )
    return tuple(machines_on(text) for text in dict.fromkeys(named))


def num_devices(offers: Iterable[Offer]) -> int | None:
    """Most devices that one of the offers has; None where one has no known end."""
    counts = [(one.nodes_available, one.devices_per_node) for one in offers]
    if any(nodes is None for nodes, _ in counts):
        return None
    return max((nodes or 0) * per_node for nodes, per_node in counts)


def offers_for(profile: ModelProfile, path: Path) -> tuple[Offer, ...]:
    """The offers of the profile's kind of device.

    Raises:
        InvalidInputError: the file cannot be read, or has no such device.
    """
    try:
        found = read_offers(path)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {OFFERS_ADVICE}") from None
    mine = tuple(offer for offer in found if offer.device_kind is profile.device_kind)
    if not mine:
        kinds = " and ".join(sorted({offer.device_kind for offer in found})) or "no"
        raise UnreadableError(
            f"{path}: lists {kinds} devices, and the profile is for "
            f"{profile.device_kind} ones; profile with another --device, or name other "
            "--offers"
        )
    return mine


def parse_list(option: str, text: str, example: str) -> tuple[int, ...]:
    """Read whole numbers with commas between."""
    if not NUMBERS.fullmatch(text):
        raise InvalidFieldError(option, text, example)
    return tuple(int(number) for number in text.split(","))


def parse_layers(option: str, text: str, profile: ModelProfile) -> tuple[int, ...]:
    """Read layers; `all` are those that can be what the option asks for."""
    if text == "none":
        return ()
    if text == "all":
        costs = profile.costs
        can = dict(zip(costs.kind, costs.recomputable, strict=True))
        is_any = option != "--recompute"
        kinds = enumerate(profile.layers.kind)
        return tuple(at for at, kind in kinds if is_any or can[kind])
    if not LAYERS.fullmatch(text):
        rule = "all, none, or layers such as 0-5,8"
        raise InvalidFieldError(option, text, rule)
    layers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if not run:
            raise InvalidFieldError(option, part, f"{last}-{first}")
        layers.extend(run)
    return tuple(layers)


@contextmanager
def errors_in_options(words: Vocabulary) -> Generator[None]:
    """Raise errors about a problem's fields as errors about options.

    Raises:
        InvalidInputError: one line with what was typed and what is allowed.
    """
    try:
        with words.errors():
            yield
    except InvalidFieldError as error:
        if not error.path.startswith("--"):
            raise
        got = "missing;"
        if error.value is not None:
            got = f"got {as_typed(error.value)},"
        text = f"{error.path}: {got} allowed is {error.allowed}"
        raise InvalidInputError(text) from None


def as_typed(value: object) -> str:
    """A value as it stands on a command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "none"
    return shorten(value)
