"""One feed-forward layer as a bank of memories: keys, values, and where they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

Form = Literal["sequential", "parallel", "post-norm", "normed-residual"]

FORM_SENTENCES: dict[Form, str] = {
    "sequential": "r = residual after attention; o = r + y",
    "parallel": "attention and feed-forward side by side; r = block input + attention, o = r + y",
    "post-norm": "x = r, and the norm comes around r + y",
    "normed-residual": "the residual is the normed input, r = x; o = r + y",
}


@dataclass(frozen=True)
class LinearPart:
    """A linear map of the model, or the named half of a fused one. Weights are views, no copies."""

    module: nn.Module
    half: Literal["", ":half", "half:"] = ""

    @property
    def weight(self) -> Tensor:
        """[out, in], whichever way the module stores it."""
        weight: Tensor = self.module.weight  # type: ignore[assignment]
        return self.of(weight.T if isinstance(self.module, Conv1D) else weight)

    @property
    def bias(self) -> Tensor | None:
        """[out], or None where the map has none."""
        bias: Tensor | None = getattr(self.module, "bias", None)
        return None if bias is None else self.of(bias)

    def of(self, rows: Tensor, dim: int = 0) -> Tensor:
        """This part's share of something that has one entry per output along `dim`."""
        if not self.half:
            return rows
        middle = rows.shape[dim] // 2
        start = 0 if self.half == ":half" else middle
        return rows.narrow(dim, start, middle)


@dataclass(frozen=True)
class FeedForward:
    """One feed-forward layer of a model, seen as memories.

    Memory i has the key `keys[i]` (with `gate_keys[i]` in a gated layer) and the value
    `values[i]`; its coefficient is entry i of what enters the value map.
    """

    number: int  # counted from 1 over feed-forward layers, as in the paper
    block_index: int  # counted from 0 over the model's blocks
    block: nn.Module
    key_map: LinearPart
    value_map: LinearPart
    gate_map: LinearPart | None
    norm: nn.Module | None
    attention: nn.Module | None
    after: nn.Module | None
    scale: float
    form: Form
    activation: str
    output_scale: float = 1.0  # o = this x (r + y), in the few families where it is not 1

    @property
    def keys(self) -> Tensor:
        """[memory, width]: what the normed residual is compared with. A view of the weights."""
        return self.key_map.weight

    @property
    def gate_keys(self) -> Tensor | None:
        """[memory, width]: the other half of a gated memory's key; None where there is no gate."""
        return None if self.gate_map is None else self.gate_map.weight

    @property
    def values(self) -> Tensor:
        """[memory, width]: what each memory adds, before any norm after it. A view."""
        return self.value_map.weight.T

    @property
    def value_bias(self) -> Tensor | None:
        """[width], added whatever fires, or None."""
        return self.value_map.bias

    @property
    def memories(self) -> int:
        """Number of memories in this layer."""
        return self.value_map.weight.shape[1]

    @property
    def gated(self) -> bool:
        """Whether coefficients are products of a gate and a second key, and so have either sign."""
        return self.gate_map is not None

    @property
    def parameters(self) -> int:
        """Numbers stored in this layer's keys, values and biases."""
        parts = [self.key_map, self.value_map] + ([self.gate_map] if self.gate_map else [])
        biases = [part.bias for part in parts]
        return sum(part.weight.numel() for part in parts) + sum(
            bias.numel() for bias in biases if bias is not None
        )
