"""Read r, x, a, m, y and o of every feed-forward layer while the model runs once.

| quantity | what it is                                                     | last axis |
|----------|----------------------------------------------------------------|-----------|
| h        | what enters the block                                          | width     |
| r        | the residual that the layer's output is added to               | width     |
| x        | what the keys are compared with (the normed residual)          | width     |
| a        | the comparison's scores, bias included (of the gate, if gated) | memory    |
| u        | the second map's scores in a gated layer                       | memory    |
| m        | the coefficients: what each value is multiplied by             | memory    |
| y        | what the layer adds to the residual                            | width     |
| o        | what leaves the block                                          | width     |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ffmem.errors import ModelError
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.models.trace import first_tensor

Place = tuple[nn.Module, str]  # a module, and "in" or "out"


@dataclass(frozen=True)
class LayerRecord:
    """One layer's quantities, each [batch, position, ...], or [batch, ...] at chosen positions."""

    layer: FeedForward
    raw: dict[str, Tensor] = field(repr=False)

    @property
    def h(self) -> Tensor:
        """What enters the block."""
        return self.raw["block in"]

    @property
    def r(self) -> Tensor:
        """The residual the layer adds to; in a parallel block the one with attention added."""
        match self.layer.form:
            case "sequential":
                return self.raw["norm in"] if self.layer.norm is not None else self.x
            case "parallel":
                return self.h + self.raw["attention out"]
            case _:
                return self.x

    @property
    def x(self) -> Tensor:
        """What the keys are compared with."""
        return self.raw["keys in"]

    @property
    def a(self) -> Tensor:
        """Scores under the activation, bias included."""
        part = self.layer.gate_map or self.layer.key_map
        return part.of(self.raw["gate out" if self.layer.gated else "keys out"], dim=-1)

    @property
    def u(self) -> Tensor | None:
        """Scores beside the gate in a gated layer, else None."""
        if not self.layer.gated:
            return None
        return self.layer.key_map.of(self.raw["keys out"], dim=-1)

    @property
    def m(self) -> Tensor:
        """Coefficients."""
        return self.raw["values in"]

    @property
    def y(self) -> Tensor:
        """What the layer adds to the residual: normed and scaled where the block does so."""
        added = self.raw["values out" if self.layer.after is None else "after out"]
        return added if self.layer.scale == 1.0 else added * self.layer.scale

    @property
    def o(self) -> Tensor:
        """What leaves the block; in a post-norm block that is the normed sum."""
        return self.raw["block out"]


def places_for(layer: FeedForward, quantities: str) -> dict[str, Place]:
    """Where to look in one layer for the quantities named by their letters."""
    keys, values = layer.key_map.module, layer.value_map.module
    gate = layer.gate_map.module if layer.gate_map is not None else keys
    places: dict[str, dict[str, Place | None]] = {
        "h": {"block in": (layer.block, "in")},
        "x": {"keys in": (keys, "in")},
        "a": {"gate out": (gate, "out"), "keys out": (keys, "out")},
        "u": {"keys out": (keys, "out")},
        "m": {"values in": (values, "in")},
        "o": {"block out": (layer.block, "out")},
        "y": {
            "values out": (values, "out"),
            "after out": (layer.after, "out") if layer.after is not None else None,
        },
        "r": {
            "keys in": (keys, "in"),
            "block in": (layer.block, "in") if layer.form == "parallel" else None,
            "norm in": (layer.norm, "in") if layer.norm is not None else None,
            "attention out": (layer.attention, "out") if layer.attention is not None else None,
        },
    }
    wanted: dict[str, Place] = {}
    for letter in quantities:
        wanted |= {name: place for name, place in places[letter].items() if place is not None}
    return wanted


@contextmanager
def record_forward(
    layers: Sequence[FeedForward], quantities: str, keep: Callable[[Tensor], Tensor]
) -> Iterator[tuple[LayerRecord, ...]]:
    """Fill one reading a layer during the next forward pass; every hook is gone on exit.

    `keep` gets each tensor as the module saw it and returns what is kept: a copy, or less.
    """
    readings = tuple(LayerRecord(layer, {}) for layer in layers)
    with ExitStack() as hooks:
        for reading in readings:
            for name, (module, side) in places_for(reading.layer, quantities).items():
                hooks.callback(_tap(module, side, (reading, name), keep).remove)
        yield readings


def _tap(
    module: nn.Module,
    side: str,
    into: tuple[LayerRecord, str],
    keep: Callable[[Tensor], Tensor],
) -> torch.utils.hooks.RemovableHandle:
    reading, name = into
    device = reading.layer.device  # what enters a block may still be where the last one ran

    def note(value: Any) -> None:
        tensor = first_tensor(value)
        if tensor is not None:
            reading.raw[name] = keep(tensor.detach()).to(device)

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note(args or (kwargs.get("hidden_states"),))

    def after(_module: nn.Module, _args: Any, output: Any) -> None:
        note(output)

    if side == "in":
        return module.register_forward_pre_hook(before, with_kwargs=True)
    return module.register_forward_hook(after)


class _Enough(Exception):  # noqa: N818 - no error
    """Ends a forward pass that has seen all it was run for."""


@contextmanager
def stop_after(layer: FeedForward) -> Iterator[None]:
    """End the forward pass inside once `layer`'s block is done: later layers are never run."""

    def stop(_module: nn.Module, _args: Any, _output: Any) -> None:
        raise _Enough

    handle = layer.block.register_forward_hook(stop)
    try:
        yield
    except _Enough:
        pass
    finally:
        handle.remove()


@torch.no_grad()
def record(
    model: LanguageModel, text: str | Tensor, quantities: str = "rxamyo", at: Tensor | None = None
) -> tuple[LayerRecord, ...]:
    """Run the model once over `text` (or token ids [batch, position]) and read every layer.

    Column 0 is the BOS where the model has one. `at` [batch] keeps one column of each row only,
    so that a large batch needs little memory. Tensors are copies on each layer's device.
    """
    tokens = model.encode(text) if isinstance(text, str) else text.to(model.device)
    if tokens.ndim != 2 or not tokens.numel():
        raise ModelError(
            f"token ids have the shape {list(tokens.shape)}; give [batch, position], both from 1"
        )
    model.check_tokens(tokens, len(model.head.input_embedding))
    rows, columns = tokens.shape

    def keep(tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(rows, columns, -1)
        if at is None:
            return tensor.clone()
        chosen = torch.arange(rows, device=tensor.device)
        return tensor[chosen, at.to(tensor.device)].clone()

    with record_forward(model.layers, quantities, keep) as readings:
        model.model.base_model(input_ids=tokens, use_cache=False)
    return readings
