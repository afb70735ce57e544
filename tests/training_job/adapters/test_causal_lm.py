"""A chain cut out of a causal language model computes what the model computes."""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.causal_lm import causal_lm, next_token_loss, parse_config
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.layer_runs import run_last
from plimsoll_trainer.engine.stage import StageModule, StageSlice, build_stage
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import TokenLoss, Workload
from tests.support.cases import at_night, named

CPU = torch.device("cpu")
SEQUENCE = 24
WINDOW = 8
BASE = {
    "bos_token_id": None,
    "eos_token_id": None,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 260,
    "max_position_embeddings": 64,
}
MLP = BASE | {"intermediate_size": 48}
GROUPED = MLP | {"num_key_value_heads": 2}
GEMMA = GROUPED | {
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 5.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
OLD = {
    "bos_token_id": None,
    "eos_token_id": None,
    "n_layer": 3,
    "n_embd": 32,
    "n_head": 4,
    "vocab_size": 260,
    "n_positions": 64,
}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
GEMMA_3N = GROUPED | {
    "model_type": "gemma3n_text",
    "head_dim": 8,
    "vocab_size_per_layer_input": 260,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0,
    "layer_types": ["full_attention"] * 3,
    "activation_sparsity_pattern": [0.0] * 3,
    "laurel_rank": 4,
}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 16,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": BASE,
    "llama": GROUPED,
    "llama, tied": GROUPED | {"tie_word_embeddings": True},
    "opt": BASE | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "opt, projected": BASE
    | {"ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    "mistral": GROUPED | {"sliding_window": WINDOW},
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 8},
    "gemma2": GEMMA | {"attn_logit_softcapping": None},
    "gemma3_text": GEMMA,
    "gpt_neox": MLP,
    "phi3": GROUPED | {"pad_token_id": 0},
    "phi3, long": GROUPED
    | {
        "pad_token_id": 0,
        "original_max_position_embeddings": 16,
        "rope_parameters": LONG_ROPE,
    },
    "falcon": BASE,
    "bloom": {"hidden_size": 32, "n_layer": 3, "n_head": 4, "vocab_size": 260},
    "mpt": {"d_model": 32, "n_layers": 3, "n_heads": 4, "vocab_size": 260},
    "gptj": OLD | {"rotary_dim": 4},
    "cohere": GROUPED,
    "granite": GROUPED | {"logits_scaling": 4.0, "embedding_multiplier": 3.0},
    "mixtral": GROUPED | {"num_local_experts": 4},
    "qwen2_moe": GROUPED
    | EXPERTS
    | {
        "num_experts": 4,
        "decoder_sparse_step": 2,
        "shared_expert_intermediate_size": 16,
    },
    "qwen3_next": GROUPED
    | EXPERTS
    | {
        "head_dim": 8,
        "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "shared_expert_intermediate_size": 16,
    },
}


def release(version: str) -> tuple[int, ...]:
    """Major and minor number of a version."""
    return tuple(map(int, version.split(".")[:2]))


IS_LATE = release(transformers.__version__) >= (5, 23)
"""Whether masks and long rotary embeddings of transformers look at no number."""
FOLLOWED_LATE = ("opt", "opt, projected", "phi3, long")


def followed(*families: str) -> list[str]:
    """Those of some families that can be followed in this transformers."""
    return [name for name in families if IS_LATE or name not in FOLLOWED_LATE]


SIMILAR = {
    *("llama, tied", "opt", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "mpt"),
    *("gptj", "cohere", "qwen2_moe"),
}
"""Families whose layers are like those of another one here."""
FOLLOWED = named(followed(*FAMILIES))
each_family = pytest.mark.parametrize(
    "family", at_night(SIMILAR & FOLLOWED.keys(), FOLLOWED)
)


def a_config(family: str, **fields: Any) -> Any:
    """Configure a tiny model without dropout."""
    model_type = family.partition(",")[0]
    config = transformers.AutoConfig.for_model(model_type, **FAMILIES[family])
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def an_encoder(family: str, **fields: Any) -> Any:
    """Configure a tiny encoder without dropout, as it comes but for its sizes."""
    no_dropout = dict.fromkeys(
        ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0
    )
    return transformers.AutoConfig.for_model(family, **MLP, **no_dropout, **fields)


def a_chain(family: str, *, precision: Precision = Precision.FP32) -> Workload:
    """Build the workload of a tiny model."""
    return causal_lm(
        a_config(family),
        sequence_length=SEQUENCE,
        precision=precision,
        tokens_at_once=7,
        seed=3,
    )


@pytest.mark.parametrize("family", FOLLOWED_LATE)
def test_a_family_is_followed_since_transformers_5_23(family: str) -> None:
    """Before, it is refused by its message."""
    if IS_LATE:
        assert a_chain(family).layers
        return
    with pytest.raises(WorkloadError, match="cannot be followed to its blocks"):
        a_chain(family)


def whole(workload: Workload, recomputed: frozenset[int] = frozenset()) -> StageModule:
    """Build all layers in one process."""
    end = len(workload.layers)
    part = StageSlice(first_layer=0, end_layer=end, recomputed=recomputed)
    return build_stage(workload, part, CPU)


def the_model(config: Any, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build the model as transformers does."""
    torch.manual_seed(5)
    build: Callable[..., Any] = transformers.AutoModelForCausalLM.from_config
    model: nn.Module = build(config, dtype=dtype)
    return model.train()


def pairs(stage: StageModule, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each parameter of the chain with the model's own."""
    theirs = dict(model.named_parameters(remove_duplicate=False))
    last = len(stage.layers) - 1
    met = set()
    for name, mine in stage.layers.named_parameters(remove_duplicate=False):
        layer, _, rest = name.partition(".")
        _, _, path = rest.partition(".")
        if layer not in ("0", str(last)):
            inside = f".{int(layer) - 1}.{path}"
            (path,) = (each for each in theirs if each.endswith(inside))
        met.add(path)
        yield mine, theirs[path]
    assert met == theirs.keys()


def same_weights(stage: StageModule, model: nn.Module) -> None:
    """Copy the model's weights into the chain."""
    with torch.no_grad():
        for mine, theirs in pairs(stage, model):
            mine.copy_(theirs)


def apart(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative to the largest value."""
    scale = right.abs().max().item() or 1.0
    return (left - right).abs().max().item() / scale


@each_family
def test_a_chain_computes_what_its_model_does(family: str) -> None:
    """Logits and all gradients are equal with equal weights, tied ones included."""
    workload = a_chain(family)
    model, stage = the_model(a_config(family)), whole(workload)
    same_weights(stage, model)
    inputs, targets = workload.batch(0, 0, 5)
    theirs, mine = model(input_ids=inputs, use_cache=False).logits, stage(inputs)
    assert apart(mine, theirs) <= 1e-6
    torch.autograd.backward(next_token_loss(theirs, targets)[0])
    torch.autograd.backward(stage(inputs, targets=targets))
    for own, other in pairs(stage, model):
        assert own.grad is not None
        if other.grad is None:  # an expert that no token went to
            assert not own.grad.any()
        else:
            assert apart(own.grad, other.grad) <= 1e-6


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text", "granite", "opt, projected"])
def test_a_head_and_its_loss_take_a_few_tokens_at_a_time(family: str) -> None:
    """Sum, count and gradients equal those of all logits, capped and scaled ones."""
    workload = a_chain(family)
    assert isinstance(workload.loss, TokenLoss)
    last = len(workload.layers) - 1
    shapes, found = boundaries_of(workload, 3), []
    values = torch.randn(shapes.between[last].shape)
    targets = workload.batch(0, 0, 3)[1].index_fill(1, torch.arange(9), -100)
    for in_pieces in (False, True):
        head, x = build_layer(workload, last, CPU), values.clone().requires_grad_()
        loss = run_last(head, workload.loss, x, targets, recomputed=in_pieces)
        torch.autograd.backward(loss[0])
        found.append([*loss, x.grad, *(p.grad for p in head.parameters())])
    for in_all, in_pieces in zip(*found, strict=True):
        assert apart(in_pieces, in_all) <= 1e-6


def test_a_head_that_takes_no_fewer_tokens_is_run_whole() -> None:
    """That of GPT-J looks at how many tokens were embedded."""
    assert a_chain("gptj").loss is next_token_loss


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3_text"])
def test_a_chain_in_bf16_computes_what_its_model_does(family: str) -> None:
    """The types inside are the model's own: tables in fp32, activations in bf16."""
    workload = a_chain(family, precision=Precision.BF16)
    model = the_model(a_config(family), torch.bfloat16)
    stage = whole(workload)
    same_weights(stage, model)
    inputs, _ = workload.batch(0, 0, 2)
    mine = stage(inputs)
    assert mine.dtype == torch.bfloat16
    assert torch.equal(mine, model(input_ids=inputs, use_cache=False).logits)


def test_dropout_is_that_of_the_model() -> None:
    """A chain in training draws at the same places as the model."""
    rates = {"embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.4}
    config = a_config("gpt2", **rates)
    workload = causal_lm(config, sequence_length=SEQUENCE)
    model, stage = the_model(config), whole(workload)
    same_weights(stage, model)
    x, _ = workload.batch(0, 0, 2)
    torch.manual_seed(11)
    theirs = model(input_ids=x, use_cache=False).logits
    torch.manual_seed(11)
    for layer in stage.layers.values():
        x = layer(x)
    assert apart(x, theirs) <= 1e-6


def test_recomputing_all_layers_changes_nothing() -> None:
    """Ends of the chain run twice as well as blocks do, dropout on.

    To the bit, where the loss takes all tokens at once.
    """
    config = a_config("gpt2", embd_pdrop=0.2, attn_pdrop=0.2, resid_pdrop=0.2)
    made = causal_lm(config, sequence_length=SEQUENCE)
    workload = replace(made, loss=next_token_loss)
    batch = workload.batch(0, 0, 2)
    stored, twice = whole(workload), whole(workload, frozenset(range(5)))
    losses = [stage(batch[0], targets=batch[1]) for stage in (stored, twice)]
    for loss in losses:
        loss.backward()
    assert losses[0] == losses[1]
    for left, right in zip(stored.parameters(), twice.parameters(), strict=True):
        assert left.grad is not None
        assert right.grad is not None
        assert torch.equal(left.grad, right.grad)


@each_family
def test_all_layers_run_on_fake_tensors(family: str) -> None:
    """Shapes of the profiler and the replay are those of a real run.

    Torch before 2.15 multiplies by experts in bf16 alone where there are no numbers.
    """
    takes_fp32 = "moe" not in family and family not in ("mixtral", "qwen3_next")
    is_new = release(torch.__version__) >= (2, 15)
    precision = Precision.FP32 if takes_fp32 or is_new else Precision.BF16
    workload = a_chain(family, precision=precision)
    for batch in (1, 4):
        between = boundaries_of(workload, batch).between
        assert between[0].shape == (batch, SEQUENCE)
        assert between[-1].shape == (batch, SEQUENCE, 260)
    with FakeTensorMode():
        stage = whole(workload)
        ids = torch.zeros(3, SEQUENCE, dtype=torch.long)
        stage(ids, targets=ids).backward()


@pytest.mark.parametrize(
    "family", followed("gpt2", "llama", "opt", "gemma3_text", "bloom", "mixtral")
)
def test_a_layer_has_the_same_weights_every_time(family: str) -> None:
    """They follow from the seed alone, and are what the model itself starts with."""
    workload = a_chain(family)
    once, again = whole(workload), whole(workload)
    for left, right in zip(once.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)
    for own, other in pairs(once, the_model(a_config(family))):
        mean, deviation = other.mean().item(), other.std(correction=0).item()
        error = 5 * deviation / other.numel() ** 0.5
        assert abs(own.mean().item() - mean) <= 2 * error + 1e-9
        assert own.std(correction=0).item() == pytest.approx(deviation, rel=0.5)


def test_tied_weights_are_a_tie() -> None:
    """Embedding and projection of a tied model are one tensor; untied, they are two."""
    for family, count in (("llama, tied", 1), ("llama", 0)):
        ties = [tie.places for tie in a_chain(family).ties]
        assert [places[0][0] for places in ties].count("embedding") == count
    stage = whole(a_chain("llama, tied"))
    embedded = stage.layers["0"].get_parameter("model.model.embed_tokens.weight")
    assert stage.layers["4"].get_parameter("model.lm_head.weight") is embedded


def buffers_of(stage: nn.Module) -> list[Tensor]:
    """Every buffer, shared ones at every place."""
    return [buffer for _, buffer in stage.named_buffers(remove_duplicate=False)]


def test_constants_are_held_once_in_a_rank() -> None:
    """Rotary tables of all blocks are the same tensors, and no checkpoint has them."""
    stage = whole(a_chain("llama"))
    assert len(buffers_of(stage)) == 9
    assert len({buffer.data_ptr() for buffer in buffers_of(stage)}) == 3
    assert not [name for name in stage.state_dict() if "constant" in name]
    for buffer in buffers_of(stage):
        assert buffer.untyped_storage().nbytes() == buffer.nbytes


@pytest.mark.parametrize(
    ("family", "length", "masks"),
    [("llama", 24, 0), ("mistral", WINDOW - 1, 0), ("mistral", 24, 1), ("gpt2", 24, 0)],
)
def test_plainly_causal_attention_has_no_mask(
    family: str, length: int, masks: int
) -> None:
    """Only a window that is shorter than the sequence needs sequence^2 elements."""
    workload = causal_lm(a_config(family), sequence_length=length)
    for mode in (FakeTensorMode, None):
        block = build_layer(workload, 1, CPU) if mode is None else fake_block(workload)
        square = [b for b in block.buffers() if b.numel() == length**2]
        assert len(square) == masks


def fake_block(workload: Workload) -> nn.Module:
    """Build the first block on fake tensors."""
    with FakeTensorMode():
        return build_layer(workload, 1, CPU)


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("llama", ["block.0"] * 3),
        ("gpt2", ["block.0"] * 3),
        ("gemma3_text", ["block.0", "block.0", "block.2"]),
        ("qwen2_moe", ["block.0", "block.1", "block.0"]),
        ("qwen3_next", ["block.0", "block.0", "block.2"]),
    ],
)
def test_equal_blocks_are_of_one_kind(family: str, kinds: list[str]) -> None:
    """Another window or other modules make another kind; another place does not."""
    layers = a_chain(family).layers
    assert [layer.name for layer in layers[1:-1]] == ["block.0", "block.1", "block.2"]
    assert [layer.kind for layer in layers] == ["embedding", *kinds, "head"]


@pytest.mark.parametrize(
    "family", followed("gpt2", "llama, tied", "opt, projected", "mixtral")
)
def test_a_layer_holds_its_own_weights_alone(family: str) -> None:
    """No parameter of the model is in two layers unless it is tied."""
    config, workload = a_config(family), a_chain(family)
    layers = [build_layer(workload, i, CPU) for i in range(len(workload.layers))]
    names = [name for layer in layers for name, _ in layer.named_parameters()]
    shared = sum(len(tie.places) - 1 for tie in workload.ties if not tie.constant)
    assert len(names) - shared == len(list(the_model(config).parameters()))


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text"])
def test_a_forward_pass_leaves_nothing_behind(family: str) -> None:
    """Outputs die with their last reference, without the garbage collector."""
    stage = whole(a_chain(family))
    x, targets = a_chain(family).batch(0, 0, 2)
    gc.collect()
    gc.disable()
    try:
        dead = []
        for layer in stage.layers.values():
            x = layer(x)
            dead.append(weakref.ref(x))
        assert targets.shape == x.shape[:2]
        del x
        assert [output() for output in dead] == [None] * len(dead)
    finally:
        gc.enable()


def resident_bytes() -> int:
    """Bytes of the machine's memory that this process holds."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def test_layers_of_a_large_model_cost_nothing_to_look_at() -> None:
    """Embedding, a block and the head of 8 billion parameters, without a byte."""
    before, began = resident_bytes(), time.monotonic()
    workload = causal_lm(LLAMA_8B, sequence_length=4096, precision=Precision.BF16)
    sizes = []
    with FakeTensorMode():
        for index in (0, 1, 33):
            layer = build_layer(workload, index, CPU)
            sizes.append(sum(p.nbytes for p in layer.parameters()))
    assert sizes == [1_050_673_152, 436_224_000, 1_050_681_344]
    assert resident_bytes() - before < 2**28
    assert time.monotonic() - began < 20


def test_the_precision_can_be_changed_afterwards() -> None:
    """A layer is built in the type that torch is set to, under fake tensors too."""
    workload = a_chain("llama")
    torch.set_default_dtype(torch.bfloat16)
    try:
        with FakeTensorMode():
            kinds = {p.dtype for p in workload.layers[1].factory().parameters()}
    finally:
        torch.set_default_dtype(torch.float32)
    assert kinds == {torch.bfloat16}


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: {"model_type": "t5"}, "'t5' model has an encoder beside its decoder"),
    (lambda: {"model_type": "no_such"}, "model_type 'no_such'"),
    (lambda: {"depth": 3}, "names no model_type"),
    (lambda: {"model_type": "llama", "hidden_size": "x"}, "model_type 'llama' with"),
    (lambda: {"model_type": "vit"}, "cannot be built as a causal language model"),
    (lambda: a_config("gpt2", vocab_size=100), "vocab_size 100 is below 256"),
    (lambda: a_config("gpt2", n_positions=8), "beyond max_position_embeddings 8"),
    (lambda: a_config("gpt2", n_layer=0), "num_hidden_layers 0 of the 'gpt2' model"),
    (lambda: a_config("opt", layerdrop=0.1), "layerdrop 0.1 of the 'opt' model"),
    (lambda: GEMMA_3N, "a second tensor that depends on the tokens"),
    (lambda: {"model_type": "xlnet"}, "parameter 'mask_emb' beside its modules"),
    (lambda: an_encoder("bert"), "tokens of the 'bert' model see later ones"),
    (lambda: an_encoder("roberta"), "instead of to predict it: set is_decoder=True"),
    (lambda: an_encoder("roformer"), "tokens of the 'roformer' model see later ones"),
    (
        lambda: an_encoder("xmod"),
        "its blocks: ValueError: .*; set is_decoder=True",
    ),
    (lambda: "gpt2", r"but is given 'gpt2': pass AutoConfig.from_pretrained\('gpt2'\)"),
    (lambda: Path("a/model"), r"is given 'a/model': pass AutoConfig"),
    (
        lambda: the_model(a_config("gpt2")),
        "is given a model, GPT2LMHeadModel: pass its",
    ),
    (lambda: 3, "takes a configuration, but is given int: pass one of transformers"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_is_no_chain_is_refused_in_one_line(
    config: Callable[[], Any], message: str
) -> None:
    """The line names the model and what was not found."""
    with pytest.raises(WorkloadError) as caught:
        causal_lm(config(), sequence_length=SEQUENCE)
    assert re.search(message, str(caught.value)) or message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_encoder_that_is_configured_as_a_decoder_is_taken(family: str) -> None:
    """Then no token sees a later one: probed without touching torch's random state."""
    before = torch.get_rng_state()
    config = an_encoder(family, is_decoder=True)
    made = causal_lm(config, sequence_length=SEQUENCE)
    assert torch.equal(torch.get_rng_state(), before)
    stage = whole(made).eval()
    ids = torch.arange(SEQUENCE).unsqueeze(0)
    logits, others = stage(ids), stage(ids.where(ids < SEQUENCE - 1, 7))
    assert torch.equal(logits[:, :-1], others[:, :-1])


def test_weights_that_nothing_starts_are_refused() -> None:
    """A model whose initialisation forgets a weight would train from zeros."""
    workload = causal_lm(OLD | {"model_type": "openai-gpt"}, sequence_length=SEQUENCE)
    with pytest.raises(WorkloadError, match=r"does not say what .* starts with"):
        build_layer(workload, 1, CPU)


@pytest.mark.parametrize(
    ("kind", "field", "meant"),
    [
        ("llama", "hiden_size", "hidden_size"),
        ("gpt2", "n_layers", "n_layer"),
        ("gpt2", "hiden_size", "hidden_size"),
    ],
)
def test_a_misspelled_field_is_refused(kind: str, field: str, meant: str) -> None:
    """`transformers` keeps it, and trains a model of the default's size."""
    message = f"model_type '{kind}' has no field '{field}': did you mean '{meant}'"
    with pytest.raises(WorkloadError, match=message):
        parse_config({"model_type": kind, field: 3})


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_fields_of_files_and_other_releases_are_taken(kind: str) -> None:
    """They resemble no field, or are one that a class maps to its own."""
    fields = {"rope_theta": 1e4, "num_hidden_layers": 3, "auto_map": {}}
    made = parse_config({"model_type": kind, "architectures": ["X"]} | fields)
    assert made.num_hidden_layers == 3


def test_a_sample_has_tokens() -> None:
    """Without any, torch's own words about shapes reached the user."""
    with pytest.raises(WorkloadError, match="sequence_length 0 is below 1: give"):
        causal_lm({"model_type": "llama"}, sequence_length=0)
