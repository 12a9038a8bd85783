"""Does the strongest trigger tell text that a model was trained on from text it has not seen?

A sentence's score is how near its coefficients come to each memory's strongest trigger among the
*other* sentences of the scan, mean over memories. Were the scanned text nothing special to the
model, unseen prefixes of the same lengths would score alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffmem.analyses.controls import random_rows
from ffmem.analyses.inputs.prefix_sample import PrefixBatch, PrefixSample, prefix_batches
from ffmem.analyses.statistics import Interval
from ffmem.memories.recording import record
from ffmem.models.language_model import LanguageModel
from ffmem.store.scan_store import ScanStore

PAIRS = 200  # prefixes of each text
BATCH_TOKENS = 1024  # tokens of one forward pass, for every coefficient of it is held
LARGEST_RATIO = 2.0  # a coefficient counts as at most so many times the strongest trigger's
ROUNDS = 500


@dataclass(frozen=True)
class LayerMembership:
    """The chance that a scanned prefix scores above an unseen one, by one layer's memories."""

    layer: int
    auc: Interval
    split: Interval


@dataclass(frozen=True)
class Membership:
    """Scanned against unseen prefixes of the same lengths; 0.5 is chance.

    `split` compares scanned prefixes with other scanned ones, where nothing can be found. Intervals
    resample prefixes of both sides. `unseen` is false where there was no validation text, so that
    both sides are scanned text.
    """

    auc: Interval
    split: Interval
    layers: tuple[LayerMembership, ...]
    scanned_score: float
    unseen_score: float
    pairs: int
    unseen: bool


@dataclass(frozen=True)
class _PrefixSet:
    """Prefixes, and for each the number of its sentence in the scan, or -1."""

    prefixes: list[Tensor]
    sentences: Tensor


def membership(
    model: LanguageModel,
    store: ScanStore,
    sample: PrefixSample,
    generator: torch.Generator,
    unseen: bool = True,
) -> Membership:
    """Score prefixes of the sample and scanned ones of the same lengths, twice as many of these."""
    lengths = [int(sample.positions[row]) for row in range(len(sample))][:PAIRS]
    used, members, others = prefix_sets(store, lengths, generator)
    count = len(used)
    new = _PrefixSet([sample.prefix_tokens(row) for row in used], torch.full((count,), -1))
    own, again, strange = (scores(model, store, one) for one in (members, others, new))

    def compare(part: slice) -> tuple[Interval, Interval]:
        first, second, third = (one[:, part].mean(dim=1) for one in (own, again, strange))
        return auc_interval(first, third, generator), auc_interval(first, second, generator)

    auc, split = compare(slice(None))
    return Membership(
        auc=auc,
        split=split,
        layers=tuple(
            LayerMembership(layer, *compare(slice(place, place + 1)))
            for place, layer in enumerate(store.memories)
        ),
        scanned_score=float(own.mean()) if count else float("nan"),
        unseen_score=float(strange.mean()) if count else float("nan"),
        pairs=count,
        unseen=unseen,
    )


def prefix_sets(
    store: ScanStore, lengths: Sequence[int], generator: torch.Generator
) -> tuple[list[int], _PrefixSet, _PrefixSet]:
    """Two disjoint sets of prefixes of random scanned sentences, and which lengths they have.

    A length for which no two sentences are left that are long enough is passed over.
    """
    rows = store.slots(slice(None), "sample").distinct_sentences()
    rows = rows[random_rows(len(rows), len(rows), generator).numpy()]
    sizes = np.diff(np.asarray(store.sentences.starts))[rows]
    free = np.ones(len(rows), dtype=bool)
    used: list[int] = []
    pairs: list[tuple[int, int]] = []
    for at, length in enumerate(lengths):
        fit = np.flatnonzero(free & (sizes >= length))[:2]
        if len(fit) == 2:
            free[fit] = False
            used.append(at)
            pairs.append((int(rows[fit[0]]), int(rows[fit[1]])))
    sides = [
        _PrefixSet(
            [
                torch.from_numpy(store.sentences.token_ids(row).astype(np.int64))[: lengths[at]]
                for row, at in zip(side, used, strict=True)
            ],
            torch.tensor([int(store.sentences.numbers[row]) for row in side]),
        )
        for side in ([one for one, _ in pairs], [other for _, other in pairs])
    ]
    return used, sides[0], sides[1]


@torch.no_grad()
def scores(model: LanguageModel, store: ScanStore, some: _PrefixSet) -> Tensor:
    """[prefix, layer]: mean over memories of the largest coefficient over the strongest trigger's.

    The strongest trigger is that of another sentence than the prefix's own.
    """
    found = torch.zeros(len(some.prefixes), len(store.memories))
    triggers = {layer: _strongest_two(store, layer) for layer in store.memories}
    for batch in prefix_batches(some.prefixes, model.bos, len(some.prefixes), BATCH_TOKENS):
        readings = record(model, batch.tokens, "m")
        for place, layer in enumerate(store.memories):
            largest = _largest(readings[layer - 1].m, batch, store.cells.signed, model.bos)
            strength, sentence = triggers[layer]
            own = sentence[:, 0][None] == some.sentences[batch.rows][:, None]
            goal = torch.where(own, strength[:, 1][None], strength[:, 0][None])
            ratio = (largest / goal.clamp(min=1e-30)).clamp(0, LARGEST_RATIO).where(goal > 0, 0)
            found[batch.rows, place] = ratio.sum(dim=1) / (goal > 0).sum(dim=1).clamp(min=1)
    return found


def _strongest_two(store: ScanStore, layer: int) -> tuple[Tensor, Tensor]:
    """Coefficients and sentence numbers [cell, 2] of each cell's two strongest triggers."""
    rows = store.cells.rows_of(layer)
    strength, sentence = (
        np.asarray(store.array(f"trigger_{name}")[rows, :2])
        for name in ("coefficients", "sentences")
    )
    pair = [
        torch.from_numpy(part.astype(kind)) for part, kind in ((strength, "f4"), (sentence, "i8"))
    ]
    wide = [torch.nn.functional.pad(part, (0, 2 - part.shape[1])) for part in pair]
    return wide[0], wide[1]


def _largest(m: Tensor, batch: PrefixBatch, signed: bool, bos: int | None) -> Tensor:
    """[row, cell]: the largest coefficient at any token of each prefix, the BOS left out."""
    m = m.float().cpu().reshape(len(batch.rows), -1, m.shape[-1])
    where = torch.arange(m.shape[1])
    outside = where[None] > batch.columns[:, None]
    if bos is not None:
        outside |= where[None] == 0
    sides = [m, -m] if signed else [m]
    return torch.cat(
        [side.masked_fill(outside[:, :, None], 0).amax(dim=1) for side in sides], dim=1
    )


def auc_interval(one: Tensor, other: Tensor, generator: torch.Generator) -> Interval:
    """The chance that one of the first is above one of the second, ties half; both resampled."""
    if not len(one) or not len(other):
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    above = (one[:, None] > other[None]).double() + 0.5 * (one[:, None] == other[None]).double()
    found = []
    for _ in range(ROUNDS):
        rows = torch.randint(len(one), (len(one),), generator=generator)
        columns = torch.randint(len(other), (len(other),), generator=generator)
        found.append(above[rows][:, columns].mean())
    low, high = torch.stack(found).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    return Interval(float(above.mean()), low, high, len(one))
