"""A model that `transformers` does not have, in a folder with its code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

KIND = "own_llama"
CONFIGURATION = """
from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    model_type = "own_llama"
"""
MODEL = """
from transformers import LlamaForCausalLM

from .configuration_own import OwnConfig


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def keep_code_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `transformers` copy code there, from where it is run."""
    for module in ("utils.hub", "dynamic_module_utils"):
        name = f"transformers.{module}.HF_MODULES_CACHE"
        monkeypatch.setattr(name, str(folder))


def write_own_model(folder: Path, **fields: object) -> Path:
    """Write configuration and code; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "configuration_own.py").write_text(CONFIGURATION)
    (folder / "modeling_own.py").write_text(MODEL)
    known = {
        "model_type": KIND,
        "auto_map": {
            "AutoConfig": "configuration_own.OwnConfig",
            "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
        },
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    (folder / "config.json").write_text(json.dumps(known | fields))
    return folder
