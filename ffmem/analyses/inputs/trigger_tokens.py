"""The tokens around every trigger of a layer, taken from a store at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ffmem.store.scan_store import ScanStore

NONE = -1  # no token: an unfilled slot, or the end of the sentence


@dataclass(frozen=True)
class TriggerTokens:
    """One layer's triggers, [cell, slot], strongest first; NONE where there is no token.

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
        found = np.full(slots.mask.shape, NONE, np.int64)
        found[slots.mask] = np.where(known, tokens[np.where(known, where, 0)], NONE)
        return torch.from_numpy(found)

    return TriggerTokens(
        next=in_slots(place, follows),
        last=in_slots(place - 1, ends),
        filled=torch.from_numpy(slots.mask),
    )
