"""What a mixture of experts did in one forward pass: coefficients, scores, weights of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from ffmem.models.experts.routing import RoutedCoefficients, expert_rows
from ffmem.models.feedforward import LinearPart

if TYPE_CHECKING:
    from ffmem.models.experts.mixtures import Mixture

MapRole = Literal["keys", "gate", "values"]


@dataclass(frozen=True)
class SharedExpert:
    """An expert that reads every place, beside those that are chosen.

    Its sum is added as it is, or times the sigmoid of what `weigher` gives.
    """

    key_map: LinearPart
    value_map: LinearPart
    gate_map: LinearPart | None
    weigher: nn.Module | None = None

    @property
    def memories(self) -> int:
        """Number of its memories."""
        return self.value_map.shape[1]

    def map(self, role: MapRole) -> LinearPart:
        """One of its maps; in a layer without gates the keys are what is asked for as the gate."""
        maps = {"keys": self.key_map, "gate": self.gate_map, "values": self.value_map}
        return maps[role] or self.key_map


@dataclass
class MixtureReading:
    """What a mixture did in one forward pass; tensors have the places of all rows first."""

    mixture: Mixture
    x: Tensor
    y: Tensor
    routed: RoutedCoefficients
    tensors: dict[tuple[int, str], Tensor] = field(repr=False)  # of shared experts, by number

    def shared_weights(self, number: int) -> Tensor:
        """The factor of a shared expert's sum: [place, 1]."""
        logit = self.tensors.get((number, "weigher"))
        if logit is None:
            return torch.ones(len(self.x), 1, dtype=self.x.dtype, device=self.x.device)
        return logit.sigmoid()

    def shared_coefficients(self, number: int) -> Tensor:
        """A shared expert's coefficients: [place, memory]."""
        m = self.tensors[number, "values"]
        return m if (number, "weigher") not in self.tensors else m * self.shared_weights(number)

    @cached_property
    def coefficients(self) -> Tensor:
        """Coefficients of every memory: [place, memory]."""
        beside = [self.shared_coefficients(one) for one in range(len(self.mixture.shared))]
        return torch.cat([self._spread(self.routed.coefficients), *beside], dim=1)

    def scores(self, role: MapRole) -> Tensor:
        """The scores of the keys, or of the gate's keys: [place, memory]."""
        own = self.mixture.half(self.routed.scores, role)
        beside = [
            one.map(role).of(self.tensors[number, role if one.gate_map else "keys"], dim=-1)
            for number, one in enumerate(self.mixture.shared)
        ]
        return torch.cat([self._spread(own), *beside], dim=1)

    @cached_property
    def part_weights(self) -> Tensor:
        """The weight of every part at every place, 0 where an expert was not chosen."""
        beside = [self.shared_weights(one) for one in range(len(self.mixture.shared))]
        return torch.cat([self._spread(self.routed.weights[:, None]), *beside], dim=1)

    def sum_by_expert(self) -> Tensor:
        """Coefficients x values + biases, added up expert by expert: what y must be."""
        down = expert_rows(self.mixture.experts, "down_proj")
        total = torch.zeros_like(self.y, dtype=torch.float32)
        for expert in self.routed.experts.unique().tolist():
            lines = self.routed.experts == expert
            added = self.routed.coefficients[lines].float() @ down[expert].T.float()
            total.index_add_(0, self.routed.places[lines], added)
        for number, one in enumerate(self.mixture.shared):
            values = one.value_map.weight.T.float()
            total += self.shared_coefficients(number).float() @ values
        biases = self.mixture.biases
        return total if biases is None else total + self.part_weights.float() @ biases.float()

    def _spread(self, lines: Tensor) -> Tensor:
        """[place, expert x size] from what is there of each place at each of its experts."""
        shape = (len(self.x), self.mixture.parts.experts, lines.shape[-1])
        table = torch.zeros(shape, dtype=lines.dtype, device=lines.device)
        where = (self.routed.places, self.routed.experts)
        return table.index_put_(where, lines, accumulate=True).flatten(1)


MixtureListener = Callable[[MixtureReading], Tensor | None]  # a tensor takes the place of y
