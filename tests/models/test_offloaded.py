"""Models whose weights are kept in memory or on disk and come to a device only to run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import accelerate
import pytest
import torch

from ffmem.analyses.study import Study
from ffmem.annotations.chat import LocalChat
from ffmem.errors import ModelError
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import load
from ffmem.models.tiny import tiny_model
from ffmem.models.wrapping import wrap
from tests.spread import CHECKS, KINDS, Split, assert_same_study, device_map, spread

# Some versions warn of buffers among the names of a device map, which accelerate itself asks for.
pytestmark = pytest.mark.filterwarnings("ignore:The following device_map keys")

PARTLY = Split("cpu", ("disk", "cpu", "disk"), "cpu", "disk", main="cpu")
# Some layers in memory and some on disk, of every kind; all of them in one place, of some.
PAIRS = [
    *((kind, "partly") for kind in KINDS),
    *((kind, way) for kind in ("gpt2", "gemma2", "fairseq_lm") for way in ("memory", "disk")),
]


@cache
def whole(kind: str) -> LanguageModel:
    return load(f"tiny:{kind}", device="cpu")


def offloaded(kind: str, way: str, folder: Path) -> LanguageModel:
    if way == "partly":
        return spread(kind, PARTLY, folder)
    found = load(f"tiny:{kind}", device="cpu")
    if way == "disk":
        accelerate.disk_offload(found.model, str(folder), execution_device="cpu")
    else:
        accelerate.cpu_offload(found.model, execution_device="cpu")
    return wrap(found.model, found.tokenizer)


@pytest.mark.parametrize(("kind", "way"), PAIRS)
def test_an_offloaded_model_is_read_like_any_other(kind: str, way: str, tmp_path: Path) -> None:
    expected, found = whole(kind), offloaded(kind, way, tmp_path)
    assert found.layers[0].value_map.module.weight.device.type == "meta"
    assert {str(device) for device in found.devices} == {"cpu"}
    for check in CHECKS:
        check(expected, found)
    assert found.layers[0].value_map.module.weight.device.type == "meta"


def test_a_checkpoint_loaded_with_a_device_map_is_read(tmp_path: Path) -> None:
    """By transformers' own way to disk, which reads weights from the checkpoint's files."""
    from transformers import AutoModelForCausalLM

    expected = load("tiny:llama", device="cpu")
    expected.model.save_pretrained(tmp_path / "model")
    places = device_map(expected, Split("cpu", ("cpu", "disk", "cpu"), "cpu", "disk"))
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "disk")
    )
    found = wrap(model, expected.tokenizer)
    assert found.layers[1].value_map.module.weight.device.type == "meta"
    for check in CHECKS:
        check(expected, found)


def test_a_study_of_an_offloaded_model_is_that_of_any_other(
    gated_study: Study, tmp_path: Path
) -> None:
    found = spread("llama", PARTLY, tmp_path / "weights")
    assert_same_study("llama", gated_study, found, tmp_path)


def test_an_offloaded_model_can_be_asked() -> None:
    found = load("tiny:llama", device="cpu")
    question = [{"role": "user", "content": "river"}]
    assert found.tokenizer is not None
    expected = LocalChat(found.model, found.tokenizer, 3)(question)  # type: ignore[list-item]
    accelerate.cpu_offload(found.model, execution_device="cpu")
    assert LocalChat(found.model, found.tokenizer, 3)(question) == expected  # type: ignore[list-item]


@pytest.mark.parametrize("device", ["meta", "meta:0"])
def test_the_meta_device_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match=r"device 'meta.*' cannot be used .*write cpu"):
        load("tiny:llama", device=device)


def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = tiny_model("llama").to("meta")
    with pytest.raises(ModelError, match="on the meta device, which holds their shapes only"):
        wrap(model)
