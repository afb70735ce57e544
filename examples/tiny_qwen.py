"""A small model as a folder of `transformers`, and texts to fine-tune it on.

    python -m examples.tiny_qwen build/tiny-qwen

The model is a Qwen3 of 0.9 million parameters with random weights in two files, and its
tokenizer is learnt from the Python library's own text; so is the data, `notes.jsonl`
beside it. Where a folder of a real model is at hand, examples/finetune.yaml takes that.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
NUM_FILES, NUM_NOTES = 40, 30
END, PADDING = "<end>", "<pad>"


def main(folder: Path) -> None:
    """Write model, tokenizer and data."""
    texts = list(library_texts())
    tokenizer = a_tokenizer(texts[:NUM_FILES])
    tokenizer.save_pretrained(folder)
    a_model(tokenizer).save_pretrained(folder, max_shard_size="1MB")
    notes = texts[NUM_FILES : NUM_FILES + NUM_NOTES]
    lines = (json.dumps({"text": text}) + "\n" for text in notes)
    folder.joinpath("notes.jsonl").write_text("".join(lines), "utf-8")


def library_texts() -> list[str]:
    """Texts of the Python library, in order of their names."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return [file.read_text("utf-8") for file in islice(files, NUM_FILES + NUM_NOTES)]


def a_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of pairs of bytes, learnt from texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    wrap: Callable[..., PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    return wrap(tokenizer_object=made, eos_token=END, pad_token=PADDING)


def a_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    """A model with random weights, the same each time."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    build: Callable[..., Any] = AutoModelForCausalLM.from_config
    return build(config, dtype=torch.bfloat16)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
