"""Small models whose layers carry values past others, as workloads.

    u_net       down, down, middle, up, up: each up takes what its down gives
    memory      an encoder, whose output every block of the decoder takes
    towers      two inputs, a tower for each, joined at the end
    residual    a sum over three layers
    twice       a value that two layers take, the first of which gives another one
    masked      an integer mask, made once and taken by every block
    inputs      three inputs, two of them for later layers

Widths are small, and all forms differ from one another where that is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Layer, Workload

WIDTH, TOKENS, WORDS, SIDE = 16, 6, 11, 8
Function = Callable[..., Any]


class Part(nn.Module):
    """A module whose forward pass is a function of its named parts."""

    def __init__(self, run: Function, **parts: nn.Module) -> None:
        """Take the function and its parts."""
        super().__init__()
        self.run = run
        self.parts = nn.ModuleDict(parts)

    def forward(self, *args: Tensor) -> Any:
        """Run it."""
        return self.run(self.parts, *args)


def a_layer(
    name: str,
    run: Function,
    takes: tuple[str, ...] = (),
    gives: tuple[str, ...] = (),
    /,
    **parts: Callable[[], nn.Module],
) -> Layer:
    """A layer whose kind is its function."""
    return Layer(
        name=name,
        factory=lambda: Part(run, **{key: make() for key, make in parts.items()}),
        kind=run.__name__,
        takes=takes,
        gives=gives,
    )


def noise(shape: tuple[int, ...], step: int, first: int, count: int) -> Tensor:
    """Random samples, each by step and place alone: [count, *shape]."""
    generator = torch.Generator()
    made = []
    for index in range(first, first + count):
        generator.manual_seed(random_key(0, step, index))
        made.append(torch.rand(*shape, generator=generator))
    return torch.stack(made)


def a_workload(layers: list[Layer], given: Function, **fields: Any) -> Workload:
    """A workload of some layers."""
    return Workload(
        **{
            "layers": tuple(layers),
            "loss": functional.mse_loss,
            "batch": given,
            "optimizer": AdamW(learning_rate=1e-3),
            **fields,
        }
    )


def images(step: int, first: int, count: int) -> Batch:
    """Images, and what they would be if they were twice as bright."""
    x = noise((3, SIDE, SIDE), step, first, count)
    return x, 2 * x


def convolution(wide_in: int, wide_out: int) -> Callable[[], nn.Module]:
    """Factory of a convolution."""
    return partial(nn.Conv2d, wide_in, wide_out, 3, padding=1)


def down(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Halve the map; give it as it was."""
    y = functional.relu(parts["body"](x))
    return functional.max_pool2d(y, 2), y


def middle(parts: Any, x: Tensor) -> Tensor:
    """Add to the smallest map."""
    y: Tensor = x + torch.tanh(parts["body"](x))
    return y


def up(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """Double the map, beside one of before."""
    joined = torch.cat([skip, parts["up"](x)], dim=1)
    return functional.relu(parts["body"](joined))


def pixels(parts: Any, x: Tensor) -> Tensor:
    """Make colours of a map."""
    y: Tensor = parts["body"](x)
    return y


def u_net(**fields: Any) -> Workload:
    """Two levels."""
    ups = partial(nn.ConvTranspose2d, kernel_size=2, stride=2)
    return a_workload(
        [
            a_layer("down.0", down, (), ("map.0",), body=convolution(3, 8)),
            a_layer("down.1", down, (), ("map.1",), body=convolution(8, 16)),
            a_layer("middle", middle, body=convolution(16, 16)),
            a_layer(
                *("up.1", up, ("map.1",)),
                up=partial(ups, 16, 16),
                body=convolution(32, 16),
            ),
            a_layer(
                *("up.0", up, ("map.0",)),
                up=partial(ups, 16, 8),
                body=convolution(16, 8),
            ),
            a_layer("pixels", pixels, body=convolution(8, 3)),
        ],
        images,
        **fields,
    )


def sentences(step: int, first: int, count: int) -> Batch:
    """Two sequences of tokens, and the second again as targets."""
    made = (noise((2 * TOKENS,), step, first, count) * WORDS).long()
    return (made[:, :TOKENS], made[:, TOKENS:]), made[:, TOKENS:]


def embed(parts: Any, tokens: Tensor) -> Tensor:
    """Vectors of tokens."""
    y: Tensor = parts["table"](tokens)
    return y


def block(parts: Any, x: Tensor) -> Tensor:
    """A block with a residual sum."""
    y: Tensor = x + parts["out"](functional.gelu(parts["into"](parts["norm"](x))))
    return y


def begin_decoder(parts: Any, memory: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Begin with other tokens; give what the encoder has passed on."""
    return parts["table"](tokens), memory


def attend(parts: Any, x: Tensor, memory: Tensor) -> Tensor:
    """Look at the memory of the encoder."""
    keys, values = parts["sought"](memory), parts["found"](memory)
    weights = torch.softmax(x @ keys.transpose(1, 2), dim=-1)
    y: Tensor = x + parts["out"](weights @ values)
    return y


def words(parts: Any, x: Tensor) -> Tensor:
    """Logits."""
    y: Tensor = parts["head"](x)
    return y


def word_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of every token."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def square() -> nn.Module:
    """A product of the usual width."""
    return nn.Linear(WIDTH, WIDTH)


def table() -> nn.Module:
    """Vectors of all words."""
    return nn.Embedding(WORDS, WIDTH)


BLOCK: dict[str, Callable[[], nn.Module]] = {
    "norm": partial(nn.LayerNorm, WIDTH),
    "into": partial(nn.Linear, WIDTH, 2 * WIDTH),
    "out": partial(nn.Linear, 2 * WIDTH, WIDTH),
}
ATTENTION: dict[str, Callable[[], nn.Module]] = {
    "sought": square,
    "found": square,
    "out": square,
}


def memory(depth: int = 2, **fields: Any) -> Workload:
    """An encoder and a decoder of so many blocks each."""
    return a_workload(
        [
            a_layer("source", embed, table=table),
            *(a_layer(f"encode.{at}", block, **BLOCK) for at in range(depth)),
            a_layer("target", begin_decoder, ("target",), ("memory",), table=table),
            *(
                a_layer(f"decode.{at}", attend, ("memory",), **ATTENTION)
                for at in range(depth)
            ),
            a_layer("words", words, head=partial(nn.Linear, WIDTH, WORDS)),
        ],
        sentences,
        loss=word_loss,
        inputs=("target",),
        **fields,
    )


def pairs(step: int, first: int, count: int) -> Batch:
    """Two vectors of different length, and their means."""
    x = noise((2 * WIDTH,), step, first, count)
    other = noise((WIDTH,), step + 1000, first, count)
    return (x, other), torch.stack([x.mean(1), other.mean(1)], dim=1)


def widen(parts: Any, x: Tensor) -> Tensor:
    """A product and a bend."""
    return functional.gelu(parts["into"](x))


def second(parts: Any, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Begin the second tower; give the end of the first."""
    return functional.gelu(parts["into"](other)), x


def join(parts: Any, x: Tensor, first: Tensor) -> Tensor:
    """Join both."""
    y: Tensor = parts["out"](torch.cat([x, first], dim=1))
    return y


def towers(**fields: Any) -> Workload:
    """Two towers of two layers."""
    return a_workload(
        [
            a_layer("first.0", widen, into=partial(nn.Linear, 2 * WIDTH, 3 * WIDTH)),
            a_layer("first.1", widen, into=partial(nn.Linear, 3 * WIDTH, WIDTH)),
            a_layer(
                *("second.0", second, ("other",), ("first",)),
                into=partial(nn.Linear, WIDTH, 4 * WIDTH),
            ),
            a_layer("second.1", widen, into=partial(nn.Linear, 4 * WIDTH, WIDTH)),
            a_layer("join", join, ("first",), out=partial(nn.Linear, 2 * WIDTH, 2)),
        ],
        pairs,
        inputs=("other",),
        **fields,
    )


def triples(step: int, first: int, count: int) -> Batch:
    """Three vectors of different length, and the first again."""
    parts = [
        noise((width,), step + 1000 * place, first, count)
        for place, width in enumerate((WIDTH, WIDTH // 2, 2 * WIDTH))
    ]
    return tuple(parts), parts[0].clone()


def beside(parts: Any, x: Tensor, other: Tensor) -> Tensor:
    """A product of both."""
    return functional.gelu(parts["into"](torch.cat([x, other], dim=1)))


def inputs(**fields: Any) -> Workload:
    """Three inputs, whose names are not in the order of the alphabet."""
    short, long = WIDTH + WIDTH // 2, 3 * WIDTH
    return a_workload(
        [
            a_layer("one", widen, into=square),
            a_layer("short", beside, ("z",), into=partial(nn.Linear, short, WIDTH)),
            a_layer("long", beside, ("a",), into=partial(nn.Linear, long, WIDTH)),
            a_layer("last", widen, into=square),
        ],
        triples,
        inputs=("z", "a"),
        **fields,
    )


def vectors(step: int, first: int, count: int) -> Batch:
    """Vectors, and themselves."""
    x = noise((WIDTH,), step, first, count)
    return x, x.clone()


def keep(parts: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """A product, given as it is passed."""
    y = parts["into"](x)
    return y, y


def add(parts: Any, x: Tensor, skip: Tensor) -> Tensor:
    """A product, and what was kept."""
    y: Tensor = parts["into"](x) + skip
    return y


def residual(**fields: Any) -> Workload:
    """A sum over three layers."""
    return a_workload(
        [
            a_layer("keep", keep, (), ("skip",), into=square),
            a_layer("one", widen, into=square),
            a_layer("two", widen, into=square),
            a_layer("add", add, ("skip",), into=square),
            a_layer("last", widen, into=square),
        ],
        vectors,
        **fields,
    )


def again(parts: Any, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
    """A product, and what was kept; give half of it as well."""
    y = functional.gelu(parts["into"](x + skip))
    return y, y[:, : WIDTH // 2]


def both(parts: Any, x: Tensor, skip: Tensor, half: Tensor) -> Tensor:
    """A product of all."""
    y: Tensor = parts["out"](torch.cat([x, half, skip], dim=1))
    return y


def twice(**fields: Any) -> Workload:
    """A value that three layers take, the second of which gives another one."""
    wide = WIDTH * 2 + WIDTH // 2
    return a_workload(
        [
            a_layer("keep", keep, (), ("skip",), into=square),
            a_layer("add", add, ("skip",), into=square),
            a_layer("again", again, ("skip",), ("half",), into=square),
            a_layer("one", widen, into=square),
            a_layer(
                "both", both, ("skip", "half"), out=partial(nn.Linear, wide, WIDTH)
            ),
        ],
        vectors,
        **fields,
    )


def embed_masked(parts: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors of tokens; give which of them count, as integers."""
    return parts["table"](tokens), (tokens > 1).long()


def masked_block(parts: Any, x: Tensor, mask: Tensor) -> Tensor:
    """A block for tokens that count."""
    y: Tensor = x + block(parts, x) * mask.unsqueeze(-1)
    return y


def one_sentence(step: int, first: int, count: int) -> Batch:
    """A sequence of tokens, and itself."""
    x = (noise((TOKENS,), step, first, count) * WORDS).long()
    return x, x.clone()


def masked(**fields: Any) -> Workload:
    """Two blocks under a mask."""
    return a_workload(
        [
            a_layer("source", embed_masked, (), ("mask",), table=table),
            *(
                a_layer(f"block.{at}", masked_block, ("mask",), **BLOCK)
                for at in (0, 1)
            ),
            a_layer("words", words, head=partial(nn.Linear, WIDTH, WORDS)),
        ],
        one_sentence,
        loss=word_loss,
        **fields,
    )


MODELS: dict[str, Callable[..., Workload]] = {
    "u-net": u_net,
    "memory": memory,
    "towers": towers,
    "residual": residual,
    "twice": twice,
    "masked": masked,
    "inputs": inputs,
}
