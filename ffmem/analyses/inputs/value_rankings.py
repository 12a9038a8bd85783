"""Every value of a layer through the vocabulary once, beside the tokens of its key's triggers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import shuffle_rows
from ffmem.analyses.inputs.trigger_tokens import TriggerTokens, trigger_tokens
from ffmem.memories.projection import PAPER, Lens, best, in_chunks
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.cells import Cells
from ffmem.store.scan_store import ScanStore

Group = Literal["", "+", "-", "both"]  # which cells of a layer a number is about


@dataclass(frozen=True)
class LayerValueRankings:
    """One layer: what each value promotes, and what follows the triggers of its key.

    Rows are cells; in a gated layer the + cells come first, then the - cells, whose value is the
    opposite. `ranks` [cell, slot] are those of `triggers.next` under the value, 0 the best and -1
    where there is no token; `shuffled_ranks` [cell] those of another key's next token.
    """

    layer: int
    cells: Cells
    top: Tensor
    probability: Tensor
    triggers: TriggerTokens
    ranks: Tensor
    shuffled_next: Tensor
    shuffled_ranks: Tensor

    def groups(self) -> list[tuple[Group, slice]]:
        """The cells that numbers are given for: all, and in a gated layer each sign too."""
        parts: list[tuple[Group, slice]] = [
            (sign, self.cells.within(self.layer, sign)) for sign in self.cells.signs
        ]
        return [*parts, ("both", slice(0, len(self.top)))] if self.cells.signed else parts

    def address(self, cell: int) -> Address:
        """The name of one of the cells."""
        return self.cells.in_layer(self.layer, [cell])[0]


def cell_values(layer: FeedForward, signed: bool) -> Tensor:
    """[cell, width]: what each cell adds for a coefficient of one."""
    values = value_vectors(layer)
    return torch.cat([values, -values]) if signed else values


@torch.no_grad()
def rank_values(
    model: LanguageModel, store: ScanStore, generator: torch.Generator, lens: Lens = PAPER
) -> Iterator[LayerValueRankings]:
    """One layer of the scan after the other; all logits of a layer are never held at once."""
    for number in steps(store.memories, "ranking values"):
        triggers = trigger_tokens(store, number)
        other = shuffle_rows(triggers.next[:, 0], generator)
        values = cell_values(model.layer(number), store.cells.signed)
        wanted = torch.cat([triggers.next, other[:, None]], dim=1)
        top, probability, ranks = _project(model, values, wanted, lens)
        yield LayerValueRankings(
            number, store.cells, top, probability, triggers, ranks[:, :-1], other, ranks[:, -1]
        )


def _project(
    model: LanguageModel, values: Tensor, wanted: Tensor, lens: Lens
) -> tuple[Tensor, Tensor, Tensor]:
    """(top token, its probability, ranks of the wanted tokens) of every value, on the CPU."""
    found: list[tuple[Tensor, ...]] = []
    for part, scores in in_chunks(model, values, "piece", lens):
        top = best(scores)
        certain = (scores.gather(1, top[:, None])[:, 0] - scores.logsumexp(dim=1)).exp()
        ranks = ranks_by_counting(scores, wanted[part].to(scores.device))
        found.append((top.cpu(), certain.cpu(), ranks.cpu()))
    top, certain, ranks = (torch.cat(parts) for parts in zip(*found, strict=True))
    return top, certain, ranks


def ranks_by_counting(scores: Tensor, wanted: Tensor) -> Tensor:
    """Ranks [row, target] of wanted tokens under scores [row, token]; -1 for a target below zero.

    Each score is counted in the gap between two wanted scores where it falls, so that the work
    hardly grows with the number of targets and nothing is sorted but the targets. Equal scores
    stand in order of their ids.
    """
    rows, gaps = len(scores), wanted.shape[1] + 1
    keys = _sortable(scores)
    ordered, order = keys.gather(1, wanted.clamp(min=0)).sort(dim=1)
    gap = torch.searchsorted(ordered, keys)  # how many wanted scores lie below each score
    gap += torch.arange(rows, device=gap.device)[:, None] * gaps
    counts = torch.bincount(gap.flatten(), minlength=rows * gaps).view(rows, gaps)
    above = counts.flip(1).cumsum(1).flip(1)[:, 1:]
    ranks = torch.empty_like(wanted).scatter_(1, order, above)
    return ranks.masked_fill_(wanted < 0, -1)


def _sortable(scores: Tensor) -> Tensor:
    """Whole numbers in the order of float32 scores; of equal scores the lower id is greater."""
    bits = (scores + 0.0).view(torch.int32)  # adding zero makes -0 the same as 0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    ids = torch.arange(scores.shape[1], device=scores.device)
    return (ordered << 32) - ids
