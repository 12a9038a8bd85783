"""Devices of modules and of their weights; only this module handles several devices.

A model may be spread over devices, and weights that fit on none of them stay in main memory or on
disk. accelerate then moves each module's weights to its device during the module's forward pass;
otherwise the module holds only shapes, on the `meta` device.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ffmem.errors import ModelError, shorten

ROOM = 4 * 2**30  # bytes of a GPU that stay for what is computed


def device_of(module: nn.Module) -> torch.device:
    """The device on which a module, or a part of it that has weights, runs."""
    for part in module.modules():
        for hook in _hooks(part):
            if (device := getattr(hook, "execution_device", None)) is not None:
                return torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        for tensor in chain(part.parameters(recurse=False), part.buffers(recurse=False)):
            if tensor.device.type == "meta":
                raise _meta_error()
            return tensor.device
    return torch.device("cpu")  # torch's own quantised layers, which show no tensors


def tensor_of(module: nn.Module, path: str) -> Tensor | None:
    """A parameter or buffer by its path in the module, with its data; None if there is none.

    The model's own tensor if that has data; an offloaded one is copied to the module's device.
    """
    place, _, name = path.rpartition(".")
    module = module.get_submodule(place)
    tensor: Tensor | None = getattr(module, name, None)
    if tensor is None or tensor.device.type != "meta":
        return tensor
    for hook in _hooks(module):
        if getattr(hook, "offload", False):
            return hook.weights_map[name].to(device=device_of(module), dtype=tensor.dtype)
    raise _meta_error()


def shape_of(module: nn.Module) -> torch.Size:
    """The shape of a module's weight, without loading its data."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    return weight.shape


def on_device(module: nn.Module, device: torch.device) -> nn.Module:
    """The module, or if its weights are not on the device, a substitute with a copy there.

    Code that needs the weights repeatedly would otherwise wait for a copy each time.
    """
    names = [name for name, _ in module.named_parameters(recurse=False)]
    if all(getattr(module, name).device == device for name in names):
        return module
    held = nn.Module()
    for name in names:
        tensor = tensor_of(module, name)
        assert tensor is not None
        held.register_parameter(name, nn.Parameter(tensor.detach().to(device), requires_grad=False))
    return held


def own_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter by name, each once, wherever its data is.

    Tied parameters that are offloaded differ on `meta`; the model's list of ties resolves them.
    """
    tied: dict[str, str] = getattr(model, "all_tied_weights_keys", {})
    known: set[str] = set()
    for name, parameter in model.named_parameters():
        source = tied.get(name, name)
        if parameter.device.type != "meta" or source not in known:
            yield name, parameter
        known.add(source)


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of a model's weights as they are loaded."""
    return sum(one.numel() * one.element_size() for _, one in own_parameters(model))


def list_devices(text: str) -> tuple[str, ...]:
    """The devices that a list such as `cuda:0,cuda:1` names; `all` is every GPU, else the CPU."""
    gpus = torch.cuda.device_count()
    if text == "all":
        return tuple(f"cuda:{number}" for number in range(gpus)) or ("cpu",)
    names = tuple(part.strip() for part in text.split(","))
    there = {"cpu", *(f"cuda:{number}" for number in range(gpus))}
    for name in names:
        if name not in there:
            raise ModelError(
                f"there is no device {shorten(name)!r} here; write all, or a list of "
                f"{', '.join(sorted(there))}"
            )
    return names


def fits_one_gpu(weights: int) -> bool:
    """Whether weights of this many bytes, and the computation with them, fit each GPU."""
    gpus = range(torch.cuda.device_count())
    return all(weights + ROOM <= torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus)


def place_like(model: nn.Module, other: nn.Module) -> nn.Module:
    """Move a model from main memory to the devices that `other` is spread over."""
    spread: dict[str, Any] = getattr(other, "hf_device_map", {})
    if len(set(spread.values())) < 2:
        return model.to(device_of(other.get_input_embeddings()))  # type: ignore[operator]
    from accelerate import dispatch_model

    in_memory = {name: "cpu" if device == "disk" else device for name, device in spread.items()}
    main = next((hook.execution_device for hook in _hooks(other)), None)
    stays = getattr(model, "_skip_keys_device_placement", None)
    return dispatch_model(model, in_memory, main, skip_keys=stays)


def _hooks(module: nn.Module) -> Iterator[Any]:
    """The hooks of accelerate that move a module's weights and input."""
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        yield from getattr(hook, "hooks", (hook,))


def _meta_error() -> ModelError:
    return ModelError(
        "the model's weights are on the meta device, which holds their shapes only; "
        "load them onto cpu or cuda, or let accelerate place them"
    )
