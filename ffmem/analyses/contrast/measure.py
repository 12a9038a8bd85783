"""Which memories fire on one corpus and not on others, from scans of one model.

The scans say which text is meant and from which coefficient on a cell fires, one threshold per
layer for all of them. The text is read again, since a scan does not keep how often a cell fires in
each document: `text_parts` counts that, and `permutations` says which differences are not chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ffmem.address import Address
from ffmem.analyses.contrast.permutations import STEP, Passing, compare_parts, steps_of
from ffmem.analyses.contrast.text_parts import (
    PartCounts,
    count_firing,
    read_parts,
    scanned_text,
)
from ffmem.analyses.drift.matching import promoted_texts
from ffmem.errors import StoreError
from ffmem.store.scan_store import ScanStore, common_thresholds
from ffmem.store.search.lookup import MemoryIndex
from ffmem.store.slots import single_triggers
from ffmem.text import Snippet

if TYPE_CHECKING:
    from ffmem.models.language_model import LanguageModel

CELLS_PER_CORPUS = 20  # cells of each corpus
SENTENCES = 2000  # read of each corpus
COUNTED = ("min_prefix", "include_final", "signed", "layers", "experts")  # settings that matter
PREPARED = ("splitter", "max_tokens", "drop_headings", "wikitext_detok", "paragraphs", "chat")
SNIPPET = 60  # characters of a trigger
Z = 1.96  # of a 95 % interval
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CorpusRead:
    """How much of a corpus was read, and in how many parts."""

    name: str
    sentences: int
    prefixes: int
    parts: int
    of_documents: bool  # no part ends within a document


@dataclass(frozen=True)
class Permutations:
    """The control: the parts of all corpora dealt out to them at random, `deals` times.

    In 95 % of the deals at most `bound` cells reach the bar; `with_any` deals have a cell that
    would be called specific by the same rule. `bar` is None where no cell is specific.
    """

    deals: int
    bar: float | None
    passing: int
    bound: int
    with_any: int


@dataclass(frozen=True)
class LayerContrast:
    """How many cells of a layer are specific to each corpus, in their order."""

    layer: int
    cells: int
    specific: tuple[int, ...]


@dataclass(frozen=True)
class SpecificCell:
    """A cell that one corpus fires: log odds against the others, and mean coefficients.

    `mirror` is the other sign of its memory, where that is specific to `mirror_corpus`: it is not
    listed again there. `trigger` is the strongest in the scan of its corpus, and `promotes` are the
    first tokens of its value.
    """

    address: Address
    rates: tuple[float, ...]
    means: tuple[float, ...]
    log_odds: float
    low: float
    high: float
    entropy: float
    mirror: Address | None
    mirror_corpus: str
    trigger: Snippet | None
    promotes: tuple[str, ...]


@dataclass(frozen=True)
class Contrast:
    """The cells that tell corpora apart, and what chance gives (`permutations`, by corpus).

    Of two corpora one comparison says both.
    """

    corpora: tuple[str, ...]
    read: tuple[CorpusRead, ...]
    warnings: tuple[str, ...]
    level: float  # the rate of false discoveries that was allowed
    cells: int
    layers: tuple[LayerContrast, ...]
    specific: tuple[int, ...]
    permutations: tuple[Permutations, ...]
    top: dict[str, tuple[SpecificCell, ...]]


@dataclass(frozen=True)
class ContrastTable:
    """Every cell against every corpus [corpus, cell]."""

    log_odds: Floats
    error: Floats
    adjusted: Floats  # the smallest level at which the cell is called specific
    calls: NDArray[np.bool_]  # whether it is at the level that was asked for
    entropy: Floats  # [cell], of the corpora's rates, in nats; 0 means one corpus alone

    def specific(self, corpus: int) -> NDArray[np.bool_]:
        """The cells that a corpus fires more often than the others do."""
        return self.calls[corpus] & (self.log_odds[corpus] > 0)

    def order(self, corpus: int) -> NDArray[np.int64]:
        """The specific cells of a corpus: highest lower end of the log odds first."""
        rows = np.flatnonzero(self.specific(corpus))
        return rows[np.argsort(-self.low(corpus)[rows], kind="stable")]

    def low(self, corpus: int) -> Floats:
        """The lower ends of the log odds."""
        return np.asarray(self.log_odds[corpus] - Z * self.error[corpus])


def refuse_different(stores: Sequence[ScanStore]) -> None:
    """Scans are compared if of one model, with the same prefixes, and their texts are there."""
    first = stores[0].manifest.key
    for store in stores[1:]:
        key = store.manifest.key
        for name in ("weights", "tokenizer"):
            if key.model.get(name) != first.model.get(name):
                raise _different(stores[0], store, f"model ({name})")
        if wrong := [n for n in COUNTED if key.settings.get(n) != first.settings.get(n)]:
            raise _different(stores[0], store, f"settings ({', '.join(wrong)})")
    if len({store.manifest.key.digest for store in stores}) < len(stores):
        raise StoreError("the same scan is named twice; give scans of different corpora")
    for store in stores:
        scanned_text(store)


def _different(one: ScanStore, other: ScanStore, what: str) -> StoreError:
    return StoreError(
        f"{one.folder.root} and {other.folder.root} were scanned with different {what}; scan both "
        "corpora with the same model and options"
    )


def preparation_warnings(stores: Sequence[ScanStore], names: Sequence[str]) -> list[str]:
    """What differs in how the texts were cut and cleaned: that can make memories fire too."""
    found = []
    for setting in PREPARED:
        values = [store.manifest.key.corpus.get(setting) or False for store in stores]
        if len(set(values)) > 1:
            each = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
            found.append(
                f"the texts were prepared differently ({setting}: {each}); a memory can be "
                "specific to that alone"
            )
    return found


def contrast(
    stores: Sequence[ScanStore],
    model: LanguageModel,
    names: Sequence[str],
    level: float = 0.05,
    sentences: int = SENTENCES,
) -> tuple[Contrast, ContrastTable, list[PartCounts]]:
    """Compare scans of one model over different corpora; reads so many sentences of each."""
    thresholds = common_thresholds(stores)
    counts = []
    for store, name in zip(stores, names, strict=True):
        text = read_parts(store, model, sentences)
        counts.append(count_firing(model, store, text, thresholds, name))
    table, chance = compare_counts(counts, level)
    cells = stores[0].cells
    found = [table.specific(corpus) for corpus in range(len(counts))]
    layers = tuple(
        LayerContrast(
            layer,
            cells.rows_of(layer).stop - cells.rows_of(layer).start,
            tuple(int(one[cells.rows_of(layer)].sum()) for one in found),
        )
        for layer in stores[0].memories
    )
    result = Contrast(
        corpora=tuple(names),
        read=tuple(_corpus_read(one) for one in counts),
        warnings=tuple(preparation_warnings(stores, names)),
        level=level,
        cells=cells.count,
        layers=layers,
        specific=tuple(int(one.sum()) for one in found),
        permutations=chance,
        top=dict(zip(names, top_cells(stores, counts, table), strict=True)),
    )
    return result, table, counts


def _corpus_read(one: PartCounts) -> CorpusRead:
    """How much was read of a corpus."""
    prefixes = int(one.prefixes.sum())
    return CorpusRead(one.name, one.sentences, prefixes, len(one.prefixes), one.of_documents)


def compare_counts(
    counts: Sequence[PartCounts], level: float
) -> tuple[ContrastTable, tuple[Permutations, ...]]:
    """Every cell in each corpus against all others together."""
    ratios, errors = list[Floats](), list[Floats]()
    adjusted, calls = list[Floats](), list[NDArray[np.bool_]]()
    chance = []
    for corpus, one in enumerate(counts):
        others = [other for other in counts if other is not one]
        rest = (
            np.concatenate([other.fires for other in others]),
            np.concatenate([other.prefixes for other in others]),
        )
        mine = (one.fires, one.prefixes)
        ratio, error = log_odds(mine, rest)
        ratios.append(ratio)
        errors.append(error)
        if corpus and len(counts) == 2:  # one comparison says both
            adjusted.append(adjusted[0])
            calls.append(calls[0])
            continue
        scores, passing = compare_parts(mine, rest)
        bar = passing.bar(level)
        adjusted.append(passing.least_level(scores))
        calls.append(np.zeros(len(scores), bool) if bar is None else steps_of(scores) >= bar)
        chance.append(_permutations(passing, level))
    table = ContrastTable(
        np.stack(ratios), np.stack(errors), np.stack(adjusted), np.stack(calls), _entropy(counts)
    )
    return table, tuple(chance)


def _permutations(passing: Passing, level: float) -> Permutations:
    """What the deals say, in numbers."""
    bar, deals = passing.bar(level), len(passing.deals)
    some = passing.deals_with_any(level)
    if bar is None:
        return Permutations(deals, None, 0, 0, some)
    return Permutations(deals, bar * STEP, int(passing.true[bar]), int(passing.bound[bar]), some)


def log_odds(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Log odds ratio of firing and its standard error, from (fires, prefixes) by part.

    The error of each side is that of a ratio of sums over parts, and never less than if prefixes
    were independent. Half a firing is added to hits and misses.
    """
    ratio, variance = np.zeros(one[0].shape[1]), np.zeros(one[0].shape[1])
    for sign, (fires, prefixes) in ((1, one), (-1, other)):
        read, parts = prefixes.sum(), len(prefixes)
        hits = fires.sum(axis=0) + 0.5
        misses = read + 1 - hits
        rest = fires - prefixes[:, None] * (fires.sum(axis=0) / read)
        by_part = (rest**2).sum(axis=0) * parts / (parts - 1) * (read / (hits * misses)) ** 2
        ratio += sign * np.log(hits / misses)
        variance += np.maximum(by_part, 1 / hits + 1 / misses)
    return ratio, np.sqrt(variance)


def _entropy(counts: Sequence[PartCounts]) -> Floats:
    """[cell]: that of its rates over the corpora."""
    rates = np.stack([one.rate for one in counts])
    share = rates / np.maximum(rates.sum(axis=0), 1e-30)
    return abs((share * np.log(np.maximum(share, 1e-30))).sum(axis=0))  # never -0


@dataclass(frozen=True)
class Mirror:
    """The other sign of a memory, specific to another corpus."""

    corpus: int
    row: int
    low: float  # of its log odds there


def mirror_of(store: ScanStore, table: ContrastTable, corpus: int, row: int) -> Mirror | None:
    """What the other sign of a cell's memory is specific to, if it is to another corpus."""
    other = store.cells.opposite(store.cells.address(row))
    if other is None:
        return None
    at = store.cells.row(other)
    found = [
        Mirror(one, at, float(table.low(one)[at]))
        for one in range(len(table.log_odds))
        if one != corpus and table.specific(one)[at]
    ]
    return max(found, key=lambda one: one.low, default=None)


def top_cells(
    stores: Sequence[ScanStore], counts: Sequence[PartCounts], table: ContrastTable
) -> Iterator[tuple[SpecificCell, ...]]:
    """The first cells of each corpus; of two signs that mirror each other the clearer one."""
    for corpus, store in enumerate(stores):
        low, kept = table.low(corpus), dict[int, Mirror | None]()
        for row in table.order(corpus).tolist():
            mirror = mirror_of(store, table, corpus, row)
            if mirror is None or (low[row], -corpus) > (mirror.low, -mirror.corpus):
                kept[row] = mirror
            if len(kept) == CELLS_PER_CORPUS:
                break
        yield _specific_cells(store, counts, table, corpus, kept)


def _specific_cells(
    store: ScanStore,
    counts: Sequence[PartCounts],
    table: ContrastTable,
    corpus: int,
    cells: Mapping[int, Mirror | None],
) -> tuple[SpecificCell, ...]:
    """Some cells in words and numbers; triggers and tokens are those of one store."""
    rows = np.array(list(cells), dtype=np.int64)
    triggers = single_triggers(store, rows, [0] * len(rows))
    tokens: list[tuple[str, ...]] = [()] * len(rows)
    if store.has_rankings and len(rows):
        tokens = promoted_texts(MemoryIndex.at_once(store), rows)
    rates = np.stack([one.rate for one in counts])
    found = []
    for (row, mirror), trigger, promotes in zip(cells.items(), triggers, tokens, strict=True):
        ratio = float(table.log_odds[corpus, row])
        reach = Z * float(table.error[corpus, row])
        found.append(
            SpecificCell(
                store.cells.address(row),
                tuple(rates[:, row].tolist()),
                tuple(float(one.means[row]) for one in counts),
                ratio,
                ratio - reach,
                ratio + reach,
                float(table.entropy[row]),
                None if mirror is None else store.cells.address(mirror.row),
                "" if mirror is None else counts[mirror.corpus].name,
                None if trigger is None else Snippet.of(trigger, SNIPPET),
                promotes,
            )
        )
    return tuple(found)


def contrast_columns(
    store: ScanStore, counts: Sequence[PartCounts], table: ContrastTable
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
            f"fires_{one.name}": one.fires.sum(axis=0).astype(np.int64),
            f"rate_{one.name}": one.rate,
            f"mean_{one.name}": one.means,
            f"log_odds_{one.name}": table.log_odds[corpus],
            f"low_{one.name}": table.low(corpus),
            f"high_{one.name}": 2 * table.log_odds[corpus] - table.low(corpus),
            f"false_discovery_rate_{one.name}": table.adjusted[corpus],
            f"specific_{one.name}": table.specific(corpus),
        }
    return found
