"""Every value of a layer through the vocabulary once, beside the tokens of its key's triggers.

The tokens around every trigger of a layer are taken from a store at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import shuffle_rows
from ffmem.analyses.inputs.prefix_sample import NO_TOKEN
from ffmem.analyses.values.record import Group
from ffmem.memories.projection import best, in_chunks, in_order, is_odd
from ffmem.memories.value_vectors import value_vectors
from ffmem.models.feedforward import FeedForward
from ffmem.models.language_model import LanguageModel
from ffmem.steps import steps
from ffmem.store.cells import Cells
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class TriggerTokens:
    """One layer's triggers, [cell, slot], strongest first; NO_TOKEN where there is no token.

    `next` follows the prefix. `last` is the prefix's own last token, which the authors' released
    script compares with by mistake.
    """

    next: Tensor
    last: Tensor
    filled: Tensor  # bool


def trigger_tokens(store: ScanStore, layer: int) -> TriggerTokens:
    """Next and last token of every trigger of every cell of a layer."""
    slots = store.slots(store.cells.rows_of(layer))
    starts, tokens = np.asarray(store.sentences.starts), np.asarray(store.sentences.tokens)
    place = starts[slots.sentence] + slots.position
    follows, ends = place < starts[slots.sentence + 1], slots.position > 0

    def in_slots(where: NDArray[np.int64], known: NDArray[np.bool_]) -> Tensor:
        found = np.full(slots.mask.shape, NO_TOKEN, np.int64)
        found[slots.mask] = np.where(known, tokens.take(where, mode="clip"), NO_TOKEN)
        return torch.from_numpy(found)

    return TriggerTokens(
        next=in_slots(place, follows),
        last=in_slots(place - 1, ends),
        filled=torch.from_numpy(slots.mask),
    )


@dataclass(frozen=True)
class LayerValueRankings:
    """One layer: what each value promotes, and what follows the triggers of its key.

    Rows are cells; in a gated layer the + cells come first, then the - cells, whose value is the
    opposite. `ranks` [cell, slot] are those of `triggers.next` under the value, 0 the best and -1
    where there is no token; `shuffled_ranks` [cell] those of another key's next token. `mass`
    [cell] is what softmax(v E) gives to the next tokens of all triggers together, each token once,
    and `shuffled_mass` what it gives to those of another key; NaN where there are none.
    """

    layer: int
    cells: Cells
    top: Tensor
    probability: Tensor
    triggers: TriggerTokens
    ranks: Tensor
    shuffled_next: Tensor
    shuffled_ranks: Tensor
    mass: Tensor
    shuffled_mass: Tensor

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
    model: LanguageModel, store: ScanStore, generator: torch.Generator
) -> Iterator[LayerValueRankings]:
    """One layer of the scan after the other; all logits of a layer are never held at once."""
    for number in steps(store.memories, "ranking values"):
        triggers = trigger_tokens(store, number)
        other = shuffle_rows(triggers.next[:, 0], generator)
        scores = cell_scores(model, number, store.cells.signed)
        wanted = torch.cat([triggers.next, other[:, None]], dim=1)
        top, probability, ranks, mass, by_chance = read_cells(
            scores, wanted, other_keys_tokens(triggers.next, number)
        )
        yield LayerValueRankings(
            number,
            store.cells,
            top,
            probability,
            triggers,
            ranks[:, :-1],
            other,
            ranks[:, -1],
            mass,
            by_chance,
        )


def other_keys_tokens(following: Tensor, seed: int) -> Tensor:
    """The next tokens [cell, slot] of another live key of the layer; those of a dead key stay."""
    alive = (following >= 0).any(dim=1).nonzero().flatten()
    order = alive[torch.randperm(len(alive), generator=torch.Generator().manual_seed(seed))]
    found = following.clone()
    found[order] = following[order.roll(1)]  # round a ring, so that no key has its own
    return found


def cell_scores(model: LanguageModel, number: int, signed: bool) -> Iterator[tuple[slice, Tensor]]:
    """Logits of the values of a layer's cells, some cells at a time, with the cells they are.

    All cells come once. Of two signs the second follows the first with the same numbers turned
    round in place, where that is what the opposite values have.
    """
    turned = signed and is_odd(model.head)
    values = cell_values(model.layer(number), signed and not turned)
    for part, scores in in_chunks(model, values, "direction"):
        yield part, scores
        if turned:
            yield slice(part.start + len(values), part.stop + len(values)), scores.neg_()


def read_cells(
    cells: Iterator[tuple[slice, Tensor]], wanted: Tensor, foreign: Tensor
) -> tuple[Tensor, ...]:
    """Of every cell, on the CPU: its top token, the probability of it, ranks of wanted tokens.

    Then the mass on the wanted tokens, without the last one of each row, and on the foreign ones.
    """
    found: dict[int, tuple[Tensor, ...]] = {}  # by the first cell
    for part, scores in cells:
        top = best(scores)
        total = scores.logsumexp(dim=1)
        certain = (scores.gather(1, top[:, None])[:, 0] - total).exp()
        targets = wanted[part].to(scores.device)
        ranks = target_ranks(scores, targets)
        masses = (
            _mass_on(scores, total, tokens)
            for tokens in (targets[:, :-1], foreign[part].to(scores.device))
        )
        found[part.start] = tuple(one.cpu() for one in (top, certain, ranks, *masses))
    in_order_of_cells = (found[first] for first in sorted(found))
    return tuple(torch.cat(parts) for parts in zip(*in_order_of_cells, strict=True))


def _mass_on(scores: Tensor, total: Tensor, tokens: Tensor) -> Tensor:
    """The probability [row] of the tokens [row, token] together, each once; NaN where none is.

    `total` is the logsumexp of each row of scores; a token below zero is none.
    """
    ordered = tokens.sort(dim=1).values
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    chances = (scores.gather(1, ordered.clamp(min=0)) - total[:, None]).exp()
    mass = chances.masked_fill(again | (ordered < 0), 0).sum(dim=1)
    return mass.masked_fill((ordered < 0).all(dim=1), torch.nan)


def target_ranks(scores: Tensor, wanted: Tensor) -> Tensor:
    """Ranks [row, target] of wanted tokens under scores [row, token]; -1 for a target below zero.

    Equal scores stand in order of their ids. On a CPU numpy sorts numbers alone in less time than
    the matrix product takes; only rows in which a wanted score ties need the ids.
    """
    if scores.device.type != "cpu":
        return ranks_by_counting(scores, wanted)
    ordered = torch.from_numpy(np.sort(scores.numpy(), axis=1))
    own = scores.gather(1, wanted.clamp(min=0))
    above = scores.shape[1] - torch.searchsorted(ordered, own, right=True)
    others = scores.shape[1] - torch.searchsorted(ordered, own) - above > 1
    ranks = above.masked_fill_(wanted < 0, -1)
    tied = (others & (wanted >= 0)).any(dim=1).nonzero().flatten()
    if len(tied):
        ranks[tied] = ranks_by_counting(scores[tied], wanted[tied])
    return ranks


def ranks_by_counting(scores: Tensor, wanted: Tensor) -> Tensor:
    """The same without a sort of the scores.

    Each score is counted in the gap between two wanted scores where it falls, so that the work
    hardly grows with the number of targets and nothing is sorted but the targets.
    """
    rows, gaps = len(scores), wanted.shape[1] + 1
    keys = in_order(scores)
    ordered, order = keys.gather(1, wanted.clamp(min=0)).sort(dim=1)
    gap = torch.searchsorted(ordered, keys)  # how many wanted scores lie below each score
    gap += torch.arange(rows, device=gap.device)[:, None] * gaps
    counts = torch.bincount(gap.flatten(), minlength=rows * gaps).view(rows, gaps)
    above = counts.flip(1).cumsum(1).flip(1)[:, 1:]
    ranks = torch.empty_like(wanted).scatter_(1, order, above)
    return ranks.masked_fill_(wanted < 0, -1)
