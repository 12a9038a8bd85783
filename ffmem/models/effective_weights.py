"""The weights that a running layer multiplies with, where the numbers that it stores do not say it.

A quantised layer stores packed numbers, and a layer with an adapter adds something to its own.
Whatever it stores, it is a linear map: for a unit vector it gives a column of its weight. So the
weight is read through the layer, in the same way for every adapter and every form of quantisation,
and the identities that are checked when a model is wrapped say whether the layer is linear enough.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.blocks.trace import evaluation_mode
from ffmem.models.device_placement import device_of

BLOCK = 1024  # unit vectors, or tokens, that go through a layer at a time
CACHE = 2 * 2**30  # bytes of weights in the computer's memory that need not be read again


def has_adapter(module: nn.Module) -> bool:
    """Whether an adapter of PEFT is around a module, or around a part of it."""
    return any(hasattr(part, "base_layer") for part in module.modules())


def _without_adapters(module: nn.Module) -> nn.Module:
    """The module that adapters were put around, however many."""
    inner = getattr(module, "base_layer", None)
    return _without_adapters(inner) if isinstance(inner, nn.Module) else module


def has_quantised_weight(module: nn.Module) -> bool:
    """Whether a module stores its weight in another form than plain numbers of 16 bits or more."""
    if hasattr(module, "base_layer"):
        return False  # a part of it may be
    weight = getattr(module, "weight", None)
    if weight is None:
        return _linear_size(module) is not None
    if not isinstance(weight, Tensor):
        return True
    plain = type(weight.data) is Tensor and weight.is_floating_point()
    return not (plain and weight.dtype.itemsize > 1)


def has_plain_weight(module: nn.Module) -> bool:
    """Whether a module multiplies with the numbers in its `weight`, and with nothing else."""
    return not has_adapter(module) and not has_quantised_weight(module)


def is_linear(module: nn.Module) -> bool:
    """Whether a module holds a matrix, in whatever form, adapter or not."""
    module = _without_adapters(module)
    weight = getattr(module, "weight", None)
    return weight.ndim == 2 if isinstance(weight, Tensor) else has_quantised_weight(module)


def quantised_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Every module that stores a quantised weight, by name."""
    return {name: module for name, module in model.named_modules() if has_quantised_weight(module)}


def _linear_size(module: nn.Module) -> int | None:
    """Numbers in the matrix that a module stands for by its sizes, or None where it has none."""
    for names in (("in_features", "out_features"), ("infeatures", "outfeatures")):
        sizes = [getattr(module, name, None) for name in names]
        if isinstance(sizes[0], int) and isinstance(sizes[1], int):
            return sizes[0] * sizes[1]
    return None


def packed_numbers(model: nn.Module) -> int:
    """Numbers that quantised layers stand for, beyond those that are counted as parameters."""
    found = 0
    for module in quantised_modules(model).values():
        size, weight = _linear_size(module), getattr(module, "weight", None)
        if size is not None:
            found += size - (weight.numel() if isinstance(weight, nn.Parameter) else 0)
    return found


@dataclass(frozen=True)
class _CachedRows:
    rows: Tensor
    answer: Tensor  # to a question whose answer is another one if the layer computes otherwise
    sums: list[int]  # of the bits it stores, for a change too small for the answer's precision

    @property
    def room(self) -> int:
        return self.rows.numel() * self.rows.element_size()


_cache: WeakKeyDictionary[nn.Module, _CachedRows] = WeakKeyDictionary()


@torch.no_grad()
def read_rows(
    module: nn.Module, inputs: int, dtype: torch.dtype, indices: Tensor | None = None
) -> Tensor:
    """[input, out]: what a layer gives for unit vectors, all of them or some, without its bias.

    In the computer's memory all rows are kept as long as the layer stores the same numbers and
    answers a fixed question as it did, because adapters are trained, switched and merged; a GPU
    reads them again as quickly.
    """
    device = device_of(module)
    generator = torch.Generator().manual_seed(0)
    question = torch.randn(2, inputs, generator=generator).to(device, dtype)
    answer, entry = ask(module, question), _cache.get(module)
    if entry is not None and same(entry.answer, answer) and entry.sums == _stored_sums(module):
        return entry.rows if indices is None else entry.rows[indices.to(entry.rows.device)]
    layer = _without_biases(module)
    every = torch.arange(inputs) if indices is None else indices
    nothing = ask(layer, torch.zeros(1, inputs, device=device, dtype=dtype))
    blocks = [nothing[:0]]
    for some in every.to(device).split(BLOCK) if len(every) else ():
        units = torch.zeros(len(some), inputs, device=device, dtype=dtype)
        blocks.append(ask(layer, units.scatter_(1, some[:, None], 1)) - nothing)
    rows = torch.cat(blocks)
    if indices is None and rows.device.type == "cpu":
        _keep_rows(module, _CachedRows(rows, answer, _stored_sums(module)))
    return rows


def _without_biases(module: nn.Module) -> nn.Module:
    """A layer that shares all numbers but its biases, which are 0.

    In 16 bits a sum with a large bias has few digits left for a small weight. A bias that is kept
    in another way than under its name stays.
    """
    layer = copy.copy(module)
    for kind in ("_parameters", "_buffers"):
        tensors = dict(getattr(module, kind))
        if (bias := tensors.get("bias")) is not None:
            tensors["bias"] = torch.zeros_like(bias)
        setattr(layer, kind, tensors)
    parts = module._modules.items()
    layer._modules = {name: part and _without_biases(part) for name, part in parts}
    return layer


def _stored_sums(module: nn.Module) -> list[int]:
    """Of every tensor that a layer stores, the sum of its bits: no number can change alone."""
    tensors = chain(module.named_parameters(), module.named_buffers())
    plain = [part for name, one in tensors for _, part in _plain_tensors(name, one)]
    return [_sum_of_bits(part) for part in plain if part.device.type != "meta"]


def _sum_of_bits(tensor: Tensor) -> int:
    """The sum of a tensor's bytes, eight of them as one number."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    whole = len(data) // 8 * 8
    return int(data[:whole].view(np.int64).sum()) + int.from_bytes(data[whole:].tobytes(), "little")


@torch.no_grad()
def read_bias(module: nn.Module, inputs: int, dtype: torch.dtype) -> Tensor | None:
    """[out], what a layer adds whatever enters; None where that is 0."""
    bias = ask(module, torch.zeros(1, inputs, device=device_of(module), dtype=dtype))[0]
    return bias if bias.any() else None


def ask(module: nn.Module, rows: Tensor) -> Tensor:
    """The output of a layer for rows [row, in], without its hooks and without dropout."""
    try:
        with evaluation_mode(module):
            answer: Tensor = module.forward(rows[None])[0]
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ModelError(
            f"a layer of the type {type(module).__name__} cannot be read through its own forward "
            f"pass ({reason}); pass a model loaded without quantisation, or one that dequantize() "
            "or merge_and_unload() was called on"
        ) from error
    return answer


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two answers are equal in every bit and type."""
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)


def _keep_rows(module: nn.Module, rows: _CachedRows) -> None:
    """Put rows into the cache if they fit; those that are there stay, as all are read in turn."""
    _cache.pop(module, None)
    if sum(one.room for one in _cache.values()) + rows.room <= CACHE:
        _cache[module] = rows


def plain_output(module: nn.Module, entry: Tensor) -> nn.Module:
    """An output embedding, or where it must be read through the layer a stand-in with a copy."""
    if has_plain_weight(module):
        return module
    rows = read_rows(module, entry.shape[-1], entry.dtype)
    _cache.pop(module, None)
    return stand_in(rows.T.contiguous(), read_bias(module, entry.shape[-1], entry.dtype))


@torch.no_grad()
def plain_input(module: nn.Module, tokens: int) -> nn.Module:
    """An input embedding, or where it must be read through the layer a stand-in with a copy."""
    if has_plain_weight(module):
        return module
    scale = getattr(_without_adapters(module), "embed_scale", 1.0)  # some multiply their rows by it
    with evaluation_mode(module):
        ids = torch.arange(tokens, device=device_of(module)).split(BLOCK)
        rows = torch.cat([module.forward(some) for some in ids])
    return stand_in(rows if scale == 1.0 else rows / scale)


def stand_in(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    """A module that holds a weight and a bias."""
    held = nn.Module()
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:
            held.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    return held


def refuse_adapted_experts(model: nn.Module, experts: list[nn.Module]) -> None:
    """Refuse adapters and quantised stacks in a mixture's experts, which are read as they are."""
    names = {module: name for name, module in model.named_modules()}
    for module in experts:
        parents = names[module].split(".")[:-1]
        around = (model.get_submodule(".".join(parents[: n + 1])) for n in range(len(parents)))
        if any(hasattr(one, "base_layer") for one in around):
            raise ModelError(
                f"a PEFT adapter around the experts at {names[module]} changes weights that must "
                "be read; call merge_and_unload() on the model and pass the result"
            )
        if any(type(stack.data) is not Tensor for stack in module.parameters(recurse=False)):
            raise ModelError(
                f"the experts at {names[module]} are quantised, so their keys and values cannot be "
                "read; pass a model loaded without quantisation"
            )


def stored_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The stored state of quantised layers by name: packed numbers, scales, everything saved."""
    for path, module in quantised_modules(model).items():
        for name, value in _saved_state(module).items():
            yield from _plain_tensors(f"{path}.{name}", value)


def _saved_state(module: nn.Module) -> dict[str, Any]:
    """What a quantised layer would save, as it is now.

    On some CPUs bitsandbytes rounds the scales of its 4 bits once more whenever it saves a layer,
    in the layer too, so there they are taken from the weight.
    """
    scales: Any = getattr(getattr(module, "weight", None), "quant_state", None)
    if scales is None:
        return module.state_dict()
    own = dict(chain(module.named_parameters(), module.named_buffers()))
    return own | {f"weight.{name}": one for name, one in scales.as_dict(packed=True).items()}


def _plain_tensors(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors of ordinary type that one of another type, or a tuple of some, consists of."""
    if isinstance(value, tuple | list):
        for number, each in enumerate(value):
            yield from _plain_tensors(f"{name}.{number}", each)
    elif isinstance(value, Tensor) and value.is_quantized:
        yield name, value.dequantize()
    elif isinstance(value, Tensor) and hasattr(value, "__tensor_flatten__"):
        for part in value.__tensor_flatten__()[0]:
            yield from _plain_tensors(f"{name}.{part}", getattr(value, part))
    elif isinstance(value, Tensor):
        yield name, value


ADAPTER_FACTS = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")
OBJECT_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def storage_facts(model: nn.Module) -> Iterator[str]:
    """What tensors do not say of a model: which adapters are on, how quantised layers compute."""
    for name, module in model.named_modules():
        if hasattr(module, "base_layer") or hasattr(module, "modules_to_save"):
            facts = {fact: getattr(module, fact, None) for fact in ADAPTER_FACTS}
            yield f"{name} {facts}"
        weight: Any = getattr(module, "weight", None)
        if has_quantised_weight(module) and hasattr(weight, "__tensor_flatten__"):
            yield OBJECT_ADDRESS.sub("", f"{name} {weight.__tensor_flatten__()[1]}")
