"""Pretrained weights: read by layers, written back as they were, refused if foreign."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.adapters.causal_lm import anatomies_of, workload_of
from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.tensor_names import tensor_names
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import configuration_of
from plimsoll_trainer.huggingface.model_folder import fresh_folder, same_folder
from plimsoll_trainer.huggingface.prepared_layers import prepared
from plimsoll_trainer.huggingface.pretrained import folder_of, pretrained
from plimsoll_trainer.workload import ReadLayer, Workload

LENGTH = 32
SIZES = {
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
FEW_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "gpt2": {"n_positions": 64, "n_inner": 48},
    "bloom": {},
    "phi3": {"num_key_value_heads": 2, "pad_token_id": 0},
    "gemma3_text": {"num_key_value_heads": 1, "head_dim": 8},
    "qwen3_moe": {"num_experts": 4, "num_key_value_heads": 2, **FEW_EXPERTS},
    "mixtral": {"num_local_experts": 4, "num_key_value_heads": 2},
}
"""Names that change, three projections in one, tied heads, experts in one tensor."""


def saved(kind: str, folder: Path) -> nn.Module:
    """A model with random weights, saved in several files."""
    known = AutoConfig.for_model(kind)
    names = {*dir(known), *known.attribute_map}
    fields = {k: v for k, v in (SIZES | KINDS[kind]).items() if k in names}
    torch.manual_seed(1)
    build: Callable[..., Any] = AutoModelForCausalLM.from_config
    made: Any = build(AutoConfig.for_model(kind, **fields), dtype=torch.bfloat16)
    made.save_pretrained(folder, max_shard_size="20KB")
    return made  # type: ignore[no-any-return]


def taken_apart(folder: Path) -> tuple[Workload, Anatomy]:
    """The model in a folder as a workload that starts from its weights."""
    anatomies = anatomies_of(configuration_of(str(folder)), LENGTH)
    anatomy = anatomies[torch.bfloat16]
    fresh = workload_of(anatomies, batch=no_batch, precision=Precision.BF16)
    weights = pretrained(anatomy.model, folder)
    made = prepared(
        *(fresh, anatomy),
        config=anatomy.model.config,
        weights=weights,
        adapters=None,
        frozen=(),
    )
    return made, anatomy


def no_batch(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Stand for data that nobody asks for."""
    raise AssertionError(step, first, count)


def built(workload: Workload) -> dict[str, nn.Module]:
    """All layers, by name."""
    return {
        layer.name: build_layer(workload, place, torch.device("cpu"))
        for place, layer in enumerate(workload.layers)
    }


def in_fp32(layers: dict[str, nn.Module]) -> ReadLayer:
    """Layers as a checkpoint with masters gives them."""

    def read(name: str) -> dict[str, Tensor]:
        state = layers[name].state_dict()
        return {
            own: tensor.float() if tensor.is_floating_point() else tensor
            for own, tensor in state.items()
        }

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_there_and_back(kind: str, tmp_path: Path) -> None:
    """The chain computes what the model does; what is written equals what was read."""
    source, target = tmp_path / "source", tmp_path / "target"
    reference = saved(kind, source)
    workload, _ = taken_apart(source)
    layers = built(workload)
    ids = torch.randint(0, SIZES["vocab_size"], (2, LENGTH))
    x = ids
    for layer in layers.values():
        x = layer.eval()(x)
    assert torch.equal(x, reference.eval()(input_ids=ids).logits)
    target.mkdir()
    assert workload.export is not None
    workload.export(in_fp32(layers), target)
    names = {path.name for path in source.iterdir()}
    assert {path.name for path in target.iterdir()} == names
    for name in names:
        assert (target / name).read_bytes() == (source / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["gpt2", "qwen3_moe"])
def test_fresh_weights_are_read_by_transformers(kind: str, tmp_path: Path) -> None:
    """Without a folder to begin from, in its names and one file."""
    source, target = tmp_path / "source", tmp_path / "target"
    saved(kind, source)
    workload, anatomy = taken_apart(source)
    config = configuration_of(str(source))
    target.mkdir()
    layers = built(workload)
    export = fresh_folder(tensor_names(anatomy), anatomy.model, config)
    export(in_fp32(layers), target)
    load: Callable[..., Any] = AutoModelForCausalLM.from_pretrained
    first, second = (load(path, dtype=torch.bfloat16) for path in (source, target))
    state = second.state_dict()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_layer_reads_its_own_weights_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of another layer, and nothing at all where it is traced."""
    workload, anatomy = taken_apart(model)
    weights = pretrained(anatomy.model, model)
    read: list[str] = []
    real = type(weights.files).read

    def noted(self: Any, name: str) -> Tensor:
        read.append(name)
        return real(self, name)

    monkeypatch.setattr(type(weights.files), "read", noted)
    build_layer(workload, 2, torch.device("cpu"))
    assert read
    assert all(name.startswith("model.layers.1.") for name in read)
    read.clear()
    build_layer(workload, 2, torch.device("meta"))
    assert not read


def copied(model: Path, tmp_path: Path) -> Path:
    """A copy of the model that may be broken."""
    return Path(shutil.copytree(model, tmp_path / "broken"))


def lose_a_file(folder: Path) -> None:
    """Delete the second file."""
    next(folder.glob("*-00002-*")).unlink()


def cut_a_file(folder: Path) -> None:
    """Let the second file end too early."""
    file = next(folder.glob("*-00002-*"))
    file.write_bytes(file.read_bytes()[:-1000])


def lose_all(folder: Path) -> None:
    """Leave the pickled weights of old releases alone."""
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").touch()


def change_the_second(
    folder: Path, change: Callable[[dict[str, Tensor]], object]
) -> None:
    """Change tensors of the second file."""
    file = next(folder.glob("*-00002-*"))
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def shrink_a_tensor(folder: Path) -> None:
    """Give one tensor another shape."""

    def shrink(tensors: dict[str, Tensor]) -> None:
        name = next(name for name in tensors if "mlp" in name)
        tensors[name] = tensors[name][:-1].clone()

    change_the_second(folder, shrink)


def round_a_tensor(folder: Path) -> None:
    """Give one tensor whole numbers."""

    def rounded(tensors: dict[str, Tensor]) -> None:
        name = next(name for name in tensors if "mlp" in name)
        tensors[name] = tensors[name].to(torch.int8)

    change_the_second(folder, rounded)


def add_a_bias(folder: Path) -> None:
    """Give a layer a bias that its configuration leaves out."""
    name = "model.layers.0.self_attn.q_proj.bias"
    change_the_second(folder, lambda tensors: tensors.update({name: torch.zeros(128)}))


def configure(folder: Path, **fields: Any) -> None:
    """Change the configuration beside the weights."""
    config = folder / "config.json"
    known = json.loads(config.read_text()) | fields
    known.pop("layer_types", None)
    config.write_text(json.dumps(known))


def lose_blocks(folder: Path) -> None:
    """Let the configuration have two of the four blocks."""
    configure(folder, num_hidden_layers=2)


def lose_a_tensor(folder: Path) -> None:
    """Leave a norm out, of its file and of the index."""
    change_the_second(folder, lambda tensors: tensors.pop("model.norm.weight"))
    index = folder / "model.safetensors.index.json"
    known = json.loads(index.read_text())
    del known["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(known))


def lie_in_the_index(folder: Path) -> None:
    """Let the index name a tensor that no file has."""
    index = folder / "model.safetensors.index.json"
    known = json.loads(index.read_text())
    known["weight_map"]["model.more"] = known["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(known))


def quantize(folder: Path) -> None:
    """Say that the weights are quantized."""
    configure(folder, quantization_config={"quant_method": "fp8"})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lose_a_file, r"-00002-of-00002.safetensors is missing, which model.safe"),
        (cut_a_file, r"-00002-of-00002.safetensors: .*cut off or no file of safete"),
        (lose_all, r"has neither .* it has pytorch_model.bin: save it again"),
        (
            shrink_a_tensor,
            r"'model.layers.\d.mlp.*' is \[.*and the configuration makes",
        ),
        (lose_a_tensor, r"has no tensor for 'model.norm.weight' of the 'qwen3' model"),
        (lie_in_the_index, r"has no tensor 'model.more', which .*index.json says"),
        (quantize, r"has quantized weights, which are not trained"),
        (round_a_tensor, r"'model.layers.*' is of type torch.int8, and so quantized"),
        (add_a_bias, r"no place for, 1 of them, first 'model.layers.0.self_attn.q_pr"),
        (
            lose_blocks,
            r"has tensors that .* no place for, 22 of them, first 'model.lay",
        ),
    ],
)
def test_broken_weights_are_refused(
    spoil: Callable[[Path], None], message: str, model: Path, tmp_path: Path
) -> None:
    """Before a rank has built anything, naming the first that is wrong."""
    folder = copied(model, tmp_path)
    spoil(folder)
    with pytest.raises(WorkloadError, match=message):
        taken_apart(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Qwen3-8B", "Qwen3-8B is bundled by its sizes alone"),
        ("./nothing", "no folder './nothing' with pretrained weights"),
    ],
)
def test_a_model_without_weights_is_refused(text: str, message: str) -> None:
    """With where weights may come from."""
    with pytest.raises(WorkloadError, match=message):
        folder_of(text)


def test_a_file_is_no_folder(model: Path) -> None:
    """Its folder is asked for."""
    with pytest.raises(WorkloadError, match="is a file, and weights lie in a folder"):
        folder_of(str(model / "config.json"))


def test_a_hub_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With how to go on without it."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(WorkloadError, match=r"no/body: the hub has not given it"):
        folder_of("no/body")


def test_names_that_the_model_lacks_are_left_out(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a value head beside it, which is said, and buffers; the export has the rest.

    Blocks that predict more tokens, and lie behind the last one, are no other model's.
    """
    folder = copied(model, tmp_path)
    rotary = "model.layers.0.self_attn.rotary_emb.inv_freq"
    spare = {"value_head.weight": torch.zeros(2), rotary: torch.zeros(2)}
    change_the_second(folder, lambda tensors: tensors.update(spare))
    workload, anatomy = taken_apart(folder)
    assert "'qwen3' model has no use for, 1 of them, first 'value_head" in caplog.text
    weights = pretrained(anatomy.model, folder)
    assert weights.names.left_out == [rotary, "value_head.weight"]
    export = same_folder(tensor_names(anatomy), weights.names, anatomy.model.config)
    target = tmp_path / "target"
    target.mkdir()
    export(in_fp32(built(workload)), target)
    for file in target.glob("*.safetensors"):
        assert not spare.keys() & load_file(file).keys()
    configure(folder, num_hidden_layers=3, num_nextn_predict_layers=1)
    assert taken_apart(folder)
