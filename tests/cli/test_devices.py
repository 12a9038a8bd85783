"""`--devices`: a process on each device, or one model spread over all of them."""

from __future__ import annotations

import click
import pytest
import torch

from ffmem.cli.options import placement
from ffmem.errors import ModelError
from ffmem.execution.executor import Cluster
from ffmem.models.loading import load, weight_bytes

GIB = 2**30


class Gpu:
    """What torch says of a GPU."""

    total_memory = 8 * GIB


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two GPUs, as far as torch's answers go; nothing is put on them."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _gpu: Gpu)


def options(**changes: object) -> dict[str, object]:
    names = "address workers gpus_per_worker cpus_per_worker revision tokenizer"
    found = dict.fromkeys(names.split())
    return {**found, "dtype": "auto", "device": "auto", "trust_remote_code": False} | {
        "devices": None,
        **changes,
    }


def test_all_is_a_process_on_each_gpu(two_gpus: None) -> None:
    choice, cluster = placement("tiny:llama", options(devices="all"))
    assert cluster == Cluster.on_devices(("cuda:0", "cuda:1"))
    assert cluster.share({"CPU": 8.0, "GPU": 2.0})[0] == 2
    assert choice["device"] == "auto"


def test_a_model_larger_than_a_gpu_is_spread(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ffmem.models.loading.weight_bytes", lambda *_name, **_how: 3 * GIB)
    assert placement("large", options(devices="all"))[1] is not None
    choice, cluster = placement("large", options(devices="all"), copies=2)
    assert (choice["device"], cluster) == ("all", None)
    assert "spread over all GPUs" in capsys.readouterr().err


def test_one_device_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for text in ("all", "cpu"):
        choice, cluster = placement("tiny:llama", options(devices=text))
        assert (choice["device"], cluster) == ("cpu", None)
    assert placement("tiny:llama", options(devices="cpu, cpu"))[1] == Cluster.on_devices(
        ("cpu", "cpu")
    )
    assert placement("tiny:llama", options())[1] is None


@pytest.mark.parametrize("text", ["", "cuda:7", "cpu,", "gpu", "all,cpu", "cpu;cpu"])
def test_a_device_that_is_not_there_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ModelError, match=r"no device .* here; write all, or a list of cpu, cuda:0"):
        placement("tiny:llama", options(devices=text))


@pytest.mark.parametrize("more", [{"address": ""}, {"device": "cpu"}])
def test_devices_do_not_go_with_other_ways_to_say_where(more: dict[str, object]) -> None:
    with pytest.raises(click.UsageError, match="leave --ray and --device out"):
        placement("tiny:llama", options(devices="cpu,cpu", **more))


def test_the_room_for_weights_is_known_before_they_are_loaded() -> None:
    for name in ("tiny:llama", "demo"):
        model = load(name, dtype="float32")
        size = sum(one.numel() for one in model.model.parameters())
        assert weight_bytes(name, dtype="float32") == 4 * size
    assert weight_bytes("demo", dtype="bfloat16") == 2 * size
