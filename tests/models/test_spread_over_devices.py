"""A model whose layers lie on several devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ffmem.memories.values import value_ends
from ffmem.models.loading import load
from ffmem.models.seeing import see


def test_all_devices_of_a_machine_without_a_gpu_is_its_cpu(tmp_path: Path) -> None:
    toy = load("tiny:llama")
    toy.model.save_pretrained(tmp_path)
    toy.tokenizer.save_pretrained(tmp_path)  # type: ignore[union-attr]
    expected, found = load(str(tmp_path), device="cpu"), load(str(tmp_path), device="all")
    tokens = expected.encode("river stone")
    logits = found.model(tokens.to(found.device)).logits.cpu()
    assert torch.allclose(logits, expected.model(tokens).logits, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_layers_on_two_devices_are_seen_as_on_one() -> None:
    """The CPU as one device and the GPU as the other, as accelerate spreads over two GPUs."""
    from accelerate import dispatch_model

    expected, model = load("tiny:llama", device="cpu"), load("tiny:llama", device="cpu").model
    split = {
        "model.embed_tokens": "cpu",
        "model.rotary_emb": "cpu",
        "model.layers.0": "cpu",
        **dict.fromkeys(("model.layers.1", "model.layers.2", "model.norm", "lm_head"), "cuda:0"),
    }
    spread = see(dispatch_model(model, split, main_device="cpu"), expected.tokenizer)
    assert {layer.values.device.type for layer in spread.layers} == {"cpu", "cuda"}
    for number in (1, 3):
        one = value_ends(expected, expected.layer(number), 3)
        other = value_ends(spread, spread.layer(number), 3)
        assert torch.allclose(one.promoted_logits, other.promoted_logits, atol=1e-4)
