"""Which tokens of one trigger does a key's coefficient rest on? Each is removed in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ffmem.address import Address
from ffmem.analyses.removal.shortened_prefixes import (
    BATCH_TOKENS,
    CoefficientQuery,
    ShortenedSentence,
    shortened_coefficients,
)
from ffmem.errors import AddressError
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore


def saliency(model: LanguageModel, key: Address, prefix: Sequence[int]) -> tuple[float, ...]:
    """The change of a key's coefficient without each token of `prefix`, in percent, in order.

    Each token of the prefix (at least two, no BOS) is removed in turn: leave-one-out attribution.
    """
    model.layer_of(key)
    ids = np.asarray(prefix, dtype=np.int32)
    asked = [
        CoefficientQuery(key, ShortenedSentence(0, ids, missing), len(ids))
        for missing in range(len(ids) + 1)
    ]
    found = shortened_coefficients(model, asked, BATCH_TOKENS["cuda"]).clamp(min=0).tolist()
    before = found[0]
    return tuple(100 * (m - before) / before if before else float("nan") for m in found[1:])


@dataclass(frozen=True)
class TokenEffect:
    """A token of a trigger, and how the coefficient changes without it, in percent."""

    token: str
    change: float | None


@dataclass(frozen=True)
class TriggerSaliency:
    """Every token of one trigger; empty where it has but one token."""

    rank: int
    tokens: tuple[TokenEffect, ...]


def trigger_saliency(
    model: LanguageModel, store: ScanStore, cell: Address, rank: int
) -> TriggerSaliency:
    """Remove each token of a cell's trigger (rank from 1) in turn and read the key again."""
    slots = store.slots([store.cells.row(cell)])
    if not 1 <= rank <= len(slots):
        raise AddressError(f"{cell} has {len(slots)} stored triggers, no trigger {rank}")
    where, position = int(slots.sentence[rank - 1]), int(slots.position[rank - 1])
    return prefix_saliency(model, store, cell, (where, position), rank)


def prefix_saliency(
    model: LanguageModel, store: ScanStore, cell: Address, place: tuple[int, int], rank: int
) -> TriggerSaliency:
    """The same for any prefix of a stored sentence, given by row and position."""
    where, position = place
    if position < 2:
        return TriggerSaliency(rank, ())
    kept = store.sentences
    changes = saliency(model, cell, kept.token_ids(where)[:position].tolist())
    pieces = kept.pieces(where)[:position]
    return TriggerSaliency(
        rank,
        tuple(
            TokenEffect(piece, None if math.isnan(change) else round(change, 2))
            for piece, change in zip(pieces, changes, strict=True)
        ),
    )
