"""Chains of public models, made without a byte of their weights.

For each configuration: how long capture and cuts take, how many operators the graph
has, how many layers and kinds come out, and the most bytes of one sample that are alive
at a cut. Written to docs/benchmarks/any_module.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.pages import markdown, write_page
from plimsoll_planner.units import MIB
from plimsoll_trainer.adapters.any_module.chain import Chained, chained
from plimsoll_trainer.adapters.any_module.kinds import digest_of
from plimsoll_trainer.errors import WorkloadError

MOST_S = 120.0
HEAD = (
    *("model", "parameters", "operators", "CPU s", "layers", "kinds"),
    "widest cut, one sample",
)
PROSE = """# Chains of any module

`make bench-any_module` writes this page. Each model is built on tensors without bytes
from its public configuration, captured by `torch.export` in training mode and cut
into layers (`plimsoll_trainer.adapters.any_module`); nothing is computed. Seconds
of one core include the construction of the module. A kind is
profiled once. The widest cut has the most bytes in fp32: what a stage that begins there
receives of one sample. Images have 224 x 224 points unless named, texts 512 words.
"""


def words(length: int = 512) -> Tensor:
    """One sample of words."""
    return torch.zeros((1, length), dtype=torch.long)


def images(side: int = 224) -> Tensor:
    """One image."""
    return torch.zeros((1, 3, side, side))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A configuration."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    arguments: tuple[str, ...] = ()
    output: str | None = None


def of_transformers(config: str, model: str, **fields: Any) -> nn.Module:
    """A model of transformers by the names of its classes."""
    import transformers  # noqa: PLC0415 - the benches that need it alone

    made: nn.Module = getattr(transformers, model)(
        getattr(transformers, config)(**fields)
    )
    return made


def of_torchvision(name: str) -> nn.Module:
    """A model of torchvision by its name."""
    from torchvision import models  # noqa: PLC0415 - the benches that need it alone

    made: nn.Module = models.get_model(name, weights=None)
    return made


def text_pair(name: str, kind: str, **fields: Any) -> Case:
    """An encoder and a decoder of words."""
    return Case(
        name=name,
        build=partial(
            of_transformers,
            f"{kind}Config",
            f"{kind}ForConditionalGeneration",
            use_cache=False,
            **fields,
        ),
        inputs=(words(), words()),
        arguments=("input_ids", "decoder_input_ids"),
        output="logits",
    )


def vision(name: str, side: int = 224) -> Case:
    """A classifier of torchvision."""
    build = partial(of_torchvision, name)
    return Case(name=name, build=build, inputs=(images(side),))


GPT2_XL = {"n_embd": 1600, "n_layer": 48, "n_head": 25, "use_cache": False}
T5_LARGE = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
T5_11B = {"d_kv": 128, "d_ff": 65536, "num_heads": 128}
WHISPER = {
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "num_mel_bins": 128,
}
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
BERT_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
CASES = (
    text_pair("T5 large", "T5", decoder_start_token_id=0, **T5_LARGE),
    text_pair("T5 11B", "T5", decoder_start_token_id=0, **{**T5_LARGE, **T5_11B}),
    text_pair("BART large", "Bart"),
    Case(
        name="GPT-2 XL",
        build=partial(of_transformers, "GPT2Config", "GPT2LMHeadModel", **GPT2_XL),
        inputs=(words(1024),),
        arguments=("input_ids",),
        output="logits",
    ),
    Case(
        name="Llama 3 8B",
        build=partial(
            of_transformers,
            "LlamaConfig",
            "LlamaForCausalLM",
            use_cache=False,
            **LLAMA_8B,
        ),
        inputs=(words(4096),),
        arguments=("input_ids",),
        output="logits",
    ),
    Case(
        name="BERT large",
        build=partial(of_transformers, "BertConfig", "BertForMaskedLM", **BERT_LARGE),
        inputs=(words(),),
        arguments=("input_ids",),
        output="logits",
    ),
    Case(
        name="CLIP base",
        build=partial(of_transformers, "CLIPConfig", "CLIPModel"),
        inputs=(words(77), images()),
        arguments=("input_ids", "pixel_values"),
        output="logits_per_image",
    ),
    Case(
        name="Whisper large",
        build=partial(
            of_transformers,
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            use_cache=False,
            **WHISPER,
        ),
        inputs=(torch.zeros((1, 128, 3000)), words(448)),
        arguments=("input_features", "decoder_input_ids"),
        output="logits",
    ),
    vision("resnet152"),
    vision("densenet201"),
    vision("vit_h_14"),
    vision("convnext_large"),
    vision("swin_b"),
    vision("efficientnet_v2_l"),
    vision("regnet_y_128gf"),
)


def measure() -> Iterator[Measurement]:
    """Make a chain of each model."""
    rows, wanted = [], set(sys.argv[1:])
    for case in CASES:
        if wanted and case.name not in wanted:
            continue
        print(case.name, flush=True)
        begun_s = time.process_time()
        try:
            made = chained(case.build, case.inputs, case.arguments, case.output)
        except WorkloadError as error:
            rows.append((case.name, *["-"] * 5, str(error).split(":")[0]))
            continue
        seconds = time.process_time() - begun_s
        rows.append(row_of(case.name, made, seconds))
        yield Measurement(
            name=f"a chain of {case.name}",
            runs=(seconds,),
            unit="s",
            goal=Goal(at_most=MOST_S),
        )
    if not wanted:
        write_page("any_module", PROSE, [("Models", markdown(HEAD, rows))])


def row_of(name: str, made: Chained, seconds: float) -> tuple[str, ...]:
    """A row of the page."""
    tensors = {
        own.name: own.tensor.numel()
        for own in made.captured.owned.values()
        if own.is_trained
    }
    kinds = {
        digest_of(one, part) for one, part in zip(made.slices, made.parts, strict=True)
    }
    widest = max((part.crossing_bytes for part in made.parts[:-1]), default=0)
    return (
        name,
        f"{sum(tensors.values()) / 1e6:.4g} M",
        str(len(made.alive.flow.order)),
        f"{seconds:.1f}",
        str(len(made.parts)),
        str(len(kinds)),
        f"{widest / MIB:.2f} MiB",
    )


if __name__ == "__main__":
    sys.exit(run("any_module", measure))
