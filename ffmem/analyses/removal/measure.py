"""Which end of a trigger does a key need? Remove a token and read the coefficient again (Fig 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.address import Address
from ffmem.analyses.controls import random_keys
from ffmem.analyses.inputs.effects import layers_by_depth
from ffmem.analyses.removal.record import (
    REMOVALS,
    LayerRemoval,
    Removal,
    RemovalEffects,
)
from ffmem.analyses.removal.shortened_prefixes import (
    BATCH_TOKENS,
    CoefficientQuery,
    ShortenedSentence,
    shortened_coefficients,
)
from ffmem.analyses.statistics import Interval, pool_by_key, resample
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore


@dataclass(frozen=True)
class _Triggers:
    """Every trigger of the drawn keys, as arrays of equal length."""

    keys: list[Address]
    key: np.ndarray[tuple[int], np.dtype[np.int64]]  # row in `keys`
    sentence: np.ndarray[tuple[int], np.dtype[np.int64]]  # row in the kept sentences
    position: np.ndarray[tuple[int], np.dtype[np.int64]]


def measure(
    model: LanguageModel,
    store: ScanStore,
    keys: int = 100,
    top: int = 50,
    seed: int = 0,
) -> Removal:
    """Measure `keys` random keys per layer on their `top` strongest triggers.

    The original prefix is read again in the batch of its shortened forms, so that a change is
    never one of precision. The token removed at random is drawn once for a prefix and shared by the
    keys it triggers. A coefficient below 0 (smooth activations, gates) counts as 0: the key has
    fallen silent.
    """
    drawn = random_keys(store, keys, seed, "removal")
    triggers = _triggers(store, [key for layer in drawn.values() for key in layer], top)
    long = triggers.position >= 2
    removed = _random_tokens(triggers, seed)
    asked = _questions(store, triggers, removed, np.flatnonzero(long))
    found = shortened_coefficients(
        model, asked, BATCH_TOKENS["cuda" if model.device.type == "cuda" else "cpu"]
    )
    table = torch.full((len(long), 1 + len(REMOVALS)), float("nan"), dtype=torch.float64)
    table[torch.from_numpy(long)] = found.double().reshape(-1, 1 + len(REMOVALS)).clamp(min=0)
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(_layer(layer, triggers, table, generator) for layer in sorted(drawn))
    names = {layer: tuple(str(key) for key in found) for layer, found in drawn.items()}
    effects = removal_effects([_changes_by_key(layer, triggers, table) for layer in sorted(drawn)])
    return Removal(layers, names, top, effects)


def _changes_by_key(layer: int, triggers: _Triggers, coefficients: Tensor) -> Tensor:
    """[key, 6] of a layer: sum and number of the changes without first, last, random token.

    A trigger counts if it fires when read again.
    """
    rows = {row: place for place, row in enumerate(_keys_of(layer, triggers))}
    mine = torch.from_numpy(np.isin(triggers.key, list(rows)))
    m = coefficients[mine]
    whole = m[:, 0] > 0
    key = torch.tensor([rows[row] for row in triggers.key[mine.numpy()].tolist()], dtype=torch.long)
    changes = 100 * (m[whole, 1:] / m[whole, :1] - 1)
    columns = torch.stack([changes, torch.ones_like(changes)], dim=2).flatten(1)
    return torch.zeros(len(rows), columns.shape[1], dtype=torch.float64).index_add_(
        0, key[whole], columns
    )


def _keys_of(layer: int, triggers: _Triggers) -> list[int]:
    return [row for row, key in enumerate(triggers.keys) if key.layer == layer]


def _triggers(store: ScanStore, keys: list[Address], top: int) -> _Triggers:
    slots = store.slots([store.cells.row(key) for key in keys], top=top)
    fires = slots.coefficient > 0
    return _Triggers(keys, slots.cell[fires], slots.sentence[fires], slots.position[fires])


def _random_tokens(triggers: _Triggers, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The token (from 1) to remove from each trigger, any of the prefix, one for each place."""
    places = np.stack([triggers.sentence, triggers.position], axis=1)
    unique, which = np.unique(places.reshape(-1, 2), axis=0, return_inverse=True)
    share = np.random.default_rng([seed, 3]).random(len(unique))
    drawn = np.floor(share * unique[:, 1]).astype(np.int64) + 1
    return drawn[which.reshape(-1)]


def _questions(
    store: ScanStore,
    triggers: _Triggers,
    removed: np.ndarray[tuple[int], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[CoefficientQuery]:
    """Four questions per trigger: as it is, and without its first, last and one random token."""
    sentences = {
        int(row): store.sentences.token_ids(int(row)) for row in np.unique(triggers.sentence)
    }
    asked = []
    for row in rows:
        key, position = triggers.keys[triggers.key[row]], int(triggers.position[row])
        sentence = int(triggers.sentence[row])
        for missing in (0, 1, position, int(removed[row])):
            text = ShortenedSentence(sentence, sentences[sentence], missing)
            asked.append(CoefficientQuery(key, text, position))
    return asked


def _layer(
    layer: int, triggers: _Triggers, coefficients: Tensor, generator: torch.Generator
) -> LayerRemoval:
    """From [trigger, 1 + kind]: coefficients, original first."""
    of_layer = _keys_of(layer, triggers)
    mine = torch.from_numpy(np.isin(triggers.key, of_layer))
    key = torch.from_numpy(triggers.key)[mine] - (of_layer[0] if of_layer else 0)
    m = coefficients[mine]
    short, fires = m[:, 0].isnan(), m[:, 0] > 0
    key, m, count = key[fires], m[fires], len(of_layer)
    first, last, random = (
        _by_key(100 * (after - m[:, 0]) / m[:, 0], key, count, generator) for after in m.T[1:]
    )
    return LayerRemoval(
        layer=layer,
        first=first,
        last=last,
        random=random,
        triggers=len(m),
        keys=len(key.unique()),
        dead=count - len(np.unique(triggers.key[mine.numpy()])),
        short=int(short.sum()),
    )


def _by_key(changes: Tensor, key: Tensor, keys: int, generator: torch.Generator) -> Interval:
    sums = torch.zeros(keys, dtype=torch.float64).index_add_(0, key, changes)
    return pool_by_key(sums, torch.bincount(key, minlength=keys), generator)


def removal_effects(layers: Sequence[Tensor]) -> RemovalEffects:
    """Figure 3 from [key, 6] of each layer: sum and count of the changes of first, last, random."""

    def means(sums: Tensor, at: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        first, last, random = (sums[..., at + k] / sums[..., at + k + 1] for k in (0, 2, 4))
        return first, last, random

    def last_most(sums: Tensor) -> Tensor:
        first, last, random = means(sums)
        return torch.minimum(first, random) - last

    table, every = layers_by_depth(layers), torch.cat(list(layers))
    return RemovalEffects(
        last_most=resample(every, last_most, None),
        last_most_lower=resample(table[:, :6], last_most, None),
        last_most_upper=resample(table[:, 6:], last_most, None),
        last_fades=resample(table, lambda sums: means(sums, 6)[1] - means(sums)[1], None),
        first_least=resample(every, lambda sums: means(sums)[0] - means(sums)[2], None),
        first_above_last=resample(every, lambda sums: means(sums)[0] - means(sums)[1], None),
    )
