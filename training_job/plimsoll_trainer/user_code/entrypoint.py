"""Loads an entry point: from `package.module:function` and arguments to a `Workload`.

Called by the trainer and the profiler before either allocates anything. Whatever the
user's code does wrong becomes one line that names the entry point, what was expected
and the next step.

Every process of a job draws the same random numbers in it: the generators of torch,
Python and numpy are seeded before the import and before the call, from the argument
`seed` where it is a whole number.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from plimsoll_trainer.errors import (
    THEIR_ERRORS,
    EntryPointFullError,
    TrainerError,
    WorkloadError,
    located,
    one_of,
)
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.random_keys import random_key, seed_process
from plimsoll_trainer.workload import Workload

SEED = "seed"
"""Argument of an entry point that its random numbers depend on, where it has one."""


def load_workload(entrypoint: str, arguments: Mapping[str, Any]) -> Workload:
    """Workload that the function of an entry point gives for arguments by name.

    Raises:
        WorkloadError: it cannot be imported or called, or gives something else.
        EntryPointFullError: it needs more memory than the device has.
    """
    module_name, function_name = split(entrypoint)
    given = arguments.get(SEED)
    seed = given if isinstance(given, int) else 0
    seed_process(random_key(seed, 0))
    module = load_module(entrypoint, module_name)
    function = find_function(entrypoint, module, function_name)
    check_arguments(entrypoint, function, arguments)
    seed_process(random_key(seed, 1))  # whatever the import has drawn
    try:
        made = function(**arguments)
    except TrainerError as error:  # it says already what is wrong with the workload
        raise WorkloadError(f"entry point {entrypoint}: {error}") from error
    except THEIR_ERRORS as error:
        refuse(entrypoint, f"raised {located(error)}; call it in a Python shell", error)
    if not isinstance(made, Workload):
        refuse(
            entrypoint,
            f"returned {type(made).__name__}, but a plimsoll_trainer.workload.Workload "
            "is needed: build one, or use plimsoll_trainer.adapters",
        )
    check_callbacks(entrypoint, made)
    return made


def check_callbacks(entrypoint: str, made: Workload) -> None:
    """Look for callbacks that are named, before a rank trains and calls them."""
    for name in made.callbacks:
        if not isinstance(name, str):
            continue
        try:
            function_named(name)
        except WorkloadError as error:
            text = str(error).removeprefix("entry point ")
            refuse(entrypoint, f"callback {text}", error)


def function_named(name: str) -> Callable[..., object]:
    """The function that `module:function` names.

    Raises:
        WorkloadError: there is none.
    """
    module, function = split(name)
    return find_function(name, load_module(name, module), function)


def split(entrypoint: str) -> tuple[str, str]:
    """Module and function of an entry point."""
    module, colon, function = entrypoint.partition(":")
    if not (module and colon and function):
        refuse(entrypoint, "is not of the form package.module:function; write it so")
    return module, function


def load_module(entrypoint: str, module: str) -> ModuleType:
    """Import the module, whatever its code raises."""
    try:
        return importlib.import_module(module)
    except THEIR_ERRORS as error:
        parts = module.split(".")
        ours = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        if isinstance(error, ModuleNotFoundError) and error.name in ours:
            refuse(
                entrypoint,
                f"there is no module {error.name} on the Python path; check the name, "
                "and that its folder is in PYTHONPATH",
                error,
            )
        refuse(
            entrypoint,
            f"module {module} does not import: {located(error)}; import it in a "
            "Python shell",
            error,
        )


def find_function(
    entrypoint: str, module: ModuleType, name: str
) -> Callable[..., object]:
    """The function, which may be an attribute of an attribute."""
    found: object = module
    for part in name.split("."):
        names = [known for known in dir(found) if not known.startswith("_")]
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, names, n=3)
            hint = f"it has {', '.join(names[:8])}" if names else "it defines nothing"
            if close:
                hint = f"did you mean {' or '.join(close)}?"
            refuse(entrypoint, f"{module.__name__} has no {part}; {hint}")
        found = getattr(found, part)
    if not callable(found):
        refuse(
            entrypoint,
            f"{name} is {type(found).__name__}, but a function that returns a Workload "
            "is needed; name one",
        )
    return found


def check_arguments(
    entrypoint: str, function: Callable[..., object], arguments: Mapping[str, Any]
) -> None:
    """Refuse arguments before the call, so that a TypeError inside is told apart."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins have none; the call will tell
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        names = list(signature.parameters)
        for name in arguments:
            if name not in names and "unexpected keyword" in str(error):
                refuse(entrypoint, f"has no argument {name!r}: {one_of(name, names)}")
        if missing := missing_in(signature, arguments):
            noun = "argument" if len(missing) == 1 else "arguments"
            refuse(
                entrypoint,
                f"needs the {noun} {', '.join(missing)}: give a value for each",
            )
        refuse(
            entrypoint,
            f"does not take the arguments {dict(arguments)}: {error}; its parameters "
            f"are {signature}",
        )


def missing_in(signature: inspect.Signature, arguments: Mapping[str, Any]) -> list[str]:
    """Names of parameters without a default that no argument is given for."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in signature.parameters.items()
        if name not in arguments
        and parameter.default is inspect.Parameter.empty
        and parameter.kind not in collecting
    ]


def refuse(entrypoint: str, text: str, cause: BaseException | None = None) -> NoReturn:
    """Raise the error that names the entry point.

    Raises:
        EntryPointFullError: what it did needs more memory than the device has.
        WorkloadError: it cannot be used.
    """
    if cause is not None and is_out_of_memory(cause):
        raise EntryPointFullError(
            f"entry point {entrypoint}: it needs more memory for itself than the "
            f"device has ({located(cause)}), and no plan changes that: let it give "
            "factories that build one layer each (from_factories), or take devices "
            "with more memory"
        ) from cause
    raise WorkloadError(f"entry point {entrypoint}: {text}") from cause
