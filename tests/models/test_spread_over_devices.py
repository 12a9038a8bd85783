"""A model whose parts lie on several devices; the tests on a GPU take the CPU as a second one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ffmem.models.loading import load
from ffmem.models.wrapping import wrap
from tests.small_study import small_results
from tests.spread import CHECKS, KINDS, Split, assert_same_study, device_map, spread

# Some versions warn of buffers among the names of a device map, which accelerate itself asks for.
pytestmark = pytest.mark.filterwarnings("ignore:The following device_map keys")

SPLITS = {
    "layers apart": Split("cpu", ("cpu", "cuda:0", "cuda:0"), "cuda:0", "cuda:0", main="cpu"),
    "to and fro": Split("cuda:0", ("cuda:0", "cpu", "cuda:0"), "cpu", "cuda:0", main="cpu"),
    "norm apart": Split("cpu", ("cpu", "cpu", "cpu"), "cuda:0", "cpu", main="cpu"),
    "head apart": Split("cuda:0", ("cuda:0", "cuda:0", "cuda:0"), "cuda:0", "cpu", main="cpu"),
    "layers offloaded": Split("cuda:0", ("cuda:0", "cpu", "cpu"), "cuda:0", "cuda:0"),
    "head offloaded": Split("cuda:0", ("cuda:0", "cuda:0", "cpu"), "cpu", "cpu"),
    "start offloaded": Split("cpu", ("disk", "cuda:0", "cuda:0"), "cuda:0", "cuda:0"),
    "layers on disk": Split("cpu", ("disk", "cuda:0", "disk"), "cuda:0", "disk", main="cpu"),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_all_devices_of_a_machine_without_a_gpu_is_its_cpu(tmp_path: Path) -> None:
    toy = load("tiny:llama")
    toy.model.save_pretrained(tmp_path)
    toy.tokenizer.save_pretrained(tmp_path)  # type: ignore[union-attr]
    expected, found = load(str(tmp_path), device="cpu"), load(str(tmp_path), device="all")
    tokens = expected.encode("river stone")
    logits = found.model(tokens.to(found.device)).logits.cpu()
    assert torch.allclose(logits, expected.model(tokens).logits, atol=1e-4)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPLITS)
def test_a_model_on_two_devices_is_read_as_on_one(name: str, kind: str, tmp_path: Path) -> None:
    expected = load(f"tiny:{kind}", device="cpu")
    found = spread(kind, SPLITS[name], tmp_path)
    assert found.devices == ran_on(SPLITS[name], expected.head.tied)
    for check in CHECKS:
        check(expected, found)


def ran_on(split: Split, tied: bool) -> set[torch.device]:
    """Where embeddings, layers and head run: what is offloaded runs on the main device."""
    main = split.main or "cuda:0"
    parts = (split.start, *split.layers, split.start if tied else split.head)
    return {torch.device(main if part in ("cpu", "disk") else part) for part in parts}


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["llama", "phi"])
@pytest.mark.parametrize("name", ["layers apart", "to and fro", "head offloaded"])
def test_a_study_over_two_devices_is_that_of_one(name: str, kind: str, tmp_path: Path) -> None:
    one = small_results(load(f"tiny:{kind}", device="cpu"), tmp_path / "one")
    assert_same_study(kind, one, spread(kind, SPLITS[name], tmp_path / "weights"), tmp_path)


@pytest.mark.gpu
@needs_gpu
def test_a_checkpoint_loaded_with_a_device_map_is_read_as_on_one_device(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    expected = load("tiny:llama", device="cpu")
    expected.model.save_pretrained(tmp_path)
    places = device_map(expected, SPLITS["head offloaded"])
    model = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places)
    found = wrap(model, expected.tokenizer)
    assert found.layers[2].value_map.module.weight.device.type == "meta"
    for check in CHECKS:
        check(expected, found)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("device", ["cuda", "all"])
def test_a_model_on_a_gpu_is_read_as_on_the_cpu(device: str, tmp_path: Path) -> None:
    expected = load("tiny:gemma2", device="cpu")
    expected.model.save_pretrained(tmp_path)
    expected.tokenizer.save_pretrained(tmp_path)  # type: ignore[union-attr]
    found = load(str(tmp_path), device=device, dtype="float32")
    assert {one.type for one in found.devices} == {"cuda"}
    for check in CHECKS:
        check(expected, found)
