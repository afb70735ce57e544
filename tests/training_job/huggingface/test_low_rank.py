"""Low-rank adapters and frozen parameters: what trains, what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.workloads import finetune
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")


def tuned(model: Path, **fields: Any) -> Workload:
    """A fine-tune of the small model."""
    data = str(model / "notes.jsonl")
    return finetune(str(model), data=data, sequence_length=32, **fields)


def built(workload: Workload) -> dict[str, nn.Module]:
    """All layers, by name."""
    return {
        layer.name: build_layer(workload, place, CPU)
        for place, layer in enumerate(workload.layers)
    }


def trained(layers: dict[str, nn.Module]) -> set[str]:
    """Names of all parameters that train, with their layer's."""
    return {
        f"{layer}.{name}"
        for layer, module in layers.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def test_adapters_train_and_nothing_else(model: Path) -> None:
    """Two matrices for each linear layer of a block, and no part of embedding, head."""
    layers = built(tuned(model, lora={"rank": 2}))
    names = trained(layers)
    assert len(names) == 4 * 7 * 2
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    shapes = {tuple(p.shape) for p in layers["block.0"].parameters() if p.requires_grad}
    assert {(2, 128), (128, 2), (64, 2), (384, 2), (2, 384)} == shapes


def test_adapters_begin_as_nothing(model: Path) -> None:
    """The chain computes what the model did, and the same in each process."""
    plain, adapted = (
        built(tuned(model, **fields)) for fields in ({}, {"lora": {"rank": 2}})
    )
    again = built(tuned(model, lora={"rank": 2}))
    ids = torch.arange(64).view(2, 32)
    outputs = []
    for layers in (plain, adapted):
        x = ids
        for layer in layers.values():
            x = layer(x)
        outputs.append(x)
    assert torch.equal(*outputs)
    for name, parameter in adapted["block.2"].named_parameters():
        assert torch.equal(parameter, again["block.2"].get_parameter(name))


def test_a_traced_layer_has_adapters_without_numbers(model: Path) -> None:
    """As profiler and replay build it."""
    workload = tuned(model, lora={"rank": 2})
    with FakeTensorMode():
        layer = build_layer(workload, 1, CPU)
    real = build_layer(workload, 1, CPU)
    assert {n: p.shape for n, p in layer.named_parameters()} == {
        n: p.shape for n, p in real.named_parameters()
    }


@pytest.mark.parametrize(
    ("frozen", "left"),
    [
        (["model.layers.0.*"], {"block.1", "block.2", "block.3", "embedding", "head"}),
        (["lm_head.weight"], {"block.0", "block.1", "block.2", "block.3", "head"}),
        (["*.mlp.*", "model.norm.*", "*embed*"], {f"block.{i}" for i in range(4)}),
    ],
)
def test_frozen_parameters_do_not_train(
    frozen: list[str], left: set[str], model: Path
) -> None:
    """A tied one is frozen by each of its names; blocks that differ are two kinds."""
    workload = tuned(model, frozen=frozen)
    names = trained(built(workload))
    assert {".".join(n.split(".")[: 2 if n[0] == "b" else 1]) for n in names} == left
    kinds = [layer.kind for layer in workload.layers]
    assert (kinds[1] != kinds[2]) == (frozen == ["model.layers.0.*"])
    assert kinds[2] == kinds[3]


def randomised(layers: dict[str, nn.Module]) -> dict[str, dict[str, Tensor]]:
    """States of layers whose adapters have learnt something."""
    torch.manual_seed(3)
    for layer in layers.values():
        for name, parameter in layer.named_parameters():
            if "lora_" in name:
                nn.init.normal_(parameter, std=0.1)
    return {name: layer.state_dict() for name, layer in layers.items()}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_adapters_are_written_for_peft(model: Path, tmp_path: Path) -> None:
    """Read by it, the model computes what the chain does; merged, what peft merges."""
    workload = tuned(model, lora={"rank": 2, "alpha": 3})
    layers = built(workload)
    states = randomised(layers)
    assert workload.export is not None
    adapters, merged = tmp_path / "adapters", tmp_path / "merged"
    adapters.mkdir()
    workload.export(states.__getitem__, adapters)
    load: Any = AutoModelForCausalLM.from_pretrained
    base = load(model, dtype=torch.bfloat16)
    tuned_model: Any = PeftModel.from_pretrained(
        base, str(adapters), autocast_adapter_dtype=False
    )
    ids = torch.arange(64).view(2, 32)
    x = ids
    for layer in layers.values():
        x = layer(x)
    assert torch.equal(x, tuned_model.train()(input_ids=ids).logits)

    workload = tuned(model, lora={"rank": 2, "alpha": 3, "merge": True})
    assert workload.export is not None
    merged.mkdir()
    workload.export(states.__getitem__, merged)
    base = load(model, dtype=torch.bfloat16)
    in_fp32: Any = PeftModel.from_pretrained(base, str(adapters))
    theirs = in_fp32.merge_and_unload().state_dict()
    for name, tensor in load(merged, dtype=torch.bfloat16).state_dict().items():
        assert torch.equal(tensor, theirs[name]), name


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "moe_intermediate_size": 16,
}
EXPERTS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0]},
    "deepseek_v3": {
        **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
        **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
        **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
    },
    "roberta": {"is_decoder": True, "num_key_value_heads": 4},
    "llama4_text": {"num_local_experts": 4, "intermediate_size_mlp": 48},
}
"""Dense layers called as `peft` calls experts; a router that is a kind of `Linear`; a
head with a layer that is called as one of each block."""


def saved(kind: str, model: Path, folder: Path) -> Path:
    """Folder of a small model of another kind, with the tokenizer of the first."""
    fields = {
        **SIZES,
        **EXPERTS[kind],
        "vocab_size": 1024,
        "max_position_embeddings": 64,
    }
    build: Any = AutoModelForCausalLM.from_config
    torch.manual_seed(1)
    made = build(AutoConfig.for_model(kind, **fields), dtype=torch.float32)
    made.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        ("qwen3_moe", None),
        ("qwen3_moe", ["down_proj", "gate_proj"]),
        ("deepseek_v3", None),
        ("llama4_text", None),
        ("roberta", ["dense"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_adapters_of_other_kinds_are_written_for_peft(
    kind: str, targets: list[str] | None, model: Path, tmp_path: Path
) -> None:
    """Read by `peft`, the model computes what the chain does; blocks alone have any."""
    folder, adapters = saved(kind, model, tmp_path / "model"), tmp_path / "adapters"
    workload = finetune(
        str(folder),
        data=str(model / "notes.jsonl"),
        sequence_length=32,
        precision="fp32",
        lora={"rank": 2, "dropout": 0.1, "targets": targets},
    )
    layers = built(workload)
    names = trained(layers)
    assert all(name.startswith("block.") and "router" not in name for name in names)
    states = randomised(layers)
    adapters.mkdir()
    assert workload.export is not None
    workload.export(states.__getitem__, adapters)
    load: Any = AutoModelForCausalLM.from_pretrained
    tuned_model: Any = PeftModel.from_pretrained(load(folder), str(adapters))
    x = ids = torch.arange(64).view(2, 32)
    for layer in layers.values():
        x = layer.eval()(x)
    torch.testing.assert_close(x, tuned_model.eval()(input_ids=ids).logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora": {"r": 4}}, "lora.r: no such field; the fields are rank"),
        (
            {"lora": {"rank": 0}},
            "lora.rank: got 0, allowed is a whole number at least 1",
        ),
        (
            {"lora": {"rank": 1, "targets": ["query"]}},
            "lora targets 'query', and no linear layer .* q_proj, k_proj",
        ),
        (
            {"lora": {"rank": 1, "targets": "q_proj"}},
            "lora.targets: got 'q_proj', allowed is a list",
        ),
        ({"lora": 8}, "lora: got 8, allowed is a mapping of fields"),
        ({"lora": {"rank": 1, "merge": "false"}}, "lora.merge: got 'false', allowed"),
        ({"frozen": ["model.layer.*"]}, "frozen names 'model.layer.*', and no param"),
        ({"frozen": ["*"]}, "leaves nothing to train"),
        (
            {"lora": {"rank": 1}, "frozen": ["*embed*"]},
            "weights beside the adapters train, .* merge: true",
        ),
    ],
)
def test_senseless_arguments_are_refused(
    fields: dict[str, Any], message: str, model: Path
) -> None:
    """With what would do."""
    with pytest.raises(WorkloadError, match=message):
        tuned(model, **fields)
