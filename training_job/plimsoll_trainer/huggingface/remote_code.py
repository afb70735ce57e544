"""Code that comes with a model, which is run only if a person asks for that.

    "auto_map": {"AutoConfig": "configuration_own.OwnConfig",
                 "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}

Its classes are registered with `transformers`, which then builds this kind of model
like one of its own, and so does everything here. In: the fields of a configuration, and
the folder or hub's name that the code lies in. Called by `configurations`, and by
`model_folder`, which writes the code beside trained weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig, dynamic_module_utils
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.utils import hub

from plimsoll_trainer.errors import WorkloadError, reason_of
from plimsoll_trainer.huggingface.locking import one_at_a_time

AUTO_MAP = "auto_map"
CONFIG_CLASS = "AutoConfig"
LOCK = ".plimsoll.lock"
CODE_OF: dict[type, tuple[Path, ...]] = {}
"""Files by the class of the configuration that they came with."""
find_class: Callable[..., type] = dynamic_module_utils.get_class_from_dynamic_module


def has_code(fields: Mapping[str, Any]) -> bool:
    """Whether code comes with a configuration."""
    found: object = fields.get(AUTO_MAP)
    return isinstance(found, Mapping) and isinstance(found.get(CONFIG_CLASS), str)


def register_code(fields: Mapping[str, Any], place: str, *, is_asked_for: bool) -> None:
    """Let `transformers` know the classes that a configuration names, if it has none.

    Args:
        fields: of a configuration.
        place: folder or hub's name of the model.
        is_asked_for: whether code may be run.

    Raises:
        WorkloadError: it may not, is not there, or cannot be run.
    """
    kind = fields.get("model_type")
    if not has_code(fields) or is_own(kind):
        return
    if not is_asked_for:
        raise WorkloadError(
            f"{place}: the installed transformers has no model_type {kind!r}, and the "
            "code that comes with the model is run only where that is asked for: give "
            "trust_remote_code: true among the arguments, or --trust-remote-code"
        )
    names: Mapping[str, str] = fields[AUTO_MAP]
    try:
        # Each process copies the code to where Python looks for it.
        with one_at_a_time(Path(hub.HF_MODULES_CACHE) / LOCK):
            config = find_class(names[CONFIG_CLASS], place)
            AutoConfig.register(kind, config, exist_ok=True)
            found = [config]
            for name, reference in names.items():
                auto_class: Any = getattr(modeling_auto, name, None)
                if auto_class is not None:
                    found.append(find_class(reference, place))
                    auto_class.register(config, found[-1], exist_ok=True)
            CODE_OF[config] = tuple(file for one in found for file in beside(one))
    except Exception as error:
        raise WorkloadError(
            f"{place}: the code that comes with it cannot be run: {reason_of(error)}"
        ) from error


def is_own(kind: object) -> bool:
    """Whether `transformers` itself has a kind of model."""
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        return False
    return CONFIG_MAPPING[kind].__module__.startswith("transformers.")


def beside(found: type) -> Iterator[Path]:
    """Yield the files that a class was loaded from, with those it imports."""
    for file in Path(inspect.getfile(found)).parent.glob("*.py"):
        if file.name != "__init__.py":  # made by transformers
            yield file


def code_of(config: PreTrainedConfig) -> tuple[Path, ...]:
    """Files that came with a configuration and were run; none, if there are none."""
    return CODE_OF.get(type(config), ())
