"""Twelve models whose layers form no chain, as workloads made from modules.

    entrypoint: benchmarks.support.branching_models:workload
    args: {name: t5}

None drops out, so that losses of plans can be compared; samples are noise that is the
same wherever it is made.
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

from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Workload

WORDS, WIDTH = 64, 64
SMALL: dict[str, Any] = {"vocab_size": WORDS, "pad_token_id": 0}
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}
SIDES: dict[str, Any] = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A module, how it is called, and what its output has to be like."""

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    """Of its inputs, without samples; those of one dimension are words."""
    classes: int = WORDS
    """Of its last dimension, each place of which is a sample of cross entropy."""
    arguments: tuple[str, ...] = ()
    output: str | None = None
    micro_batch: int = 0
    """That a norm over the batch is trained with; 0: there is none."""
    room: float = 0.45
    """Of a device, as a part of parameters, gradients and Adam's state: less than one
    device needs, and more than the largest layer, which has most of a small U-Net."""


def of_transformers(config: str, model: str, **fields: Any) -> nn.Module:
    """A model by the names of its classes."""
    import transformers  # noqa: PLC0415 - takes seconds

    made: nn.Module = getattr(transformers, model)(
        getattr(transformers, config)(**fields)
    )
    return made


def of_torchvision(name: str, **fields: Any) -> nn.Module:
    """A classifier by the name of what makes it."""
    from torchvision import models  # noqa: PLC0415 - takes seconds

    made: nn.Module = getattr(models, name)(**fields)
    return made


def t5() -> nn.Module:
    """An encoder and a decoder, with biases by relative place that all blocks use."""
    sizes = {"d_model": WIDTH, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
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
    return of_transformers(
        "BartConfig",
        "BartForConditionalGeneration",
        **SIDES,
        **SMALL,
        **ENDS,
        d_model=WIDTH,
        dropout=0.0,
        attention_dropout=0.0,
        max_position_embeddings=32,
        decoder_start_token_id=2,
        use_cache=False,
    )


def whisper() -> nn.Module:
    """An encoder of sounds and a decoder of words."""
    return of_transformers(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        **SIDES,
        **SMALL,
        **ENDS,
        d_model=WIDTH,
        dropout=0.0,
        num_mel_bins=8,
        max_source_positions=8,
        max_target_positions=32,
        decoder_start_token_id=1,
        use_cache=False,
    )


def resnet() -> nn.Module:
    """Sums around blocks, and norms over the batch."""
    from torchvision.models.resnet import BasicBlock, ResNet  # noqa: PLC0415 - seconds

    made: nn.Module = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=8)
    return made


def convolution(wide_in: int, wide_out: int) -> nn.Module:
    """A convolution with its norm, by groups."""
    return nn.Sequential(
        nn.Conv2d(wide_in, wide_out, 3, padding=1),
        nn.GroupNorm(4, wide_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Maps of each size go around all that is smaller."""

    def __init__(self, width: int = 16, depth: int = 2) -> None:
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
        """[b, 3, side, side] -> [b, side, side, 4]."""
        maps = [self.stem(x)]
        for down in self.down:
            maps.append(down(functional.max_pool2d(maps[-1], 2)))
        y = self.middle(maps.pop())
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([maps.pop(), up(y)], dim=1))
        made: Tensor = self.head(y).movedim(1, -1)
        return made


class Block(nn.Module):
    """A residual block of matrices."""

    def __init__(self, width: int) -> None:
        """Build it."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add to what comes in."""
        made: Tensor = x + self.down(functional.gelu(self.up(self.norm(x))))
        return made


class TwoTowers(nn.Module):
    """Two inputs, each with blocks of its own, and a skip of one to the head."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.users = nn.ModuleList(Block(WIDTH) for _ in range(3))
        self.items = nn.ModuleList(Block(WIDTH) for _ in range(3))
        self.head = nn.Linear(3 * WIDTH, 8)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """[b, 4, width] twice -> [b, 4, 8]."""
        skip = users
        for left, right in zip(self.users, self.items, strict=True):
            users, items = left(users), right(items)
        made: Tensor = self.head(torch.cat([users, items, skip], -1))
        return made


class Conditioned(nn.Module):
    """A condition is added in every block, as the time in a diffusion model."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, WIDTH), nn.SiLU())
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(4))
        self.shifts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """[b, 4, width], [b, 1, 4] -> [b, 4, 8]."""
        condition = self.time(time)
        for block, shift in zip(self.blocks, self.shifts, strict=True):
            x = block(x + shift(condition))
        made: Tensor = self.head(x)
        return made


class Experts(nn.Module):
    """A mixture whose routing is fixed: words at even places go to the first one."""

    place: Tensor

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList(Block(WIDTH) for _ in range(2)) for _ in range(3)
        )
        self.gate = nn.Linear(WIDTH, 2)
        self.head = nn.Linear(WIDTH, WORDS)
        self.register_buffer("place", torch.arange(16) % 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, 16] -> [b, 16, words]."""
        x = self.words(tokens)
        for experts in self.layers:
            gates = self.gate(x).softmax(-1)
            mixed = torch.zeros_like(x)
            for number, expert in enumerate(experts.children()):
                mine = self.place.eq(number).unsqueeze(-1)
                mixed = mixed + mine * expert(x) * gates[..., number : number + 1]
            x = x + mixed
        made: Tensor = self.head(x)
        return made


class Clip(nn.Module):
    """A tower of words and one of images, and how both lie to each other."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        sizes: dict[str, Any] = {
            "hidden_size": WIDTH,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "attention_dropout": 0.0,
        }
        self.clip = of_transformers(
            "CLIPConfig",
            "CLIPModel",
            text_config={**sizes, **SMALL, **ENDS, "max_position_embeddings": 32},
            vision_config={**sizes, "image_size": 16, "patch_size": 8},
            projection_dim=8,
        )

    def forward(self, words: Tensor, images: Tensor) -> Tensor:
        """[b, 16], [b, 3, 16, 16] -> [b, 8]."""
        both = self.clip(input_ids=words, pixel_values=images)
        made: Tensor = both.text_embeds * both.image_embeds
        return made


class ResidualMaps(nn.Module):
    """Convolutions with sums around them, norms by group, relu in place."""

    def __init__(self, width: int = 32) -> None:
        """Build it."""
        super().__init__()
        self.stem = convolution(3, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(convolution(width, width), convolution(width, width))
            for _ in range(3)
        )
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3, side, side] -> [b, 8]."""
        x = self.stem(x)
        for block in self.blocks:
            x = functional.relu(x + block(x))
        made: Tensor = self.head(x.mean((2, 3)))
        return made


vit = partial(
    of_torchvision,
    "VisionTransformer",
    image_size=16,
    patch_size=8,
    num_layers=4,
    num_heads=4,
    hidden_dim=WIDTH,
    mlp_dim=128,
    num_classes=8,
)
densenet = partial(
    of_torchvision,
    "DenseNet",
    growth_rate=8,
    block_config=(3, 3),
    num_init_features=16,
    num_classes=8,
)
IMAGE, TEXT = (3, 16, 16), (16,)
BOTH = ("input_ids", "decoder_input_ids")
MODELS = {
    "t5": Model(build=t5, shapes=(TEXT, TEXT), arguments=BOTH, output="logits"),
    "bart": Model(build=bart, shapes=(TEXT, TEXT), arguments=BOTH, output="logits"),
    "whisper": Model(
        build=whisper,
        shapes=((8, 16), TEXT),
        arguments=("input_features", "decoder_input_ids"),
        output="logits",
    ),
    "clip": Model(build=Clip, shapes=(TEXT, IMAGE), classes=8),
    "u-net": Model(build=UNet, shapes=(IMAGE,), classes=4, room=1.12),
    "two towers": Model(build=TwoTowers, shapes=((4, WIDTH),) * 2, classes=8),
    "conditioned": Model(build=Conditioned, shapes=((4, WIDTH), (1, 4)), classes=8),
    "experts": Model(build=Experts, shapes=(TEXT,)),
    "residual maps": Model(build=ResidualMaps, shapes=(IMAGE,), classes=8, room=1.2),
    "vit": Model(build=vit, shapes=(IMAGE,), classes=8),
    "densenet": Model(
        build=densenet, shapes=((3, 32, 32),), classes=8, micro_batch=4, room=2.0
    ),
    "resnet": Model(
        build=resnet, shapes=((3, 32, 32),), classes=8, micro_batch=4, room=0.8
    ),
}


def workload(*, name: str) -> Workload:
    """A workload of one of the models."""
    model = MODELS[name]
    return from_module(
        model.build,
        made(model, 0, 0, 2)[0],
        loss=loss,
        batch=partial(samples, model),
        optimizer=AdamW(learning_rate=1e-3),
        arguments=model.arguments,
        output=model.output,
    )


def loss(output: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy, of whatever shape the output is: the first class of each."""
    rows = output.flatten(0, -2)
    places = targets.repeat_interleave(len(rows) // len(targets))
    return functional.cross_entropy(rows, places % output.shape[-1])


def samples(model: Model, step: int, first: int, count: int) -> Batch:
    """Noise, and a class for each sample that follows from it."""
    inputs, targets = made(model, step, first, count)
    return (inputs[0] if len(inputs) == 1 else inputs), targets


def made(
    model: Model, step: int, first: int, count: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Inputs and targets of some samples."""
    found: list[list[Tensor]] = [[] for _ in model.shapes]
    classes = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(random_key(11, step, index) >> 1)
        for place, shape in enumerate(model.shapes):
            found[place].append(
                torch.randint(3, WORDS, shape, generator=generator)
                if len(shape) == 1
                else torch.randn(shape, generator=generator)
            )
        classes.append(torch.randint(model.classes, (), generator=generator))
    return tuple(map(torch.stack, found)), torch.stack(classes)
