"""Fields of the pod template that a person wrote, read with errors that name them.

In: a mapping out of `spec.template`, a field, the path of the mapping. Out: the mapping
or list in the field, or an `InvalidFieldError`. Called wherever a template is read.
"""

from __future__ import annotations

from typing import Final, NoReturn, cast

from plimsoll_operator.kube.api import Object
from plimsoll_planner.errors import InvalidFieldError

PATH: Final = "spec.template"
POD_PATH: Final = f"{PATH}.spec"
MAIN: Final = "trainer"
"""Name of the container that runs our process, if there are several."""


def part_of(whole: Object, field: str, path: str) -> Object:
    """The mapping in a field, made where there is none."""
    found: object = whole.get(field)
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise InvalidFieldError(f"{path}.{field}", found, "a mapping of fields")
    whole[field] = found
    return cast("Object", found)


def entries(whole: Object, field: str, path: str) -> list[Object]:
    """The mappings in a list.

    Raises:
        InvalidFieldError: it is none.
    """
    listed = list_of(whole.get(field) or None, f"{path}.{field}")
    if not all(isinstance(one, dict) for one in listed):
        refuse(f"{path}.{field}", listed, "a list of mappings")
    return cast("list[Object]", listed)


def list_of(found: object, path: str) -> list[object]:
    """A list; nothing is an empty one.

    Raises:
        InvalidFieldError: it is something else.
    """
    if found is not None and not isinstance(found, list):
        raise InvalidFieldError(path, found, "a list")
    return cast("list[object]", found or [])


def refuse(path: str, value: object, rule: str) -> NoReturn:
    """Raise that a field of the template is wrong."""
    raise InvalidFieldError(path, value, rule)
