"""Small modules of many kinds, and inputs for them: none drops out.

`MODELS` has a function that builds each, the shapes of its inputs without samples, and
how it is called. Weights follow from torch's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.own_operator import Cubes

WORDS = 40
SMALL: dict[str, Any] = {"vocab_size": WORDS, "pad_token_id": 0}
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A module, and how it is called."""

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    """Of its inputs, without samples; those of one dimension are tokens."""
    arguments: tuple[str, ...] = ()
    output: str | None = None
    fewest: int = 1
    """Samples that it runs on."""

    def inputs(self, samples: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Make inputs."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            torch.randint(3, WORDS, (samples, *shape), generator=generator)
            if len(shape) == 1
            else torch.randn((samples, *shape), generator=generator)
            for shape in self.shapes
        )

    def run(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """Call the module itself."""
        named = dict(zip(self.arguments, inputs, strict=False))
        result = module(**named) if named else module(*inputs)
        made: Tensor = result[self.output] if self.output else result
        return made


def of_transformers(config: str, model: str, **fields: Any) -> nn.Module:
    """A model by the names of its classes."""
    import transformers  # noqa: PLC0415

    made: nn.Module = getattr(transformers, model)(
        getattr(transformers, config)(**fields)
    )
    return made


def of_torchvision(name: str, **fields: Any) -> nn.Module:
    """A classifier by the name of what makes it."""
    from torchvision import models  # noqa: PLC0415

    made: nn.Module = getattr(models, name)(**fields)
    return made


def t5() -> nn.Module:
    """An encoder and a decoder, with biases by relative place that all blocks use."""
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    return of_transformers(
        "T5Config",
        "T5ForConditionalGeneration",
        **sizes,
        **SMALL,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        use_cache=False,
    )


def bart() -> nn.Module:
    """An encoder and a decoder, with learned positions and tied words."""
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
    }
    return of_transformers(
        "BartConfig",
        "BartForConditionalGeneration",
        **sides,
        **SMALL,
        **ENDS,
        d_model=16,
        dropout=0.0,
        attention_dropout=0.0,
        max_position_embeddings=16,
        decoder_start_token_id=2,
        use_cache=False,
    )


def gpt2() -> nn.Module:
    """A decoder, with tied words."""
    sizes = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 16}
    still = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    return of_transformers(
        "GPT2Config",
        "GPT2LMHeadModel",
        **sizes,
        **still,
        **SMALL,
        **ENDS,
        use_cache=False,
    )


def llama() -> nn.Module:
    """A decoder, with positions as angles in all blocks.

    Its other attention takes another way where it is captured, with a mask.
    """
    return of_transformers(
        "LlamaConfig",
        "LlamaForCausalLM",
        **SMALL,
        **ENDS,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        attn_implementation="eager",
    )


def clip() -> nn.Module:
    """A tower of images and one of texts; which images go with which texts."""
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "attention_dropout": 0.0,
    }
    return of_transformers(
        "CLIPConfig",
        "CLIPModel",
        text_config={**sizes, **SMALL, **ENDS, "max_position_embeddings": 16},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )


def whisper() -> nn.Module:
    """An encoder of sounds and a decoder of words."""
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
    }
    return of_transformers(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        **sides,
        **SMALL,
        **ENDS,
        d_model=16,
        dropout=0.0,
        num_mel_bins=8,
        max_source_positions=8,
        max_target_positions=16,
        decoder_start_token_id=1,
        use_cache=False,
    )


def resnet() -> nn.Module:
    """Sums around blocks, batch norms, and operators that write in place."""
    return of_torchvision("resnet18", num_classes=5)


def densenet() -> nn.Module:
    """Every layer takes what all before it gave."""
    sizes = {"growth_rate": 4, "num_init_features": 8, "num_classes": 5}
    return of_torchvision("DenseNet", block_config=(2, 3), **sizes)


def vit() -> nn.Module:
    """Patches of an image as words."""
    return of_torchvision(
        "VisionTransformer",
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        num_classes=5,
    )


def convolution(wide_in: int, wide_out: int) -> nn.Module:
    """A convolution with its norm, by groups."""
    return nn.Sequential(
        nn.Conv2d(wide_in, wide_out, 3, padding=1),
        nn.GroupNorm(2, wide_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Maps of each size go around all that is smaller."""

    def __init__(self, width: int = 4, depth: int = 2) -> None:
        """Build it."""
        super().__init__()
        wide = [width * 2**level for level in range(depth + 1)]
        pairs = list(pairwise(wide))
        self.stem = convolution(3, width)
        self.down = nn.ModuleList(convolution(a, b) for a, b in pairs)
        self.middle = convolution(wide[-1], wide[-1])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs)
        )
        self.join = nn.ModuleList(convolution(2 * a, a) for a, _ in reversed(pairs))
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3, side, side] -> [b, 4, side, side]."""
        maps = [self.stem(x)]
        for down in self.down:
            maps.append(down(functional.max_pool2d(maps[-1], 2)))
        y = self.middle(maps.pop())
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([maps.pop(), up(y)], dim=1))
        made: Tensor = self.head(y)
        return made


class TwoTowers(nn.Module):
    """Two inputs, each with layers of its own, and a product of both."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.users = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
        self.items = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
        self.head = nn.Bilinear(8, 8, 5)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """[b, 2, 8] twice -> [b, 2, 5]."""
        made: Tensor = self.head(self.users(users).tanh(), self.items(items).tanh())
        return made


class Experts(nn.Module):
    """A mixture whose routing is fixed: words at even places go to the first one."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
                for _ in range(2)
            )
            for _ in range(2)
        )
        self.gate = nn.Linear(8, 2)
        self.head = nn.Linear(8, WORDS)
        self.register_buffer("place", torch.arange(8) % 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, 8] -> [b, 8, words]."""
        x = self.words(tokens)
        for experts in self.experts:
            gates = self.gate(x).softmax(-1)
            mixed = torch.zeros_like(x)
            for number, expert in enumerate(experts.children()):
                mine = self.get_buffer("place").eq(number).unsqueeze(-1)
                mixed = mixed + mine * expert(x) * gates[..., number : number + 1]
            x = x + mixed
        made: Tensor = self.head(x)
        return made


class Shared(nn.Module):
    """One matrix three times, a module twice, and a head that is the table of words."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.mix = nn.Parameter(torch.randn(8, 8) / 3)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, 8] -> [b, 8, words]."""
        x = self.words(tokens)
        x = self.block(x @ self.mix.softmax(0)) * self.scale
        x = self.block(x @ self.mix.softmax(0)) * self.scale
        made: Tensor = x @ self.mix @ self.words.weight.T
        return made


class InPlace(nn.Module):
    """Writes over what it has made, and over a view of it."""

    calls: Tensor

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 2, 8] -> [b, 2, 8]."""
        self.calls.add_(1)
        for layer in self.layers:
            y = layer(x)
            first, second = y[..., :4], y[..., 4:]
            second.mul_(2.0)
            y += x
            x = functional.relu_(y) + first.mean()
            mask = torch.zeros(x.shape[1], 8)
            mask[:, ::2] = 1.0
            x = x * mask
        return x


class Averages(nn.Module):
    """Writes buffers under torch.no_grad, and what a gradient still comes back to."""

    mean: Tensor
    slow: Tensor

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.normed = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("slow", torch.zeros(8, 8))
        self.seen = torch.zeros(8)
        """Output of the second layer in the last step; no step reads it."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, 1, 8] -> [b, 1, 8]."""
        first, second, third = self.layers
        y = first(x) / x.shape[0] ** 0.5
        before = self.mean.clone()
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean((0, 1)))
            self.slow.lerp_(first.get_parameter("weight"), 0.5)
            target = functional.linear(x, self.slow)
            y.mul_(2.0)
        y = self.normed(y + self.mean).relu()
        with torch.no_grad():
            self.seen = second(y).tanh()
        made: Tensor = third(second(y) * self.seen) + target + before
        return made


class TwoInputs(nn.Module):
    """A condition is added in every block, as the time in a diffusion model."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, 8), nn.SiLU())
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.shifts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """[b, 2, 8], [b, 1, 4] -> [b, 16]."""
        condition = self.time(time)
        for block, shift in zip(self.blocks, self.shifts, strict=True):
            x = x + block(x + shift(condition)).relu()
        return x.reshape(x.shape[0], -1)


def model(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Model:
    """A module that is called with its inputs in order."""
    return Model(build=build, shapes=shapes)


def seq2seq(build: Callable[[], nn.Module]) -> Model:
    """A model of transformers with an encoder and a decoder of words."""
    arguments = ("input_ids", "decoder_input_ids")
    return Model(build=build, shapes=((9,), (5,)), arguments=arguments, output="logits")


def decoder(build: Callable[[], nn.Module]) -> Model:
    """A model of transformers that tells the next word."""
    return Model(build=build, shapes=((9,),), arguments=("input_ids",), output="logits")


MODELS = {
    "t5": seq2seq(t5),
    "bart": seq2seq(bart),
    "gpt2": decoder(gpt2),
    "llama": decoder(llama),
    "clip": Model(
        build=clip,
        shapes=((9,), (3, 16, 16)),
        arguments=("input_ids", "pixel_values"),
        output="logits_per_image",
    ),
    "whisper": Model(
        build=whisper,
        shapes=((8, 16), (5,)),
        arguments=("input_features", "decoder_input_ids"),
        output="logits",
    ),
    "resnet": Model(build=resnet, shapes=((3, 32, 32),), fewest=2),
    "densenet": Model(build=densenet, shapes=((3, 32, 32),), fewest=2),
    "vit": model(vit, (3, 16, 16)),
    "unet": model(UNet, (3, 16, 16)),
    "two_towers": model(TwoTowers, (2, 8), (2, 8)),
    "experts": model(Experts, (8,)),
    "shared": model(Shared, (8,)),
    "in_place": model(InPlace, (2, 8)),
    "averages": model(Averages, (1, 8)),
    "own_operator": model(partial(Cubes, 8, 4), (1, 8)),
    "two_inputs": model(TwoInputs, (2, 8), (1, 4)),
}
