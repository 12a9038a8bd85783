"""The tokens around every trigger of a layer, taken from a store at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.store.scan_store import ScanStore
from ffmem.store.scan_writer import NO_SENTENCE

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


def cells_of(store: ScanStore, layer: int) -> slice:
    """The rows of one layer in every array of a store."""
    memories = store.memories[layer]
    first = store.row(Address(layer, 0, "+" if store.manifest.signed else ""))
    return slice(first, first + memories * (2 if store.manifest.signed else 1))


def trigger_tokens(store: ScanStore, layer: int) -> TriggerTokens:
    """Next and last token of every trigger of every cell of a layer."""
    rows = cells_of(store, layer)
    sentences = np.asarray(store.array("trigger_sentences")[rows])
    positions = np.asarray(store.array("trigger_positions")[rows]).astype(np.int64)
    filled = sentences != NO_SENTENCE
    if not filled.any():
        nothing = torch.full(filled.shape, NONE)
        return TriggerTokens(nothing, nothing, torch.from_numpy(filled))
    kept = store.sentences
    numbers, starts = np.asarray(kept.numbers), np.asarray(kept.starts)
    tokens = np.asarray(kept.tokens)
    where = np.searchsorted(numbers, np.where(filled, sentences, numbers[0]).astype(np.int64))
    place = starts[where] + positions
    follows = filled & (place < starts[where + 1])
    ends = filled & (positions > 0)
    return TriggerTokens(
        next=torch.from_numpy(np.where(follows, tokens[np.where(follows, place, 0)], NONE)).long(),
        last=torch.from_numpy(np.where(ends, tokens[np.where(ends, place - 1, 0)], NONE)).long(),
        filled=torch.from_numpy(filled),
    )
