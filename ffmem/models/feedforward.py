"""One feed-forward layer as a bank of memories: keys, values, and where they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from ffmem.address import Parts
from ffmem.models.device_placement import device_of, tensor_of
from ffmem.models.effective_weights import packed_numbers, read_bias, read_rows

if TYPE_CHECKING:
    from ffmem.models.experts.mixtures import Mixture
    from ffmem.models.experts.stand_ins import MixtureMap

Half = Literal["", ":half", "half:"]  # of a fused map
Form = Literal["sequential", "parallel", "post-norm", "normed-residual"]

FORM_SENTENCES: dict[Form, str] = {
    "sequential": "r = residual after attention; o = r + y",
    "parallel": "attention and feed-forward side by side; r = block input + attention, o = r + y",
    "post-norm": "x = r, and the norm comes around r + y",
    "normed-residual": "the residual is the normed input, r = x; o = r + y",
}


@dataclass(frozen=True)
class LinearPart:
    """A linear map of the model, or the named half of a fused one.

    Weights are views of the model's own; offloaded ones are copied on access. An `EffectivePart`
    reads the weights of a quantised map or of one with an adapter.
    """

    module: nn.Module
    half: Half = ""

    @property
    def weight(self) -> Tensor:
        """[out, in], whichever way the module stores it."""
        weight = tensor_of(self.module, "weight")
        assert weight is not None
        return self._orient(weight)

    @property
    def shape(self) -> torch.Size:
        """The weight's shape, without its numbers."""
        return self._orient(self.module.weight).shape  # type: ignore[arg-type]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the computation."""
        return self.module.weight.dtype  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        """[out], or None if the map has no bias."""
        bias = tensor_of(self.module, "bias")
        return None if bias is None else self.of(bias)

    @property
    def parameters(self) -> int:
        """Numbers in weight and bias."""
        return self.shape.numel() + (0 if (bias := self.bias) is None else bias.numel())

    def columns(self, indices: slice | list[int] | Tensor) -> Tensor:
        """[some inputs, out]: columns of the weight."""
        return self.weight.T[indices]

    def of(self, rows: Tensor, dim: int = 0) -> Tensor:
        """This part's slice of a tensor with one entry per output along `dim`."""
        if not self.half:
            return rows
        middle = rows.shape[dim] // 2
        start = 0 if self.half == ":half" else middle
        return rows.narrow(dim, start, middle)

    def _orient(self, weight: Tensor) -> Tensor:
        from transformers.pytorch_utils import Conv1D  # here: who has no model need not wait

        return self.of(weight.T if isinstance(self.module, Conv1D) else weight)


@dataclass(frozen=True)
class EffectivePart(LinearPart):
    """A linear map, or half of one, whose weights are read through the layer; they are copies."""

    inputs: int = 0
    outputs: int = 0
    dtype: torch.dtype = torch.float32  # of what enters it

    @property
    def weight(self) -> Tensor:
        """[out, in]."""
        return self.of(read_rows(self.module, self.inputs, self.dtype).T)

    @property
    def shape(self) -> torch.Size:
        """The weight's shape, without its numbers."""
        return self.of(torch.empty(self.outputs, self.inputs, device="meta")).shape

    @property
    def bias(self) -> Tensor | None:
        """[out], the output for a zero input; None if that is 0."""
        bias = read_bias(self.module, self.inputs, self.dtype)
        return None if bias is None else self.of(bias)

    def columns(self, indices: slice | list[int] | Tensor) -> Tensor:
        """[some inputs, out]: columns of the weight; for a list, only these are read."""
        if isinstance(indices, slice):
            return self.weight.T[indices]
        indices = torch.as_tensor(indices, dtype=torch.long)  # a list may be empty
        return self.of(read_rows(self.module, self.inputs, self.dtype, indices), dim=-1)


@dataclass(frozen=True)
class FeedForward:
    """One feed-forward layer (MLP) of a model as a bank of memories (neurons).

    Memory i has the key `keys[i]` (with `gate_keys[i]` in a gated layer) and the value
    `values[i]`; its coefficient is entry i of the value map's input. In a mixture of experts,
    memories are numbered through its `parts`, and keys and values are copies from `mixture`.
    """

    number: int  # counted from 1 over feed-forward layers, as in the paper
    block_index: int  # counted from 0 over the model's blocks
    block: nn.Module
    key_map: LinearPart | MixtureMap
    value_map: LinearPart | MixtureMap
    gate_map: LinearPart | MixtureMap | None
    norm: nn.Module | None
    attention: nn.Module | None
    after: nn.Module | None
    scale: float
    form: Form
    activation: str
    output_scale: float = 1.0  # o = this x (r + y), in the few families where it is not 1
    mixture: Mixture | None = None  # the experts, in a mixture of them
    residual: str | None = None  # the block's vectors that multiply the residual stream on its
    entry: str | None = None  # way: one where y is added, the other where attention is
    attention_norm: nn.Module | None = None  # that r comes out of, where r is a normed sum

    @property
    def keys(self) -> Tensor:
        """[memory, width]: rows that the normed residual is multiplied with; a view if possible."""
        return self.key_map.weight

    @property
    def gate_keys(self) -> Tensor | None:
        """[memory, width]: the other half of a gated memory's key; None without a gate."""
        return None if self.gate_map is None else self.gate_map.weight

    @property
    def values(self) -> Tensor:
        """[memory, width]: what each memory adds, before any norm after it; a view or a copy."""
        return self.value_map.weight.T

    def values_at(self, indices: slice | list[int]) -> Tensor:
        """[some memories, width]: rows of `values`."""
        return self.value_map.columns(indices)

    @torch.no_grad()
    def put_values(self, indices: Tensor, rows: Tensor) -> None:
        """Write rows of `values` into the model's own weights, which must not be offloaded."""
        if self.mixture is not None:
            self.mixture.put_values(indices, rows)
        else:
            self.values[indices.to(self.device)] = rows.to(self.values)

    @property
    def value_bias(self) -> Tensor | None:
        """[width], added at every place, or None; in a mixture it depends on the place."""
        return self.value_map.bias

    def gain(self, role: Literal["residual", "entry"]) -> Tensor | float:
        """[width], the factor on the residual stream at this layer; 1 in nearly all families."""
        name = self.residual if role == "residual" else self.entry
        vector = None if name is None else tensor_of(self.block, name)
        return 1.0 if vector is None else vector

    @property
    def parts(self) -> Parts:
        """The experts of a mixture; one part without a name in a dense layer."""
        return Parts.dense(self.memories) if self.mixture is None else self.mixture.parts

    @property
    def memories(self) -> int:
        """Number of memories in this layer."""
        return self.value_map.shape[1]

    @property
    def memories_per_place(self) -> int:
        """Number of memories that run at one place: in a mixture, those of the chosen experts."""
        if self.mixture is None:
            return self.memories
        parts = self.parts
        return min(self.mixture.per_place, parts.experts) * parts.size + sum(parts.shared)

    @property
    def width(self) -> int:
        """Length of one value (d_model)."""
        return self.value_map.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.value_map.dtype

    @property
    def device(self) -> torch.device:
        """The device the layer runs on; its activations, and weights on access, are there."""
        return device_of(self.value_map.module) if self.mixture is None else self.mixture.device

    @property
    def gated(self) -> bool:
        """Whether coefficients are products of a gate and a second key, and so have either sign."""
        return self.gate_map is not None

    @property
    def maps(self) -> list[LinearPart | MixtureMap]:
        """The maps of its keys, values and gate."""
        return [self.key_map, self.value_map] + ([self.gate_map] if self.gate_map else [])

    @property
    def effective_parts(self) -> list[EffectivePart]:
        """The maps, including those of shared experts, whose weights are read through the layer."""
        maps = self.maps if self.mixture is None else self.mixture.shared_maps
        return [part for part in maps if isinstance(part, EffectivePart)]

    @property
    def parameters(self) -> int:
        """Numbers stored in this layer's keys, values and biases."""
        if self.mixture is not None:
            return self.mixture.parameters
        return sum(part.parameters for part in self.maps if isinstance(part, LinearPart))

    @property
    def block_parameters(self) -> int:
        """Numbers in all linear maps of the layer's block: its own and the attention's."""
        owners = [list(module.parameters(recurse=False)) for module in self.block.modules()]
        maps = [held for held in owners if any(one.ndim > 1 for one in held)]
        return sum(one.numel() for held in maps for one in held) + packed_numbers(self.block)
