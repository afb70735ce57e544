"""Arguments from YAML, as functions and records declare them.

    @typed
    def pretrain(model: Name, *, sequence_length: Count, frozen: Names | None = None)

In: values by name. Out: the same, lists as tuples and whole numbers as floats where
such are declared. Types are those of records, with their bounds
(`plimsoll_planner.records`); what is declared otherwise is passed on for the function
to judge. Called by the entry points of room `huggingface`, and by `optimizers`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import Name, Range
from plimsoll_planner.records.record import Record, mapping_of, shape_of
from plimsoll_planner.records.shape import Shape
from plimsoll_trainer.errors import WorkloadError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Fields = TypeVar("Fields", bound=Record)
Names = tuple[Name, ...]
LARGEST = 1e300
PLAIN: dict[object, Any] = {
    int: Annotated[int, Range(minimum=-LARGEST, maximum=LARGEST)],
    float: Annotated[float, Range(minimum=-LARGEST, maximum=LARGEST)],
}
"""What is declared without a bound has none that anybody reaches."""
Seed = Annotated[int, Range(minimum=0, maximum=2**63 - 1)]
NotNegative = Annotated[float, Range(minimum=0, maximum=1e6)]
Positive = Annotated[float, Range(minimum=0, maximum=1e6, above=True)]


def typed(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function refuse arguments of other types than it declares."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Parameters.args, **given: Parameters.kwargs) -> Result:
        bound = signature.bind(*args, **given)
        bound.arguments.update(checked(bound.arguments, function))
        return function(*bound.args, **bound.kwargs)

    return call


def checked(given: Mapping[str, Any], declared: Any) -> dict[str, Any]:
    """Values as a function or a class declares them.

    Raises:
        WorkloadError: names the first that is something else, and what is allowed.
    """
    shapes = shapes_in(declared)
    found = dict(given)
    for name in shapes.keys() & given.keys():
        with errors_of_arguments():
            found[name] = shapes[name].read(given[name], name)
            shapes[name].check(found[name], name)
    return found


@functools.cache
def shapes_in(declared: Any) -> dict[str, Shape]:
    """Shapes by name, of what is declared as records declare it."""
    found: dict[str, Shape] = {}
    for name, hint in get_type_hints(declared, include_extras=True).items():
        try:
            found[name] = shape_of(PLAIN.get(hint, hint))
        except TypeError:  # judged by the function
            continue
    return found


def mapping(given: object, path: str) -> dict[str, object]:
    """An argument that has several fields.

    Raises:
        WorkloadError: it is something else.
    """
    with errors_of_arguments():
        return mapping_of(given, path)


def fields_of(record: type[Fields], given: object, path: str) -> Fields:
    """Fields of an argument that has several.

    Raises:
        WorkloadError: one is unknown, missing or of another type.
    """
    with errors_of_arguments():
        return record.from_json(given, path)


@contextmanager
def errors_of_arguments() -> Iterator[None]:
    """Within it, a field that is wrong makes the workload wrong.

    Raises:
        WorkloadError: says of the field what a record does.
    """
    try:
        yield
    except InvalidFieldError as error:
        raise WorkloadError(str(error)) from None
