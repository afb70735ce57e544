"""The hub of models: what its client fetches, or finds in its cache.

In: org/name of a model. Out: paths. Called by `configurations` and `pretrained`. A
mistyped path looks like a name of the hub, so a failure says first what is not here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plimsoll_trainer.errors import WorkloadError, reason_of
from plimsoll_trainer.user_code.model_files import CONFIG_FILE

NAMED = 3
"""Files of a folder in a message, at most."""


def is_hub_name(text: str) -> bool:
    """Whether a text looks like org/name of the hub, and like no path."""
    is_path = text.startswith((".", "/", "~")) or text.endswith(("/", ".json"))
    return text.count("/") == 1 and not is_path


def from_hub(model: str, fetch: Callable[[Any], str], advice: str) -> Path:
    """Path of what is fetched.

    Args:
        model: org/name.
        fetch: asks the client, a module, and gives a path.
        advice: what to do if that fails.

    Raises:
        WorkloadError: the client is missing, or has not got it.
    """
    if find_spec("huggingface_hub") is None:
        raise WorkloadError(
            f"{model}: {missing_here(model)}huggingface_hub is not installed to ask "
            f"the hub: {advice}"
        )
    # Imported here, for what is bundled or at hand needs no hub.
    import huggingface_hub  # noqa: PLC0415 - see above

    try:
        require_answer(huggingface_hub, model)
        return Path(fetch(huggingface_hub))
    except Exception as error:
        raise WorkloadError(
            f"{model}: {missing_here(model)}the hub has not given it "
            f"({reason_of(error)}): {advice}"
        ) from error


def require_answer(client: Any, model: str) -> None:
    """Ask the hub once for what its cache has not got.

    A download asks six times, with a line and a longer wait after each.
    """
    if client.try_to_load_from_cache(model, CONFIG_FILE) is None:
        client.get_hf_file_metadata(client.hf_hub_url(model, CONFIG_FILE))


def missing_here(model: str) -> str:
    """Text about a path whose folder is here, with what that has; else empty."""
    folder, name = Path(model).parent, Path(model).name
    if not folder.is_dir():
        return ""
    there = [path.name for path in folder.iterdir()]
    alike = difflib.get_close_matches(name, there, n=NAMED, cutoff=0.0)
    return f"no such file or folder ({folder} has {', '.join(alike) or 'none'}), and "
