"""Modules and maps that stand where a dense layer has linear maps, for hooks and for reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ffmem.models.experts.mixture_reading import MapRole, MixtureReading

if TYPE_CHECKING:
    from ffmem.models.experts.mixtures import Mixture


class MapPlaceholder(nn.Module):
    """Stands for a map that a mixture spreads over its experts; not a part of the model."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.mixture = mixture

    @property
    def has_hooks(self) -> bool:
        """Whether anybody looks."""
        return bool(self._forward_hooks or self._forward_pre_hooks)

    def forward(self, _given: Tensor, result: Tensor) -> Tensor:
        """The result itself; hooks on this module see it."""
        return result

    def register_forward_pre_hook(self, *args: Any, **options: Any) -> RemovableHandle:
        """As in any module; the mixture is read until the hook is removed."""
        return self.mixture.present(super().register_forward_pre_hook(*args, **options))

    def register_forward_hook(self, *args: Any, **options: Any) -> RemovableHandle:
        """As in any module; the mixture is read until the hook is removed."""
        return self.mixture.present(super().register_forward_hook(*args, **options))


class ValueStandIn(MapPlaceholder):
    """Stands for the value map: coefficients in, their values' sum out."""

    def forward(self, coefficients: Tensor, reading: MixtureReading) -> Tensor:  # type: ignore[override]
        """The mixture's own sum, with what a hook has changed added."""
        change = coefficients - reading.coefficients
        columns = change.any(dim=0).nonzero()[:, 0]
        if not len(columns):
            return reading.y
        values = self.mixture.values_at(columns)
        return reading.y + (change[:, columns].float() @ values.float()).to(reading.y.dtype)


@dataclass(frozen=True)
class MixtureMap:
    """The keys, gate keys or values of a mixture where a dense layer has a linear map."""

    mixture: Mixture
    role: MapRole

    @property
    def module(self) -> nn.Module:
        """The module to attach hooks to."""
        stand_in: nn.Module = getattr(self.mixture, self.role)
        return stand_in

    @property
    def weight(self) -> Tensor:
        """[out, in]; a copy."""
        rows = self.mixture.rows(self.role)
        return rows.T if self.role == "values" else rows

    @property
    def shape(self) -> torch.Size:
        """The weight's shape, without its numbers."""
        memories, width = self.mixture.parts.memories, self.mixture.width
        return torch.Size((width, memories) if self.role == "values" else (memories, width))

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the experts' weights."""
        return self.mixture.dtype

    @property
    def bias(self) -> Tensor | None:
        """[memory] of keys or gate keys; None for values, `Mixture.biases` has what they add."""
        return None if self.role == "values" else self.mixture.key_biases(self.role)

    def columns(self, indices: slice | list[int] | Tensor) -> Tensor:
        """[some memories, width] of the values, without a copy of all for a list."""
        if isinstance(indices, slice):
            return self.weight.T[indices]
        return self.mixture.values_at(torch.as_tensor(indices))

    def of(self, rows: Tensor, dim: int = 0) -> Tensor:
        """All of it: no part of a mixture is fused with another."""
        del dim
        return rows
