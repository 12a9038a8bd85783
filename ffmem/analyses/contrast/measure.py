"""Which memories fire on one corpus and not on others, from scans of one model; no text is read.

A cell fires on F of n prefixes of a corpus. Prefixes of one sentence, and sentences of one place in
the corpus, are alike, so F varies more than a binomial: by the factor

    D = (2 F / N - 1) x (1 + (N - 1) e)

where N, the sentences that fire the cell, is known from its random sample (the sample keeps the
sentences of smallest hash, which also says how many there are), F / N is what a sentence brings
(2 F / N - 1 if that is geometric), and e is how much more often than by chance two sampled
sentences lie in the same block of the corpus. The log odds ratio then has the variance
sum of D (1 / F + 1 / (n - F)), and false discoveries are held to a rate by Benjamini and Hochberg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.errors import StoreError
from ffmem.scan.hashing import NO_PRIORITY, priorities
from ffmem.scan.tallies import UNIT
from ffmem.store.scan_store import ScanStore

BLOCKS = 64  # parts of a corpus, in reading order
BINS = 10  # of cells by how often they fire; what a cell's own sample cannot tell comes from these
CELLS_PER_CORPUS = 20  # cells of each corpus
NOT_COMPARED = {"top", "sample", "seed"}  # settings that change no count
TEXT_UNITS = ("splitter", "max_tokens", "drop_headings", "wikitext_detok")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CorpusCounts:
    """One scan's counts of every cell [cell]: how often it fires, how strongly, how clustered."""

    name: str
    fires: Floats
    mean: Floats  # of the coefficient where it fires
    prefixes: int
    spread: Floats  # D
    half: Floats  # of the sampled sentences, those in every second block
    sampled: Floats
    half_share: float  # of the corpus that those blocks are
    block_excess: Floats  # e

    @property
    def rate(self) -> Floats:
        """Share of prefixes that fire each cell."""
        return self.fires / max(self.prefixes, 1)


@dataclass(frozen=True)
class LayerContrast:
    """How many cells of a layer are specific to each corpus, in their order."""

    layer: int
    cells: int
    specific: tuple[int, ...]


@dataclass(frozen=True)
class SpecificCell:
    """A cell that one corpus fires: log odds against the others, and mean coefficients."""

    address: Address
    rates: tuple[float, ...]
    means: tuple[float, ...]
    log_odds: float
    low: float
    high: float
    entropy: float


@dataclass(frozen=True)
class Contrast:
    """The cells that tell corpora apart.

    `halves` counts the cells that would be called specific to one half of a corpus, were the
    sampled sentences of every second of its blocks a corpus of their own: the control.
    """

    corpora: tuple[str, ...]
    level: float  # the rate of false discoveries that was allowed
    cells: int
    layers: tuple[LayerContrast, ...]
    specific: tuple[int, ...]
    halves: tuple[int, ...]
    top: dict[str, tuple[SpecificCell, ...]]


@dataclass(frozen=True)
class ContrastTable:
    """Every cell against every corpus [corpus, cell]."""

    log_odds: Floats
    error: Floats
    adjusted: Floats  # the smallest level at which the cell is called specific
    entropy: Floats  # [cell], of the corpora's rates, in nats; 0 means one corpus alone

    def specific(self, corpus: int, level: float) -> NDArray[np.bool_]:
        """The cells that a corpus fires more often than the others do."""
        return (self.adjusted[corpus] <= level) & (self.log_odds[corpus] > 0)

    def order(self, corpus: int, level: float) -> NDArray[np.int64]:
        """The specific cells of a corpus: highest lower end of the log odds first."""
        rows = np.flatnonzero(self.specific(corpus, level))
        lower = self.log_odds[corpus] - 1.96 * self.error[corpus]
        return rows[np.argsort(-lower[rows], kind="stable")]


def refuse_different(stores: Sequence[ScanStore]) -> None:
    """Scans can be compared if the model, what competes, and the units of text are the same."""
    first = stores[0]
    for store in stores:
        for name in ("weights", "tokenizer"):
            if store.manifest.key.model.get(name) != first.manifest.key.model.get(name):
                raise _different(first, store, f"model ({name})")
        settings = [
            {k: v for k, v in one.manifest.key.settings.items() if k not in NOT_COMPARED}
            for one in (first, store)
        ]
        wrong = [name for name in settings[0] if settings[0][name] != settings[1].get(name)]
        if wrong:
            raise _different(first, store, f"settings ({', '.join(wrong)})")
        units = [
            name
            for name in TEXT_UNITS
            if store.manifest.key.corpus.get(name) != first.manifest.key.corpus.get(name)
        ]
        if units:
            raise _different(first, store, f"units of text ({', '.join(units)})")
        check_samples(store)
    if len({store.manifest.key.digest for store in stores}) < len(stores):
        raise StoreError("the same scan is named twice; give scans of different corpora")


def check_samples(store: ScanStore) -> None:
    """Refuse a scan whose samples do not say how clustered a cell's fires are."""
    settings = store.manifest.key.settings
    if settings["per_sentence"] != "max" or settings["sample"] < 8:
        raise StoreError(
            f"{store.folder.root} was scanned with --per-sentence {settings['per_sentence']} and "
            f"--sample {settings['sample']}; a contrast needs --per-sentence max and --sample 8 or "
            "more"
        )


def _different(one: ScanStore, other: ScanStore, what: str) -> StoreError:
    return StoreError(
        f"{one.folder.root} and {other.folder.root} were scanned with different {what}; scan both "
        "corpora with the same model and options"
    )


def corpus_counts(store: ScanStore, name: str | None = None) -> CorpusCounts:
    """Counts of a scan, with how clustered the fires of every cell are."""
    fires = np.asarray(store.array("fires"), dtype=np.float64)
    slots = store.slots(slice(0, store.cells.count), "sample")
    seed = store.manifest.key.settings["seed"]
    sentences = firing_sentences(fires, slots.mask, slots.number, seed)
    blocks = block_numbers(slots.number, store.manifest.counts["sentences"])
    same, pairs = same_block_pairs(slots.mask, blocks)
    chance = chance_of_same_block(blocks)
    excess = shrink(same, pairs, chance, sentences)
    odd = (blocks % 2).astype(np.float64)
    return CorpusCounts(
        name=name or str(store.folder.root),
        fires=fires,
        mean=np.asarray(store.array("totals")) * UNIT / np.maximum(fires, 1),
        prefixes=store.manifest.counts["prefixes"],
        spread=spread(fires, sentences, excess),
        half=np.bincount(slots.cell, odd, minlength=len(fires)).astype(np.float64),
        sampled=slots.mask.sum(axis=1).astype(np.float64),
        half_share=float(odd.mean()) if len(odd) else 0.5,
        block_excess=excess,
    )


def firing_sentences(
    fires: Floats, mask: NDArray[np.bool_], numbers: NDArray[np.uint32], seed: int
) -> Floats:
    """How many sentences fire each cell: counted where the sample has room, else estimated.

    The k sampled sentences have the k smallest of so many random hashes, and the largest of these
    says how many there are.
    """
    held = mask.sum(axis=1)
    found = held.astype(np.float64)
    full = held == mask.shape[1]
    if full.any():
        hashes = np.zeros(mask.shape)
        drawn = priorities(torch.from_numpy(numbers.astype(np.int64)), seed).double().numpy()
        hashes[mask] = (drawn + 1) / NO_PRIORITY
        found[full] = (held[full] - 1) / hashes[full].max(axis=1)
    return np.clip(found, 1, np.maximum(fires, 1))


def block_numbers(numbers: NDArray[np.uint32], sentences: int) -> NDArray[np.int64]:
    """Which block of the corpus each sampled sentence lies in, from 0 in reading order."""
    known, place = np.unique(numbers, return_inverse=True)
    width = max(1, min(len(known), sentences) // BLOCKS)
    return place.astype(np.int64) // width


def same_block_pairs(mask: NDArray[np.bool_], blocks: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Of each cell's sampled sentences the pairs that share a block, and all pairs."""
    grid = np.full(mask.shape, -1, dtype=np.int64)
    grid[mask] = blocks
    grid.sort(axis=1)
    same = np.zeros(len(grid))
    for step in range(1, mask.shape[1]):
        equal = grid[:, step:] == grid[:, :-step]
        same += (equal & (grid[:, step:] >= 0)).sum(axis=1)
    held = mask.sum(axis=1).astype(np.float64)
    return same, held * (held - 1) / 2


def chance_of_same_block(blocks: NDArray[np.int64]) -> float:
    """How often two sampled sentences of any cells share a block."""
    if not len(blocks):
        return 0.0
    share = np.bincount(blocks) / len(blocks)
    return float((share**2).sum())


def shrink(same: Floats, pairs: Floats, chance: float, sentences: Floats) -> Floats:
    """The excess of same-block pairs, as far as a cell's few pairs can tell, on the safe side.

    Cells of about as many sentences share a mean and a variance; a cell's own number counts by how
    sure it is, and one standard deviation of what stays unknown is added.
    """
    found = np.zeros(len(same))
    able = np.flatnonzero(pairs > 0)
    for part in np.array_split(able[np.argsort(sentences[able], kind="stable")], BINS):
        if not len(part):
            continue
        rate = same[part].sum() / pairs[part].sum()
        noise = max(rate, chance, 1e-9) / pairs[part]
        own = same[part] / pairs[part] - chance
        middle = rate - chance
        between = max(0.0, float(((own - middle) ** 2 - noise).mean()))
        trust = between / (between + noise)
        found[part] = middle + (own - middle) * trust + np.sqrt(trust * noise)
    return np.maximum(found, 0.0)


def spread(fires: Floats, sentences: Floats, excess: Floats) -> Floats:
    """By how much fires vary more than a binomial does."""
    within = np.maximum(2 * fires / np.maximum(sentences, 1) - 1, 1.0)
    return within * (1 + np.maximum(sentences - 1, 0) * excess)


def log_odds(
    one: tuple[Floats, Floats, Floats], other: tuple[Floats, Floats, Floats]
) -> tuple[Floats, Floats]:
    """Log odds ratio of firing and its standard error, from (fires, prefixes, D) of both sides."""
    ratio, variance = np.zeros_like(one[0]), np.zeros_like(one[0])
    for sign, (fires, prefixes, factor) in ((1, one), (-1, other)):
        hits, misses = fires + 0.5, np.maximum(prefixes - fires, 0) + 0.5
        ratio += sign * np.log(hits / misses)
        variance += factor * (1 / hits + 1 / misses)
    return ratio, np.sqrt(variance)


def two_sided_chance(scores: Floats) -> Floats:
    """The chance of a normal number at least so far from 0."""
    return torch.erfc(torch.from_numpy(np.abs(scores)) / 2**0.5).numpy()


def benjamini_hochberg(chances: Floats) -> Floats:
    """The smallest false discovery rate at which each test is called, in any shape."""
    flat = chances.reshape(-1)
    order = np.argsort(flat)
    ranked = flat[order] * len(flat) / np.arange(1, len(flat) + 1)
    found = np.empty_like(flat)
    found[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return found.reshape(chances.shape)


def compare_counts(counts: Sequence[CorpusCounts]) -> ContrastTable:
    """Every cell in each corpus against all others together."""
    ratios, errors = [], []
    for one in counts:
        others = [other for other in counts if other is not one]
        fires = np.sum([other.fires for other in others], axis=0)
        factor = np.sum([other.fires * other.spread for other in others], axis=0)
        rest = (
            fires,
            np.full_like(fires, sum(other.prefixes for other in others)),
            np.maximum(factor / np.maximum(fires, 1), 1.0),
        )
        ratio, error = log_odds((one.fires, np.full_like(fires, one.prefixes), one.spread), rest)
        ratios.append(ratio)
        errors.append(error)
    ratio, error = np.stack(ratios), np.stack(errors)
    tests = slice(0, 1) if len(counts) == 2 else slice(None)  # of two, one test says both
    adjusted = benjamini_hochberg(two_sided_chance(ratio[tests] / error[tests]))
    rates = np.stack([one.rate for one in counts])
    share = rates / np.maximum(rates.sum(axis=0), 1e-30)
    entropy = abs((share * np.log(np.maximum(share, 1e-30))).sum(axis=0))  # never -0
    return ContrastTable(ratio, error, np.broadcast_to(adjusted, ratio.shape), entropy)


def half_discoveries(one: CorpusCounts, level: float) -> int:
    """The cells that would be called specific to one half of a corpus; there is nothing to find.

    The sampled sentences of every second block against those of the others, with the same
    clustering as the whole.
    """
    other = one.sampled - one.half
    sentences = one.sampled / np.maximum(one.fires, 1) * one.prefixes
    factor = 1 + np.maximum(one.sampled - 1, 0) * one.block_excess
    ratio, error = log_odds(
        (one.half, sentences * one.half_share, factor),
        (other, sentences * (1 - one.half_share), factor),
    )
    return int((benjamini_hochberg(two_sided_chance(ratio / error)) <= level).sum())


def contrast(
    stores: Sequence[ScanStore], names: Sequence[str] | None = None, level: float = 0.05
) -> tuple[Contrast, ContrastTable, list[CorpusCounts]]:
    """Compare scans of one model over different corpora."""
    if len(stores) < 2:
        raise StoreError("a contrast needs two scans or more; name another folder")
    refuse_different(stores)
    labels = list(names or [Path(str(store.folder.root)).name for store in stores])
    counts = [corpus_counts(store, label) for store, label in zip(stores, labels, strict=True)]
    table = compare_counts(counts)
    cells = stores[0].cells
    found = [table.specific(corpus, level) for corpus in range(len(counts))]
    result = Contrast(
        corpora=tuple(labels),
        level=level,
        cells=cells.count,
        layers=tuple(
            LayerContrast(
                layer,
                cells.rows_of(layer).stop - cells.rows_of(layer).start,
                tuple(int(one[cells.rows_of(layer)].sum()) for one in found),
            )
            for layer in stores[0].memories
        ),
        specific=tuple(int(one.sum()) for one in found),
        halves=tuple(half_discoveries(one, level) for one in counts),
        top={
            label: tuple(
                specific_cell(stores[0], counts, table, corpus, int(row))
                for row in table.order(corpus, level)[:CELLS_PER_CORPUS]
            )
            for corpus, label in enumerate(labels)
        },
    )
    return result, table, counts


def specific_cell(
    store: ScanStore, counts: Sequence[CorpusCounts], table: ContrastTable, corpus: int, row: int
) -> SpecificCell:
    """One cell in words and numbers."""
    ratio, reach = float(table.log_odds[corpus, row]), 1.96 * float(table.error[corpus, row])
    return SpecificCell(
        store.cells.address(row),
        tuple(float(one.rate[row]) for one in counts),
        tuple(float(one.mean[row]) for one in counts),
        ratio,
        ratio - reach,
        ratio + reach,
        float(table.entropy[row]),
    )


def contrast_columns(
    store: ScanStore, counts: Sequence[CorpusCounts], table: ContrastTable, level: float
) -> dict[str, NDArray[np.generic]]:
    """Every cell as a row of plain columns."""
    addresses = store.cells.addresses(np.arange(store.cells.count))
    found: dict[str, NDArray[np.generic]] = {
        "address": np.array([str(one) for one in addresses]),
        "layer": np.array([one.layer for one in addresses], dtype=np.int32),
        "entropy": table.entropy,
    }
    for corpus, one in enumerate(counts):
        found |= {
            f"fires_{one.name}": one.fires.astype(np.int64),
            f"rate_{one.name}": one.rate,
            f"mean_{one.name}": one.mean,
            f"spread_{one.name}": one.spread,
            f"log_odds_{one.name}": table.log_odds[corpus],
            f"low_{one.name}": table.log_odds[corpus] - 1.96 * table.error[corpus],
            f"high_{one.name}": table.log_odds[corpus] + 1.96 * table.error[corpus],
            f"false_discovery_rate_{one.name}": table.adjusted[corpus],
            f"specific_{one.name}": table.specific(corpus, level),
        }
    return found
