import gc
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from ffmem.errors import ModelError
from ffmem.models import loading
from ffmem.models.fingerprint import tokenizer_digest, weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import is_in_hub_cache, load
from ffmem.models.tiny import tiny_model, tiny_tokenizer
from ffmem.models.wrapping import wrap


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved toy: config, safetensors, tokenizer."""
    tiny_model("gpt2").save_pretrained(tmp_path / "toy")
    tiny_tokenizer().save_pretrained(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture(scope="module")
def mixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved mixture of experts."""
    path = tmp_path_factory.mktemp("mixture")
    tiny_model("mixtral").save_pretrained(path)
    return path


def test_a_folder_loads_as_the_model_that_was_saved(folder: Path) -> None:
    model = load(str(folder))
    tokens = model.encode("hello")
    saved = tiny_model("gpt2")
    for name, weight in saved.state_dict().items():
        assert torch.equal(model.model.state_dict()[name], weight)
    torch.testing.assert_close(model.model(tokens).logits, saved(tokens).logits)
    assert model.tokenizer is not None
    assert model.dtype == torch.float32


@pytest.mark.parametrize("collects", [True, False])
def test_python_collects_garbage_after_a_load_as_before(collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    try:
        load("tiny:opt")
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_a_pickled_checkpoint_loads_as_plain_tensors_only(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load(str(folder)).memories == 192
    torch.save({"transformer.wte.weight": Path()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights that are damaged, or not plain tensors"):
        load(str(folder))


def test_a_folder_without_tokenizer_loads_and_says_so_when_asked_to_read(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    model = load(str(folder))
    assert model.tokenizer is None
    with pytest.raises(ModelError, match="without a tokenizer"):
        model.encode("hello")


def test_a_truncated_checkpoint_is_refused_in_one_sentence(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="files are whole"):
        load(str(folder))


def test_a_checkpoint_that_lacks_weights_is_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of its weights, .*h\.1\.mlp\.c_fc\.weight"):
        load(str(folder))


def test_an_encoder_decoder_is_called_one(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1}
    T5ForConditionalGeneration(T5Config(**sizes, num_heads=2)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="is an encoder-decoder, not a causal language model"):
        load(str(tmp_path))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(number: float) -> None:
    toy = tiny_model("opt")
    with torch.no_grad():
        toy.get_decoder().layers[1].fc1.weight[3, 3] = number
    with pytest.raises(ModelError, match=r"NaN or infinite numbers in its weight .*1\.fc1\.weight"):
        wrap(toy)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_here_is_not_recommended() -> None:
    with pytest.raises(ModelError, match="cannot be used") as caught:
        load("tiny:opt", device="cuda")
    assert "cuda" not in str(caught.value).rpartition(";")[2]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no/such/folder/here", "no model at"),
        ("nobody/no-such-model", "hub cannot be reached"),
        ("missing.gguf", "no file missing.gguf"),
        ("tiny:nonsense", "no causal language model of type 'nonsense'"),
        ("tiny:dbrx", "mixtures of experts"),
        ("tiny:mamba", "mamba"),
    ],
)
def test_a_name_that_leads_nowhere_says_so(name: str, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        load(name)


def test_a_hub_that_does_not_reply_is_asked_once(
    silent_hub: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own library would ask six times, and wait for half a minute between them."""
    with pytest.raises(ModelError, match="hub cannot be reached"):
        load("nobody/no-such-model")
    assert len(silent_hub) == 1
    with pytest.raises(ModelError, match="nobody--x"):
        load("nobody--x")  # which the hub would not have
    assert len(silent_hub) == 1
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert not is_in_hub_cache("owner/model", None)
    folder = tmp_path / "models--owner--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (folder / "snapshots" / ("0" * 40) / "config.json").write_text("{}")
    assert is_in_hub_cache("owner/model", None)


def test_a_folder_that_is_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load(str(tmp_path))


def test_a_file_that_is_not_gguf_says_so(tmp_path: Path) -> None:
    file = tmp_path / "notes.gguf"
    file.write_text("hello")
    with pytest.raises(ModelError, match="not a GGUF file"):
        load(str(file))


def test_a_gguf_without_a_text_model_says_so(tmp_path: Path) -> None:
    import gguf

    file = tmp_path / "vision.gguf"
    writer = gguf.GGUFWriter(file, "clip")
    writer.add_uint32("clip.vision.image_size", 224)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"vision\.gguf could not be loaded: .*clip"):
        load(str(file))


def test_a_gguf_file_loads_as_the_model_that_was_written(tmp_path: Path) -> None:
    file = tmp_path / "toy.gguf"
    expected = write_llama_gguf(file)
    model = load(str(file))
    assert model.gated
    for layer, weights in zip(model.layers, expected, strict=True):
        torch.testing.assert_close(layer.values.T, weights)
    assert model.tokenizer is not None


def test_a_gguf_file_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "toy.gguf"
    write_llama_gguf(file)
    through, sources = loading.through_transformers, []

    def watch(name: str, source: str, options: dict[str, Any], *more: Any) -> Any:
        sources.append("file" if "gguf_file" in options else "folder")
        return through(name, source, options, *more)

    monkeypatch.setattr(loading, "through_transformers", watch)
    one, two = load(str(file)), load(str(file))
    assert sources == ["file", "folder", "folder"]
    packed, tokenizer = through(str(file), str(tmp_path), {"gguf_file": file.name}, torch.float32)
    for model in (one, two):
        assert weights_digest(model.model) == weights_digest(packed)
        assert tokenizer_digest(model.tokenizer) == tokenizer_digest(tokenizer)
    os.utime(file, ns=(1, 1))  # the same content in another file: read, but not unpacked
    load(str(file))
    assert sources[3:] == ["folder"]
    write_llama_gguf(file, seed=1)
    load(str(file))
    assert sources[4:] == ["file", "folder"]


def test_an_unpacked_gguf_file_that_is_cut_off_is_unpacked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FFMEM_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "toy.gguf"
    write_llama_gguf(file)
    expected = weights_digest(load(str(file)).model)
    (weights,) = (tmp_path / "cache" / "gguf").glob("*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert weights_digest(load(str(file)).model) == expected


def write_llama_gguf(file: Path, seed: int = 0) -> list[torch.Tensor]:
    """A two-layer Llama in GGUF's own names; returns its value matrices."""
    import gguf

    torch.manual_seed(seed)
    width, memories, words = 32, 64, 300
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(memories)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(words)
    alphabet = ["<s>", "a", "b", "ab", "aba", *(f"<{i}>" for i in range(5, words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(alphabet)
    writer.add_token_types([1] * words)
    # Two, because transformers up to 5.17 takes a list of one merge for its only element.
    writer.add_token_merges(["a b", "ab a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    tensors = {
        "token_embd.weight": torch.randn(words, width),
        "output_norm.weight": torch.ones(width),
    }
    values = []
    for block in range(2):
        name = f"blk.{block}"
        for norm in ("attn_norm", "ffn_norm"):
            tensors[f"{name}.{norm}.weight"] = torch.ones(width)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"{name}.{part}.weight"] = torch.randn(width, width) / 6
        for part in ("ffn_gate", "ffn_up"):
            tensors[f"{name}.{part}.weight"] = torch.randn(memories, width) / 6
        values.append(torch.randn(width, memories) / 6)
        tensors[f"{name}.ffn_down.weight"] = values[-1]
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def test_an_unknown_device_or_dtype_says_what_to_write() -> None:
    with pytest.raises(ModelError, match="cpu, cuda"):
        load("tiny:opt", device="toaster")
    with pytest.raises(ModelError, match="bfloat16"):
        load("tiny:opt", dtype="float7")


def test_code_inside_a_checkpoint_is_not_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "surprise"
    config["auto_map"] = {
        "AutoConfig": "surprise.SurpriseConfig",
        "AutoModelForCausalLM": "surprise.Surprise",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "surprise.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('yes')\n")
    with pytest.raises(ModelError, match="brings its own code, which is not run by default"):
        load(str(folder))
    assert not (tmp_path / "ran").exists()
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="is of a type that transformers .* does not know"):
        load(str(folder))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 1_000_000}, "says num_hidden_layers = 1,000,000, but at most"),
        ({"text_config": {"num_layers": 10**9}}, "says num_layers = 1,000,000,000"),
        ({"num_local_experts": 5}, "weights of other shapes than its config says"),
        ({"num_experts_per_tok": 9}, "does not run .*; check that its config fits its weights"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_a_sentence(
    mixture_folder: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    shutil.copytree(mixture_folder, tmp_path / "changed")
    config = json.loads((mixture_folder / "config.json").read_text()) | changes
    (tmp_path / "changed" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=said):
        load(str(tmp_path / "changed"))


def test_bos_is_the_tokenizers_own_else_its_eos_else_none(relu: LanguageModel) -> None:
    backend = tiny_tokenizer().backend_tokenizer
    both = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<pad>", eos_token="</s>")
    one = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    neither = PreTrainedTokenizerFast(tokenizer_object=backend)
    found = [replace(relu, tokenizer=tokenizer).bos for tokenizer in (both, one, neither, None)]
    assert found == [backend.token_to_id("<pad>"), backend.token_to_id("</s>"), None, None]
